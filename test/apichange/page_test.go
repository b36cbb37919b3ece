// Package apichange follows docs/change-the-api.md, word for word, in a clone of the repository, on a cluster
// with Icecreams and the controller of the previous release. testdata/steps.md has more steps for each section.
package apichange

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/walkthrough"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/test/lab"
)

const root = "../.."

func TestMain(m *testing.M) {
	lab.Main(m, func(int) error { return nil })
}

// reader is somebody who follows the page.
type reader struct {
	*testing.T
	n       *lab.Namespace
	tree    string // the clone
	env     []string
	config  string            // a kubeconfig of the controllers
	before  string            // the controller of the release before the last one
	last    string            // the controller of the last release
	owner   map[string]string // the version by which each of them names the owner of a Deployment
	running *lab.Controller
}

func TestPage(t *testing.T) {
	r := newReader(t)
	page, more := filepath.Join(r.tree, "docs", "change-the-api.md"), filepath.Join("testdata", "steps.md")
	sections := headings(t, page)
	for _, section := range headings(t, more) {
		if !slices.Contains(sections, section) {
			t.Fatalf("%s has %q, and the page has not", more, section)
		}
	}
	for _, section := range sections {
		r.walk(page, section)
		if slices.Contains(headings(t, more), section) {
			r.walk(more, section)
		}
		walkthrough.Run(t, r.tree, "git", "add", "--all")
		walkthrough.Run(t, r.tree, "git", "-c", "user.name=reader", "-c", "user.email=reader@example.com",
			"commit", "--quiet", "--allow-empty", "--message="+section)
	}
	r.shell("the tree at last", "hack/verify-links.sh\ngo vet -unreachable ./...\ngo -C test vet -unreachable ./...")
	walkthrough.Format(t, r.tree, "pkg", "main.go", "controller.go")
}

// headings returns the headings of the sections of a Markdown file.
func headings(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^## .*$").FindAllString(string(content), -1)
	if len(found) < 2 {
		t.Fatalf("the sections of %s are %q", file, found)
	}
	return found
}

// walk does what a section of a Markdown file says.
func (r *reader) walk(file, section string) {
	r.Helper()
	text, err := walkthrough.Section(file, section)
	if err != nil {
		r.Fatal(err)
	}
	blocks := walkthrough.Blocks(text)
	for i := 0; i < len(blocks); i++ {
		block := blocks[i]
		if block.Language != "sh" {
			if err := block.Write(r.tree); err != nil {
				r.Fatalf("%s: %v", section, err)
			}
			continue
		}
		output := r.follow(section, block.Text)
		if i+1 < len(blocks) && blocks[i+1].Language == "text" {
			i++
			if err := walkthrough.Prints(output, blocks[i].Text); err != nil {
				r.Fatalf("%s: %s\n%v", section, block.Text, err)
			}
		}
	}
}

// newReader clones the repository, and starts the controller on a cluster with some Icecreams.
func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{T: t, tree: t.TempDir(), last: filepath.Join(t.TempDir(), "controller"), owner: map[string]string{}}
	walkthrough.Run(t, root, "git", "clone", "--quiet", ".", r.tree)
	r.shell("the release before", "go build -o "+r.last+" .")

	l := lab.New(t, lab.Options{Binary: r.last})
	r.n = l.NewNamespace(t)
	var err error
	if r.config, err = l.ServiceAccountKubeconfig(t.Context(), lab.SystemNamespace, lab.ServiceAccount); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(l.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, context := range config.Contexts {
		context.Namespace = r.n.Name
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir(),
		"PATH="+filepath.Dir(l.Kubectl())+string(filepath.ListSeparator)+os.Getenv("PATH"))

	r.start(r.last)
	r.n.Create(t, "vanilla", v1alpha1.IcecreamSpec{Image: "registry.example/vanilla:1"})
	r.n.Create(t, "sundae", v1alpha1.IcecreamSpec{Image: "registry.example/sundae:latest"})
	r.n.Create(t, "mint", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), DeploymentName: "cup"})
	for _, name := range []string{"vanilla", "sundae", "mint"} {
		r.n.EventuallyReady(t, name)
	}
	r.n.Kubectl(t, "create", "deployment", "others", "--image=registry.example/others", "--replicas=0")
	return r
}

