package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// formerLease is the Lease of earlier versions.
const formerLease = "icecream-controller"

// An installation of the time when the chart was called icecream-controller is upgraded
// by exactly the commands of CHANGELOG.md. Icecreams and their Deployments stay
// what they are, and the old version, which is stopped first, never leads beside the new one.
func TestUpgradeFromFormerNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string // of the section
		install       func(t *testing.T, l *lab.Lab, chart string)
		before, after string // namespaces of the controller
		former        string // the former Lease
	}{{
		name: "With kubectl or kustomize",
		install: func(t *testing.T, l *lab.Lab, chart string) {
			kubectl(t, l, "create", "namespace", "icecream-system")
			manifests := l.Helm(t, "template", "icecream-controller", chart, "--namespace", "icecream-system", "--set", "policies.everyNamespace=true")
			if _, err := l.TryKubectl(t.Context(), manifests, "apply", "-f", "-"); err != nil {
				t.Fatal(err)
			}
		},
		before: "icecream-system", after: lab.SystemNamespace, former: formerLease,
	}, {
		name: "With Helm",
		install: func(t *testing.T, l *lab.Lab, chart string) {
			l.Helm(t, "install", "ice", chart, "--namespace", "team", "--create-namespace", "--set", "commonLabels.kept=yes")
		},
		before: "team", after: "team", former: "ice-icecream-controller",
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := NewLab(t, lab.Options{Bare: true})
			tt.install(t, l, formerChart(t, l))
			pods := []*lab.Kubelet{l.RunPods(t, tt.before, "app.kubernetes.io/name=icecream-controller"), l.RunPods(t, tt.after, "app.kubernetes.io/name=k8s-controller")}
			n := l.NewNamespace(t)
			const icecreams = 5
			for i := range icecreams {
				n.Create(t, icecreamName(i), v1alpha1.IcecreamSpec{})
			}
			n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
			uids := uidsOf(t, n)

			for _, command := range commands(t, l, "CHANGELOG.md", "#### "+tt.name) {
				switch program, args := command[0], command[1:]; program {
				case "kubectl":
					kubectl(t, l, args...)
				case "helm":
					l.Helm(t, args...)
				default:
					t.Fatalf("what is %q?", command)
				}
			}
			n.Create(t, icecreamName(icecreams), v1alpha1.IcecreamSpec{})
			n.Eventually(t, "all are Ready, and one more", func(ctx context.Context) error { return allReady(ctx, n, icecreams+1) })
			after := uidsOf(t, n)
			for name, uid := range uids {
				if after[name] != uid {
					t.Errorf("%s was %s, and is %s", name, uid, after[name])
				}
			}
			requireCreatedOnce(t, n)
			n.Eventually(t, "the old version has ended", func(context.Context) error { return noneRuns(pods[0]) })
			terms := termsOf(t, l.Requests(t), lease, "ice-"+lease, tt.former)
			if len(terms) < 2 || len(terms) > 3 { // an old standby may lead until it is stopped, too
				t.Errorf("there were %d terms, want 2 or 3: %v", len(terms), terms)
			}
			if left := kubectl(t, l, "get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,roles,rolebindings,deployments,serviceaccounts", "-A", "-o=name", "-l=app.kubernetes.io/name=icecream-controller"); left != "" {
				t.Errorf("the old version has left:\n%s", left)
			}
		})
	}
}

// formerChart is the chart under its former name, from which all other names are derived.
func formerChart(t *testing.T, l *lab.Lab) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "icecream-controller")
	if err := os.CopyFS(dir, os.DirFS(l.Path("charts/k8s-controller"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "Chart.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.Replace(string(content), "name: k8s-controller", "name: icecream-controller", 1)
	if renamed == string(content) {
		t.Fatalf("the chart has another name:\n%s", content)
	}
	if err := os.WriteFile(file, []byte(renamed), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// commands returns the commands of a section of a page, as words. Files are those of the
// repository.
func commands(t *testing.T, l *lab.Lab, page, heading string) (found [][]string) {
	t.Helper()
	content, err := os.ReadFile(l.Path(page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(content), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	for i, block := range strings.Split(section, "\n```\n") {
		if i%2 == 0 {
			continue // between two blocks
		}
		for line := range strings.Lines(block) {
			words := strings.Fields(line)
			for i, word := range words {
				if strings.HasPrefix(word, "artifacts/") {
					words[i] = l.Path(word)
				}
			}
			found = append(found, words)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no commands in %q", page, heading)
	}
	return found
}

// uidsOf returns the UIDs of all Icecreams and Deployments of the namespace.
func uidsOf(t *testing.T, n *lab.Namespace) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	icecreams, err := n.Lab.Icecreams.SamplecontrollerV1alpha1().Icecreams(n.Name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ice := range icecreams.Items {
		uids["Icecream "+ice.Name] = ice.UID
	}
	deployments, err := n.Lab.Kube.AppsV1().Deployments(n.Name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deployments.Items {
		uids["Deployment "+d.Name] = d.UID
	}
	return uids
}
