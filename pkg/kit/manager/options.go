package manager

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	componentbase "k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"

	"nicoleh.io/k8s-controller/internal/flags"
	"nicoleh.io/k8s-controller/internal/serve"
)

// options are the values of the flags.
type options struct {
	cluster    flags.Cluster
	namespace  string
	qps        float64
	burst      int
	workers    int
	resync     time.Duration
	election   componentbase.LeaderElectionConfiguration
	serve      serve.Config
	stuckAfter time.Duration
}

// flagSets sets o to its defaults, and returns the flags that set it, in groups.
func (m Manager) flagSets(o *options) (groups []*flag.FlagSet) {
	*o = options{
		election: componentbase.LeaderElectionConfiguration{
			LeaderElect:   true,
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:  "leases",
			ResourceName:  m.LeaseName,
		},
	}
	group := func(name string) *flag.FlagSet {
		fs := flag.NewFlagSet(name, flag.ContinueOnError)
		groups = append(groups, fs)
		return fs
	}
	fs := group("The cluster")
	fs.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "", "Path of a kubeconfig file. Default: $KUBECONFIG, and without that, the service account of the Pod that this process runs in.")
	fs.StringVar(&o.cluster.Context, "context", "", "Name of the context in the kubeconfig. Default: its current context.")
	fs.StringVar(&o.namespace, "namespace", metav1.NamespaceAll, "The only namespace to work in. A Role there is then enough. All namespaces if empty.")
	fs.Float64Var(&o.qps, "kube-api-qps", 0, "Maximum number of requests per second to the API server, for each controller. If 0, only the API server's priority and fairness limits them.")
	fs.IntVar(&o.burst, "kube-api-burst", 0, "Maximum number of requests at once, before -kube-api-qps limits them. If 0, twice -kube-api-qps plus one.")

	fs = group("Controllers")
	fs.IntVar(&o.workers, "workers", 8, "Number of objects that each controller syncs at the same time.")
	fs.DurationVar(&o.resync, "resync", 0, "How often to sync every object even if nothing has changed. The controllers do not depend on it; 0 is never.")
	fs.DurationVar(&o.stuckAfter, "stuck-after", 5*time.Minute, "How long a sync of one object may take before /livez fails.")
	for _, d := range m.Controllers {
		if d.AddFlags != nil {
			d.AddFlags(group(d.Name))
		}
	}

	election := pflag.NewFlagSet("", pflag.ContinueOnError)
	componentbaseoptions.BindLeaderElectionFlags(&o.election, election)
	fs = group("Leader election")
	election.CopyToGoFlagSet(fs)
	fs.Lookup("leader-elect-resource-namespace").Usage += " Default: the namespace of the Pod; outside of a Pod, kube-system. Only one process per Lease is active, so processes with different -namespace need different Leases."

	fs = group("Probes and metrics")
	fs.StringVar(&o.serve.BindAddress, "bind-address", ":8443", "The host:port to serve on over HTTPS: /livez and /readyz for everyone; /metrics for clients that the API server authorizes to get this path. Nothing is served if empty.")
	fs.StringVar(&o.serve.InsecureBindAddress, "insecure-bind-address", "", "The host:port to serve /livez, /readyz and /metrics on over plain HTTP, for everyone. The host must be a loopback address. Nothing is served if empty.")
	fs.StringVar(&o.serve.CertFile, "tls-cert-file", "", "File with the certificate for HTTPS, in PEM, including intermediate certificates. A renewed certificate is used without a restart. Default: a new self-signed certificate.")
	fs.StringVar(&o.serve.KeyFile, "tls-private-key-file", "", "File with the private key of -tls-cert-file, in PEM.")
	return groups
}

// validate returns an error that says which flag is wrong, if any.
func (m Manager) validate(o options) error {
	switch {
	case o.workers < 1:
		return fmt.Errorf("-workers is %d: it must be at least 1", o.workers)
	case o.resync < 0:
		return errors.New("-resync must not be negative")
	case o.stuckAfter <= 0:
		return errors.New("-stuck-after must be more than 0")
	case !(o.qps >= 0 && o.qps <= math.MaxInt32) || o.burst < 0:
		return errors.New("-kube-api-qps and -kube-api-burst must not be negative")
	}
	for _, name := range []struct {
		flag, value string
		validate    func(string) []string
	}{
		{"namespace", o.namespace, validation.IsDNS1123Label},
		{"leader-elect-resource-namespace", o.election.ResourceNamespace, validation.IsDNS1123Label},
		{"leader-elect-resource-name", o.election.ResourceName, validation.IsDNS1123Subdomain},
	} {
		if wrong := name.validate(name.value); name.value != "" && len(wrong) > 0 {
			return fmt.Errorf("-%s=%q is not a valid name: %s", name.flag, name.value, wrong[0])
		}
	}
	names := sets.New[string]()
	for _, d := range m.Controllers {
		if wrong := validation.IsDNS1123Label(d.Name); len(wrong) > 0 {
			return fmt.Errorf("%q is not a valid name of a controller: %s", d.Name, wrong[0])
		}
		if names.Has(d.Name) {
			return fmt.Errorf("two controllers have the name %q", d.Name)
		}
		names.Insert(d.Name)
		if d.ClusterWide && o.namespace != metav1.NamespaceAll {
			return fmt.Errorf("-namespace=%s: %s cannot be restricted to one namespace", o.namespace, d.Name)
		}
		if d.Validate == nil {
			continue
		}
		if err := d.Validate(); err != nil {
			return err
		}
	}
	return o.serve.Validate()
}