// deletes finds the Icecream that a block deletes.
var deletes = regexp.MustCompile(`(?m)^kubectl delete icecream (\w+)$`)

// follow runs a block, and what it gives reason to. A new version touches nothing.
func (r *reader) follow(section, text string) string {
	r.Helper()
	was := r.snapshot()
	output := r.shell(section, text)
	if strings.HasPrefix(section, "## A version") {
		is := r.snapshot()
		if deleted := deletes.FindStringSubmatch(text); deleted != nil {
			was = was.without(deleted[1])
		}
		r.requireSame(was, is)
		if writes := r.n.Requests(r).By(r.running.User).Since(was.at).Writes(); len(writes.Resource("deployments"))+len(writes.Resource("icecreams/status")) > 0 {
			r.Errorf("the controller wrote %s", writes)
		}
		for name, version := range is.resourceVersions {
			if strings.Contains(text, "hack/migrate-storage.sh") && version == was.resourceVersions[name] {
				r.Errorf("Icecream %q was not written by the migration", name)
			}
		}
	}
	switch {
	case strings.Contains(text, "go build -o controller .\n"):
		r.rollOut()
	case strings.Contains(text, "hack/migrate-storage.sh"):
		r.replace(r.before)
		r.replace(r.last)
	}
	return output
}

// shell runs what stands in a block, and returns what it prints.
func (r *reader) shell(section, text string) string {
	r.Helper()
	command := exec.CommandContext(r.Context(), "bash", "-euo", "pipefail", "-c", "set -a; . hack/build.env; set +a\n"+text)
	command.Dir, command.Env = r.tree, r.env
	began := time.Now()
	output, err := command.CombinedOutput()
	r.Logf("%s, %s: %s%s", section, time.Since(began).Round(time.Second), text, lab.Clip(string(output)))
	if err != nil {
		r.Fatalf("%s: %v", section, err)
	}
	return string(output)
}

// rollOut replaces the controller by the one that was built, then by the one of the release before, and
// back.
func (r *reader) rollOut() {
	r.Helper()
	built := filepath.Join(r.TempDir(), "controller")
	if err := os.Rename(filepath.Join(r.tree, "controller"), built); err != nil {
		r.Fatal(err)
	}
	r.before, r.last = r.last, built
	r.replace(r.last)
	r.replace(r.before)
	r.replace(r.last)
}

// replace stops the controller and starts another one. Nothing may come of it but one write of each
// Deployment, if its owner's version or what is asked for is another one. That raises its generation, so
// its Icecream is not Ready until kube-controller-manager has seen it, which is two statuses.
func (r *reader) replace(binary string) {
	r.Helper()
	r.running.Stop(r)
	was := r.snapshot()
	r.start(binary)
	r.probe(was.versions)
	is := r.snapshot()
	r.requireSame(was, is)
	if r.owner[binary] == "" {
		r.owner[binary] = is.owners["vanilla"]
	}
	writes, statusesFor := r.n.Requests(r).By(r.running.User).Since(was.at).Writes(), 0
	for name, owner := range is.owners {
		want := 0
		if was.owners[name] != owner || was.asked[name] != is.asked[name] {
			want, statusesFor = 1, 2
		}
		if got := writes.Resource("deployments").ByObject()[name]; got != want || owner != r.owner[binary] {
			r.Errorf("%d writes of Deployment %q, whose owner was of %s, is of %s, and should be of %s", got, name, was.owners[name], owner, r.owner[binary])
		}
	}
	statuses := writes.Resource("icecreams/status").ByObject()
	delete(statuses, "probe")
	for name, written := range statuses {
		if written > statusesFor {
			r.Errorf("%d statuses of Icecream %q were written, of %d that are needed", written, name, statusesFor)
		}
	}
}

