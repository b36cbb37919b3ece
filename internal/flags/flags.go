// Package flags contains what all commands share: they read flags from the command line and
// the environment, find the cluster, configure the log, and print their version.
package flags

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // -logging-format=json
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

const versionFlag = "version"

// Main runs a program with these flags, the logging flags and -version, until the first
// SIGINT or SIGTERM. A second signal kills the process. If run fails, Main exits with code 1,
// after it has printed the error: as a log entry if the log is in JSON, otherwise as a line
// that begins with the program's name.
func Main(program string, run func(context.Context) error, sets ...*flag.FlagSet) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	logging := logsapi.NewLoggingConfiguration()
	own := flag.NewFlagSet("Log and version", flag.ContinueOnError)
	addLogging(own, logging)
	isVersion := own.Bool(versionFlag, false, "Print version, commit and Go version, and exit.")
	err := Parse(program, os.Args[1:], append(sets, own)...)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && *isVersion:
		fmt.Println(VersionLine(program))
		return
	case err == nil:
		err = logsapi.ValidateAndApply(logging, nil)
	}
	isApplied := err == nil
	if isApplied {
		err = run(ctx)
	}
	klog.Flush()
	if err == nil {
		return
	}
	if isApplied && logging.Format == logsapi.JSONLogFormat {
		klog.Background().Error(err, "Exiting")
		klog.Flush()
	} else {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	}
	os.Exit(1)
}

// addLogging adds the logging flags of component-base, except those that are alpha.
func addLogging(flags *flag.FlagSet, logging *logsapi.LoggingConfiguration) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	logsapi.AddGoFlags(logging, all)
	for _, name := range []string{"logging-format", "v", "vmodule"} {
		f := all.Lookup(name)
		flags.Var(f.Value, f.Name, f.Usage)
	}
}

// Parse sets the flags of a program: from args, or else from environment variables. The
// variable for the flag -kube-api-qps of the program "controller" is CONTROLLER_KUBE_API_QPS.
// There is none for -version: images set such a variable to their version. In the help, each
// set is a group with its name as the heading. After printing the help, Parse returns
// [flag.ErrHelp]. Every other error fits on one line.
func Parse(program string, args []string, sets ...*flag.FlagSet) (err error) {
	all := flag.NewFlagSet(program, flag.ContinueOnError)
	all.SetOutput(io.Discard) // the error says it on one line
	for _, set := range sets {
		set.VisitAll(func(f *flag.Flag) { all.Var(f.Value, f.Name, f.Usage) })
	}
	if err = all.Parse(args); errors.Is(err, flag.ErrHelp) {
		printHelp(os.Stdout, program, sets)
	}
	if err != nil {
		return err
	}
	if all.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: flags begin with a dash", all.Arg(0))
	}
	given := map[string]bool{} // A variable would add to a flag that can be repeated.
	all.Visit(func(f *flag.Flag) { given[f.Name] = true })
	all.VisitAll(func(f *flag.Flag) {
		name := environmentVariable(program, f.Name)
		if value, ok := os.LookupEnv(name); ok && f.Name != versionFlag && !given[f.Name] && err == nil {
			if err = all.Set(f.Name, value); err != nil {
				err = fmt.Errorf("invalid value %q in $%s: %w", value, name, err)
			}
		}
	})
	return err
}

// columns is how wide help is.
const columns = 100

func printHelp(w io.Writer, program string, sets []*flag.FlagSet) {
	fmt.Fprintf(w, "Usage: %s [flags]\n\nEvery flag can be given with one dash or two, or by an environment variable:\n%s for --logging-format. The command line takes precedence.\n", program, environmentVariable(program, "logging-format"))
	for _, set := range sets {
		group := pflag.NewFlagSet("", pflag.ContinueOnError)
		group.AddGoFlagSet(set)
		if group.HasFlags() {
			fmt.Fprintf(w, "\n%s:\n\n%s", set.Name(), group.FlagUsagesWrapped(columns))
		}
	}
}

// environmentVariable returns the name of the variable that a flag of a program is read
// from.
func environmentVariable(program, flag string) string {
	return strings.ToUpper(strings.ReplaceAll(program+"_"+flag, "-", "_"))
}

// Cluster says which cluster to connect to, and as whom. What is left empty is found as kubectl
// finds it. The exception is a process in a Pod: if all is empty, it uses the Pod's service
// account.
type Cluster struct {
	Kubeconfig string // a file; $KUBECONFIG by default
	Context    string // in the file; its current one by default
}

// IsOfPod reports whether this process connects as the service account of its own Pod.
func (c Cluster) IsOfPod() bool {
	return c == Cluster{} && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == ""
}

// Config returns the config for clients, which do not limit their rate of requests.
func (c Cluster) Config() (*rest.Config, error) {
	config, err := func() (*rest.Config, error) {
		if c.IsOfPod() {
			return rest.InClusterConfig()
		}
		return c.loader().ClientConfig()
	}()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("no cluster to connect to: set -kubeconfig or $KUBECONFIG, or run in a Pod")
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("the kubeconfig %q is missing or names no cluster", c.file())
	}
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %q cannot be used: %w", c.file(), err)
	}
	config.QPS = -1 // zero would be client-go's default of 5
	return config, nil
}

// Names returns the names of the context, of its cluster and of its account, for the log.
func (c Cluster) Names() (context, cluster, account string) {
	if c.IsOfPod() {
		return "", "the Pod's", "the Pod's"
	}
	raw, err := c.loader().RawConfig()
	if err != nil {
		return "", "", "" // Config says what is wrong
	}
	context = cmp.Or(c.Context, raw.CurrentContext)
	if found := raw.Contexts[context]; found != nil {
		cluster, account = found.Cluster, found.AuthInfo
	}
	return context, cluster, account
}

func (c Cluster) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
}

// file returns the file that the config comes from, for an error.
func (c Cluster) file() string {
	return cmp.Or(c.Kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar), clientcmd.RecommendedHomeFile)
}

// Version returns the version that the linker has set, or else the one that the Go
// toolchain has recorded.
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

// VersionLine returns the version of a program on one line.
func VersionLine(program string) string {
	v := Version()
	return fmt.Sprintf("%s %s, commit %s, %s, %s", program, v.GitVersion, v.GitCommit, v.GoVersion, v.Platform)
}
