package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func TestSchedulerConfig(t *testing.T) {
	for _, test := range []struct{ name, given, want string }{
		{"none", "", "{kubeconfig: DIR/config/kube-scheduler.kubeconfig}"},
		{"nothing", "null", "{kubeconfig: DIR/config/kube-scheduler.kubeconfig}"},
		{"of clients", "clientConnection: {qps: 500}", "{kubeconfig: DIR/config/kube-scheduler.kubeconfig, qps: 500}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Cluster{dir: t.TempDir(), options: Options{SchedulerConfig: test.given}}
			got, err := c.schedulerConfig()
			if err != nil {
				t.Fatal(err)
			}
			want := `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, leaderElection: {leaderElect: false}, clientConnection: ` + strings.ReplaceAll(test.want, "DIR", c.dir) + `}`
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
		c := &Cluster{dir: t.TempDir(), options: Options{SchedulerConfig: wrong}}
		if _, err := c.schedulerConfig(); err == nil {
			t.Errorf("%q is no configuration, and there is no error", wrong)
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
	if want := "waiting for the moon: out of time\ntoo cloudy"; err == nil || err.Error() != want || !errors.Is(err, reason) {
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

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	if _, err := makeDir(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(dir); err == nil || !strings.Contains(err.Error(), "is another cluster running in "+dir) {
		t.Errorf("a directory that is in use: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, pidFile)); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "etcd", "data")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(dir); err != nil {
		t.Errorf("the directory of an earlier cluster: %v", err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("files of an earlier cluster are left")
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(other); err == nil || !strings.Contains(err.Error(), "not a cluster's directory") {
		t.Errorf("a directory with other files: %v", err)
	}
}
