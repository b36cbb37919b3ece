package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
)

// nodeMonitorGracePeriod is how long a node can be silent before it counts as lost. The API
// server may be away for a while, and kwok never restores what a Pod loses when its node
// counts as lost. kwok renews the Lease of each node four times in that period: with the
// 40 seconds of a kubelet, 5,000 nodes would need 500 writes a second.
const nodeMonitorGracePeriod = 10 * time.Minute

// install writes all that the components read, and configures etcd and the API server.
func (c *Cluster) install(programs parts.Programs) error {
	for name, command := range programs.Components {
		if err := os.WriteFile(c.program(Component(name)), fmt.Appendf(nil, script, command), 0o700); err != nil {
			return err
		}
	}
	if err := os.Symlink(programs.Kubectl, c.Kubectl()); err != nil {
		return err
	}
	policy, err := json.Marshal(auditPolicy(c.options.AuditUsers, c.options.AuditBodies))
	if err != nil {
		return err
	}
	scheduler, err := c.schedulerConfig()
	if err != nil {
		return fmt.Errorf("the configuration of the scheduler: %w", err)
	}
	for name, content := range map[string][]byte{"stages.yaml": stages, "audit-policy.json": policy, "scheduler.yaml": scheduler} {
		if err := os.WriteFile(c.file("config", name), content, 0o600); err != nil {
			return err
		}
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c.plane.Etcd = &envtest.Etcd{Path: c.program(Etcd), DataDir: c.file("etcd"), StartTimeout: startTimeout}
	c.plane.APIServer = &envtest.APIServer{Path: c.program(APIServer), CertDir: c.file("pki"), StartTimeout: startTimeout}
	c.plane.APIServer.ListenAddr = envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(port)}
	set(c.plane.Etcd.Configure(), append([]string{"--log-level=warn"}, c.options.ExtraArgs[Etcd]...))
	set(c.plane.APIServer.Configure().Disable("disable-admission-plugins"), c.apiServerArgs())
	return nil
}

// set sets the flags, each in the form --name=value, as the caller's only values.
func set(arguments *envtest.Arguments, flags []string) {
	for _, flag := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		arguments.Set(name, value)
	}
}

// freePort returns a port on which nobody listens. It is below those from which the kernel
// picks the ports of outgoing connections, so that it is still free when the API server
// restarts.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // there is no Service network
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		// Off by default, and on in clusters that take RBAC seriously.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		"--service-account-issuer=https://kubernetes.default.svc",
	}
	if len(c.options.AuditUsers) > 0 {
		args = append(args,
			"--audit-policy-file="+c.file("config", "audit-policy.json"),
			"--audit-log-path="+c.AuditLog(),
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=10240", // MB: it never rotates
		)
	}
	return append(args, c.options.ExtraArgs[APIServer]...)
}

// args returns the flags of a component that envtest does not start.
func (c *Cluster) args(component Component) []string {
	var args []string
	switch component {
	case Etcd, APIServer:
	case ControllerManager:
		args = []string{
			"--kubeconfig=" + c.configFile(ControllerManager),
			"--leader-elect=false",
			"--secure-port=0",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + c.file("pki", "sa-signer.key"),
			"--root-ca-file=" + c.file("config", "ca.crt"),
			"--node-monitor-grace-period=" + nodeMonitorGracePeriod.String(),
		}
	case Scheduler:
		args = []string{"--config=" + c.file("config", "scheduler.yaml"), "--secure-port=0"}
	case Kwok:
		args = []string{
			"--kubeconfig=" + c.configFile(Kwok),
			"--config=" + c.file("config", "stages.yaml"),
			"--manage-all-nodes",
			"--cidr=10.244.0.0/16",
			"--node-ip=" + nodeIP(0),
			"--node-port=0", // it serves nothing
			"--node-lease-duration-seconds=" + strconv.Itoa(int(nodeMonitorGracePeriod.Seconds())),
		}
	}
	return append(args, c.options.ExtraArgs[component]...)
}

// schedulerConfig adds to the caller's configuration what the scheduler needs here.
func (c *Cluster) schedulerConfig() ([]byte, error) {
	config := map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(c.options.SchedulerConfig), &given); err != nil {
		return nil, err
	}
	maps.Copy(config, given)
	if err := errors.Join(
		unstructured.SetNestedField(config, c.configFile(Scheduler), "clientConnection", "kubeconfig"),
		unstructured.SetNestedField(config, false, "leaderElection", "leaderElect")); err != nil {
		return nil, err
	}
	return json.Marshal(config)
}

// auditPolicy returns an audit.k8s.io/v1 Policy that records the users' requests and no
// others: the first rule that matches decides.
func auditPolicy(users []string, bodies bool) map[string]any {
	recorded := map[string]any{"level": "Metadata"}
	if bodies {
		recorded["level"] = "RequestResponse"
	}
	if !slices.Contains(users, AllUsers) { // a rule without users is about everybody
		recorded["users"] = users
	}
	return map[string]any{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules":      []any{recorded, map[string]any{"level": "None"}},
	}
}