// probe creates an Icecream by the newest version that is served, and updates and deletes it by a client
// of the first release. Once the controller has synced it, it has synced those that were there.
func (r *reader) probe(versions []string) {
	r.Helper()
	r.n.Apply(r, "apiVersion: "+v1alpha1.GroupName+"/"+versions[len(versions)-1]+"\nkind: Icecream\nmetadata: {name: probe}\nspec: {replicas: 0}\n")
	probe := r.n.EventuallyReady(r, "probe")
	probe.Labels = map[string]string{"flavor": "plain"}
	if _, err := r.n.Icecreams().Update(r.Context(), probe, metav1.UpdateOptions{}); err != nil {
		r.Error(err)
	}
	if err := r.n.Icecreams().Delete(r.Context(), "probe", metav1.DeleteOptions{}); err != nil {
		r.Error(err)
	}
	r.n.Eventually(r, "the Deployment of the probe is gone", func(ctx context.Context) error {
		if _, err := r.n.Deployments().Get(ctx, "probe", metav1.GetOptions{}); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// start starts a controller with the permissions of the release.
func (r *reader) start(binary string) {
	r.Helper()
	r.running = r.n.Lab.NewProgram(binary, "-leader-elect=false", "-bind-address=", "-kubeconfig="+r.config)
	r.running.User = "system:serviceaccount:" + lab.SystemNamespace + ":" + lab.ServiceAccount
	r.n.Controller = r.running
	r.running.StartForTest(r)
}

// snapshot is what must not change when a controller is replaced, and what is compared.
type snapshot struct {
	at               time.Time
	versions         []string          // that are served
	icecreams        map[string]string // UID, generation, spec and status
	resourceVersions map[string]string // of Icecreams
	pods             map[string]string // UIDs
	owners           map[string]string // the versions by which Deployments name their owners
	asked            map[string]string // the digests of what was asked for, of Deployments
}

// transition is the time of a condition.
var transition = regexp.MustCompile(`lastTransitionTime:\S+`)

// snapshot reads the Icecreams by each version that is served.
func (r *reader) snapshot() snapshot {
	r.Helper()
	s := snapshot{time.Now(), r.served(), map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}}
	for i, version := range s.versions {
		icecreams, err := r.n.Lab.Dynamic.Resource(v1alpha1.Resource("icecreams").WithVersion(version)).Namespace(r.n.Name).List(r.Context(), metav1.ListOptions{})
		if err != nil {
			r.Fatal(err)
		}
		found := map[string]string{}
		for _, ice := range icecreams.Items {
			status := transition.ReplaceAllString(fmt.Sprint(ice.Object["status"]), "")
			found[ice.GetName()] = fmt.Sprintf("%s, generation %d: %v, %s", ice.GetUID(), ice.GetGeneration(), ice.Object["spec"], status)
			s.resourceVersions[ice.GetName()] = ice.GetResourceVersion()
		}
		if i > 0 {
			r.same("Icecreams by "+version, s.icecreams, found)
		}
		s.icecreams = found
	}
	for _, pod := range r.n.LivePods(r) {
		s.pods[pod.Name] = string(pod.UID)
	}
	for _, d := range r.n.AllDeployments(r) {
		if len(d.OwnerReferences) > 0 {
			s.owners[d.Name], s.asked[d.Name] = d.OwnerReferences[0].APIVersion, d.Annotations[patch.AnnotationAsked]
		}
	}
	return s
}

// served returns the versions of Icecreams that are served.
func (r *reader) served() (versions []string) {
	r.Helper()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	definition, err := r.n.Lab.Dynamic.Resource(definitions).Get(r.Context(), "icecreams."+v1alpha1.GroupName, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	all, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		r.Fatal(err)
	}
	for _, version := range all {
		if version := version.(map[string]any); version["served"] == true {
			versions = append(versions, version["name"].(string))
		}
	}
	return versions
}

// without returns the snapshot without an Icecream whose Deployment has the same name.
func (s snapshot) without(deleted string) snapshot {
	delete(s.icecreams, deleted)
	for pod := range s.pods {
		if strings.HasPrefix(pod, deleted+"-") {
			delete(s.pods, pod)
		}
	}
	return s
}

// requireSame fails the test if an Icecream or a Pod is another one.
func (r *reader) requireSame(was, is snapshot) {
	r.Helper()
	r.same("Icecreams", was.icecreams, is.icecreams)
	r.same("Pods", was.pods, is.pods)
}

func (r *reader) same(what string, was, is map[string]string) {
	r.Helper()
	if diff := cmp.Diff(was, is); diff != "" {
		r.Errorf("%s (-before +after):\n%s", what, diff)
	}
}
