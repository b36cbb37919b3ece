package cluster

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
)

// nodeMonitorGracePeriod is how long a node can be silent before it counts as lost. The API
// server may be away for a while, and kwok never restores what a Pod loses when its node
// counts as lost. kwok renews the Lease of each node four times in that period: with the
// 40 seconds of a kubelet, 5,000 nodes would need 500 writes a second.
const nodeMonitorGracePeriod = 10 * time.Minute

//go:embed stages.yaml
var stages []byte

// auditPolicy records each request once, but a watch when it starts and when it ends.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// schedulerConfig is the scheduler's configuration. Like the controller
// manager, it may send more requests than by default: nobody else needs the API server.
const schedulerConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 500, burst: 1000}
leaderElection: {leaderElect: false}
`

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
	for name, content := range map[string][]byte{
		"stages.yaml":    stages,
		"audit.yaml":     []byte(auditPolicy),
		"scheduler.yaml": fmt.Appendf(nil, schedulerConfig, c.configFile(Scheduler)),
	} {
		if err := os.WriteFile(c.file("config", name), content, 0o600); err != nil {
			return err
		}
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c.plane.Etcd = &envtest.Etcd{Path: c.program(Etcd), DataDir: c.file("etcd"), StartTimeout: startTimeout}
	c.plane.Etcd.Configure().Set("log-level", "warn")
	c.plane.APIServer = &envtest.APIServer{Path: c.program(APIServer), CertDir: c.file("pki"), StartTimeout: startTimeout}
	c.plane.APIServer.ListenAddr = envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(port)}
	flags := c.plane.APIServer.Configure()
	flags.Disable("disable-admission-plugins").
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none"). // there is no Service network
		Set("service-cluster-ip-range", "10.96.0.0/16").
		Set("authorization-mode", "Node,RBAC").
		// Off by default, and on in clusters that take RBAC seriously.
		Set("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		Set("service-account-issuer", "https://kubernetes.default.svc")
	if c.options.Audit {
		flags.Set("audit-policy-file", c.file("config", "audit.yaml")).
			Set("audit-log-path", c.AuditLog()).
			Set("audit-log-mode", "blocking").
			Set("audit-log-maxsize", "10240") // MB: it never rotates
	}
	return nil
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

// args returns the flags of a component that envtest does not start.
func (c *Cluster) args(component Component) []string {
	switch component {
	case ControllerManager:
		return []string{
			"--kubeconfig=" + c.configFile(ControllerManager),
			"--kube-api-qps=500", "--kube-api-burst=1000",
			"--leader-elect=false",
			"--secure-port=0",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + c.file("pki", "sa-signer.key"),
			"--root-ca-file=" + c.file("config", "ca.crt"),
			"--node-monitor-grace-period=" + nodeMonitorGracePeriod.String(),
		}
	case Scheduler:
		return []string{"--config=" + c.file("config", "scheduler.yaml"), "--secure-port=0"}
	case Kwok:
		return []string{
			"--kubeconfig=" + c.configFile(Kwok),
			"--config=" + c.file("config", "stages.yaml"),
			"--manage-all-nodes",
			"--cidr=10.244.0.0/16",
			"--node-ip=" + nodeIP(0),
			"--node-port=0", // it serves nothing
			"--node-lease-duration-seconds=" + strconv.Itoa(int(nodeMonitorGracePeriod.Seconds())),
		}
	default:
		return nil
	}
}
