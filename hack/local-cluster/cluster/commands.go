package cluster

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/pki"
)

const (
	serviceCIDR = "10.96.0.0/16"
	podCIDR     = "10.244.0.0/16"
	// nodeMonitorGracePeriod is how long a node may be silent before it counts as lost.
	// The API server may be away for a while, and kwok never gives a Pod back what it
	// loses when its node counts as lost. kwok renews the Lease of each node four times
	// in that period: with the 40 seconds of a kubelet, 5,000 nodes would need 500
	// writes a second, which is more than a small machine can do.
	nodeMonitorGracePeriod = 10 * time.Minute
)

// ports are those that a cluster listens on. The other components do not.
type ports struct{ etcdClient, etcdPeer, api int }

// args returns the arguments of a component.
func (c *Cluster) args(component Component) []string {
	var args []string
	switch component {
	case Etcd:
		args = c.etcdArgs()
	case APIServer:
		args = c.apiServerArgs()
	case ControllerManager:
		args = c.controllerManagerArgs()
	case Scheduler:
		args = []string{
			"--config=" + c.dir.file("config", "scheduler.yaml"),
			"--secure-port=0",
		}
	case Kwok:
		return append([]string{
			"--kubeconfig=" + c.configFile(Kwok),
			"--config=" + c.dir.file("config", "stages.yaml"),
			"--cidr=" + podCIDR,
			"--node-ip=" + nodeIP(0),
			"--node-lease-duration-seconds=" + strconv.Itoa(int(nodeMonitorGracePeriod.Seconds())),
		}, c.options.ExtraArgs[Kwok]...)
	}
	if c.options.FeatureGates != "" && component != Etcd {
		args = append(args, "--feature-gates="+c.options.FeatureGates)
	}
	return append(args, c.options.ExtraArgs[component]...)
}

func (c *Cluster) etcdArgs() []string {
	client, peer := "https://"+address(c.ports.etcdClient), "https://"+address(c.ports.etcdPeer)
	return []string{
		"--name=local",
		"--data-dir=" + c.dir.file("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--cert-file=" + c.cert(pki.Etcd),
		"--key-file=" + c.key(pki.Etcd),
		"--trusted-ca-file=" + c.pki(pki.EtcdCA),
		"--client-cert-auth",
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=local=" + peer,
		"--peer-cert-file=" + c.cert(pki.Etcd),
		"--peer-key-file=" + c.key(pki.Etcd),
		"--peer-trusted-ca-file=" + c.pki(pki.EtcdCA),
		"--peer-client-cert-auth",
		"--unsafe-no-fsync", // nothing here is worth the wait for a disk
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.api),
		"--advertise-address=127.0.0.1",
		// There is no Service network that could lead anywhere.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--tls-cert-file=" + c.cert(pki.APIServer),
		"--tls-private-key-file=" + c.key(pki.APIServer),
		"--client-ca-file=" + c.pki(pki.CA),
		"--etcd-servers=https://" + address(c.ports.etcdClient),
		"--etcd-cafile=" + c.pki(pki.EtcdCA),
		"--etcd-certfile=" + c.cert(pki.EtcdClient),
		"--etcd-keyfile=" + c.key(pki.EtcdClient),
		"--authorization-mode=Node,RBAC",
		// Off by default, and on in clusters that take RBAC seriously.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki(pki.ServicePub),
		"--service-account-signing-key-file=" + c.pki(pki.ServiceKey),
	}
	if len(c.options.AuditUsers) > 0 {
		const megabytes = "10240" // so much that the file never rotates
		args = append(args,
			"--audit-policy-file="+c.dir.file("config", "audit-policy.yaml"),
			"--audit-log-path="+c.AuditLog(),
			"--audit-log-mode=blocking",
			"--audit-log-maxsize="+megabytes,
		)
	}
	return args
}

func (c *Cluster) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + c.configFile(ControllerManager),
		"--service-account-private-key-file=" + c.pki(pki.ServiceKey),
		"--root-ca-file=" + c.pki(pki.CA),
		"--node-monitor-grace-period=" + nodeMonitorGracePeriod.String(),
	}
}

// schedulerConfig returns the configuration of the scheduler: the one that was asked for,
// with what every scheduler of a cluster needs.
func (c *Cluster) schedulerConfig() ([]byte, error) {
	var given map[string]any
	wrong := yaml.Unmarshal([]byte(c.options.SchedulerConfig), &given)
	config := map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
	maps.Copy(config, given)
	err := errors.Join(
		wrong,
		unstructured.SetNestedField(config, c.configFile(Scheduler), "clientConnection", "kubeconfig"),
		unstructured.SetNestedField(config, false, "leaderElection", "leaderElect"))
	if err != nil {
		return nil, fmt.Errorf("the configuration of the scheduler: %w", err)
	}
	return yaml.Marshal(config)
}

// executable returns the path under which a component is started: a link named
// like the component, which is how a multi-call binary knows what to be.
func (c *Cluster) executable(component Component) string {
	return c.dir.file("bin", string(component))
}

// configFile returns the kubeconfig of a component that is a client.
func (c *Cluster) configFile(component Component) string {
	return c.dir.file("config", string(component)+".kubeconfig")
}

func (c *Cluster) pki(file string) string  { return c.dir.file("pki", file) }
func (c *Cluster) cert(leaf string) string { return c.pki(leaf + ".crt") }
func (c *Cluster) key(leaf string) string  { return c.pki(leaf + ".key") }

// nodeIP returns the address of the n-th node, from a net kept for examples.
func nodeIP(n int) string { return fmt.Sprintf("198.18.%d.%d", (n>>8)&0xff, n&0xff) }

// architecture is what nodes say they are.
const architecture = runtime.GOARCH
