package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		name      string
		given     Options
		wantNodes int
		wantErr   bool
	}{
		{name: "the zero value", wantNodes: DefaultNodes},
		{name: "some nodes", given: Options{Nodes: 7}, wantNodes: 7},
		{name: "no nodes", given: Options{Nodes: -1}},
		{name: "arguments of an unknown component", given: Options{Nodes: 1, ExtraArgs: map[Component][]string{"kubelet": nil}}, wantNodes: 1, wantErr: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.given.withDefaults()
			if got.Nodes != test.wantNodes || got.Log == nil || (err != nil) != test.wantErr {
				t.Errorf("got %+v, %v; want %d nodes, error %v", got, err, test.wantNodes, test.wantErr)
			}
		})
	}
}

func TestArgumentsOfTheCallerComeLast(t *testing.T) {
	for _, component := range Components() {
		c := &Cluster{
			dir:     &workspace{path: t.TempDir()},
			options: Options{FeatureGates: "A=true", ExtraArgs: map[Component][]string{component: {"--mine"}}},
		}
		args := c.args(component)
		if args[len(args)-1] != "--mine" {
			t.Errorf("%s: %v", component, args)
		}
		isKubernetes := strings.HasPrefix(string(component), "kube-")
		if slices.Contains(args, "--feature-gates=A=true") != isKubernetes {
			t.Errorf("%s: feature gates in %v, want %v", component, args, isKubernetes)
		}
	}
}

func TestSchedulerConfig(t *testing.T) {
	for _, test := range []struct{ name, given, want string }{
		{"none", "", "{kubeconfig: DIR/config/kube-scheduler.kubeconfig}"},
		{"nothing", "null", "{kubeconfig: DIR/config/kube-scheduler.kubeconfig}"},
		{"of clients", "clientConnection: {qps: 500}", "{kubeconfig: DIR/config/kube-scheduler.kubeconfig, qps: 500}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Cluster{dir: &workspace{path: t.TempDir()}, options: Options{SchedulerConfig: test.given}}
			got, err := c.schedulerConfig()
			if err != nil {
				t.Fatal(err)
			}
			want := `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, leaderElection: {leaderElect: false}, clientConnection: ` + strings.ReplaceAll(test.want, "DIR", c.dir.path) + `}`
			var gotValue, wantValue any
			if err := errors.Join(yaml.Unmarshal(got, &gotValue), yaml.Unmarshal([]byte(want), &wantValue)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantValue, gotValue); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, wrong := range []string{"profiles: [", "clientConnection: fast"} {
		c := &Cluster{dir: &workspace{path: t.TempDir()}, options: Options{SchedulerConfig: wrong}}
		if _, err := c.schedulerConfig(); err == nil {
			t.Errorf("%q is no configuration, and there is no error", wrong)
		}
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := freePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if got := len(slices.Compact(ports)); got != 50 {
		t.Errorf("%d different ports, want 50", got)
	}
	for _, port := range ports {
		if port < firstPort || port > lastPort {
			t.Errorf("port %d is out of range", port)
		}
	}
}

func TestStagesAreDocumentsWithNames(t *testing.T) {
	var names []string
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(stages), len(stages))
	for {
		var stage struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Steps []struct {
					Delete bool
					Patch  struct{ Template string }
				}
			}
		}
		err := decoder.Decode(&stage)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if steps := stage.Spec.Steps; stage.Kind != "Stage" || len(steps) != 1 || steps[0].Delete == (steps[0].Patch.Template != "") {
			t.Errorf("%s %s has steps %+v", stage.Kind, stage.Metadata.Name, steps)
		}
		names = append(names, stage.Metadata.Name)
	}
	want := []string{
		"node-status", "pod-start", "pod-image-pull-back-off", "pod-crash-loop-back-off",
		"pod-crash-again", "pod-complete", "pod-delete",
	}
	if !slices.Equal(names, want) {
		t.Errorf("stages %v, want %v", names, want)
	}
}

func TestKubeconfigIsSelfContained(t *testing.T) {
	path := t.TempDir() + "/kubeconfig"
	if err := writeKubeconfig(path, "https://127.0.0.1:1", []byte("authority"), &clientcmdapi.AuthInfo{Token: "secret"}); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1" || string(config.CAData) != "authority" || config.Insecure || config.BearerToken != "secret" {
		t.Errorf("got %v", config)
	}
}

func TestAwaitSaysWhatItWaitedForAndWhyInVain(t *testing.T) {
	reason := errors.New("out of time")
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := 0
	err := await(ctx, "the moon", func(context.Context) (bool, error) {
		if asked++; asked == 3 {
			cancel(reason)
		}
		return false, errors.New("too cloudy")
	})
	if want := "waiting for the moon: out of time (too cloudy)"; err == nil || err.Error() != want || !errors.Is(err, reason) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestANodeHasAnAddressOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for n := range 5000 {
		ip := nodeIP(n)
		if net.ParseIP(ip) == nil || seen[ip] {
			t.Fatalf("node %d has address %s", n, ip)
		}
		seen[ip] = true
	}
}
