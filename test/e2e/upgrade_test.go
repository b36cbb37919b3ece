package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// formerLease is the Lease of earlier versions.
const formerLease = "icecream-controller"

// asBefore has a controller be elected as versions were that knew the former Lease only.
var asBefore = append([]string{"-leader-elect-resource-name=" + formerLease}, elect...)

// A rolling update from the old version to the new one, the way back, and forward again,
// while users are at work: at no time do two processes lead. Then somebody deletes the
// former Lease, and nobody creates it again.
func TestOldAndNewVersionNeverLeadTogether(t *testing.T) {
	t.Parallel()
	const icecreams, edits = 20, 4
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	n := NewQuietNamespace(t)
	leader := n.StartController(t, asBefore...)
	n.Eventually(t, "the old version leads", func(context.Context) error { return leadsBy(t, n, leader, formerLease) })
	if _, err := n.Lab.Kube.CoordinationV1().Leases(n.Name).Get(t.Context(), lease, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("there is a Lease %s already: %v", lease, err)
	}

	wait := startUsers(t, n, icecreams, edits, seed)
	versions := []string{lease, lease, formerLease, lease}
	for _, version := range versions {
		flags := elect
		if version == formerLease {
			flags = asBefore
		}
		surge := n.StartController(t, flags...)
		eventuallyReadyToLead(t, n, surge)
		leader.Stop(t)
		n.Eventually(t, surge.Agent+" leads", func(context.Context) error { return leadsBy(t, n, surge, version) })
		leader = surge
	}
	final := wait()
	if t.Failed() {
		return
	}
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	requireAsSpecified(t, n, final)
	requireCreatedOnce(t, n)
	if terms := termsOfLeases(t, n.Requests(t), lease, formerLease); len(terms) != len(versions)+1 {
		t.Errorf("there were %d terms, want %d: %v", len(terms), len(versions)+1, terms)
	}

	standby := n.StartController(t, elect...)
	eventuallyReadyToLead(t, n, standby)
	if err := n.Lab.Kube.CoordinationV1().Leases(n.Name).Delete(t.Context(), formerLease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if last := leader.Fails(t); !strings.Contains(last, "leadership lost: somebody has deleted lease "+n.Name+"/"+formerLease) {
		t.Errorf("its last words are %q", last)
	}
	eventuallyLeads(t, n, standby)
	leader.Start(t)
	eventuallyReadyToLead(t, n, leader)
	standby.Stop(t)
	eventuallyLeads(t, n, leader)
	n.Controller = leader
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	ofControllers := n.Requests(t).Where(func(e *cluster.AuditEvent) bool { return strings.HasPrefix(e.UserAgent, "controller-") })
	if terms := termsOfLeases(t, ofControllers, lease, formerLease); len(terms) != len(versions)+3 {
		t.Errorf("there were %d terms, want %d: %v", len(terms), len(versions)+3, terms)
	}
	if found, err := n.Lab.Kube.CoordinationV1().Leases(n.Name).Get(t.Context(), formerLease, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the former Lease has been created again (%v): %v", err, found)
	}
}

// An installation of the time when the chart was called icecream-controller is upgraded
// by exactly the commands of docs/upgrading.md. Icecreams and their Deployments stay
// what they are, and the old and the new version never lead at the same time.
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

			for _, command := range commands(t, l, "docs/upgrading.md", "### "+tt.name) {
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
			terms := termsOfLeases(t, l.Requests(t), lease, "ice-"+lease, tt.former)
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
