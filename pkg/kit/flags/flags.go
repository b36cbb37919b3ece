// Package flags is what the programs of this repository have in common: how they read
// their flags, how they find a cluster, and what they say of themselves.
package flags

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // -logging-format=json
	"k8s.io/component-base/version"
)

// AddLogging adds the flags of the log, but for those that are alpha.
func AddLogging(flags *flag.FlagSet, logging *logsapi.LoggingConfiguration) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	logsapi.AddGoFlags(logging, all)
	for _, name := range []string{"logging-format", "v", "vmodule"} {
		f := all.Lookup(name)
		flags.Var(f.Value, f.Name, f.Usage)
	}
}

// Parse reads the flags from args and, where these have none, from the environment:
// -kube-api-qps of flags that are named "controller" is CONTROLLER_KUBE_API_QPS there.
// It returns [flag.ErrHelp] after it has printed help, and else errors of one line.
func Parse(flags *flag.FlagSet, args []string) error {
	var err error
	flags.VisitAll(func(f *flag.Flag) {
		name := EnvironmentVariable(flags.Name(), f.Name)
		if value, ok := os.LookupEnv(name); ok && err == nil {
			if err = flags.Set(f.Name, value); err != nil {
				err = fmt.Errorf("invalid value %q in $%s: %w", value, name, err)
			}
		}
	})
	if err != nil {
		return err
	}
	flags.SetOutput(io.Discard) // the error says it in one line
	err = flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(os.Stdout)
		flags.Usage()
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: every option begins with a dash", flags.Arg(0))
	}
	return err
}

// ClusterConfig says how to reach the cluster: as the file kubeconfig does, if that
// is not empty, but at the address master, if that is not; else as $KUBECONFIG does,
// and without it as the service account of the Pod. Nothing but the API server limits
// requests.
func ClusterConfig(kubeconfig, master string) (*rest.Config, error) {
	config, err := func() (*rest.Config, error) {
		if kubeconfig != "" || master != "" {
			return clientcmd.BuildConfigFromFlags(master, kubeconfig)
		}
		if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
			return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		}
		return rest.InClusterConfig()
	}()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("no cluster to connect to: give -kubeconfig, set $KUBECONFIG, or run in a Pod")
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("the kubeconfig %q is missing or names no cluster", cmp.Or(kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)))
	}
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %q cannot be used: %w", cmp.Or(kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)), err)
	}
	config.QPS = -1 // zero would be client-go's default of 5
	return config, nil
}

// Version is what the linker was told by the Makefile, or else what the Go toolchain
// found out.
func Version() apimachineryversion.Info {
	v := version.Get()
	if info, ok := debug.ReadBuildInfo(); ok && strings.Contains(v.GitCommit, "$Format") {
		v.GitVersion, v.GitCommit = info.Main.Version, "unknown"
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.GitCommit = setting.Value
			}
		}
	}
	return v
}

// VersionLine says in one line what was built.
func VersionLine(program string) string {
	v := Version()
	return fmt.Sprintf("%s %s, commit %s, %s, %s", program, v.GitVersion, v.GitCommit, v.GoVersion, v.Platform)
}
