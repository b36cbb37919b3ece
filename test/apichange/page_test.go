// Package apichange follows docs/change-the-api.md, exactly as it stands there, in a clone of the
// repository, on a cluster with Icecreams and a controller of the release before.
package apichange

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/gobuild/build"
	"nicoleh.io/k8s-controller/hack/walkthrough"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	root = "../.."
	page = root + "/docs/change-the-api.md"
)

func TestMain(m *testing.M) {
	lab.Main(m, func(int) error { return nil })
}

// reader is somebody who follows the page.
type reader struct {
	*testing.T
	n       *lab.Namespace
	tree    string // the clone
	env     []string
	config  string // a kubeconfig of the controllers
	last    string // the controller of the last release
	running *lab.Controller
}

func TestPage(t *testing.T) {
	r := newReader(t)
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile("(?m)^## .*$").FindAllString(string(content), -1)
	if len(sections) < 2 {
		t.Fatalf("the sections are %q", sections)
	}
	for _, section := range sections {
		text, err := walkthrough.Section(page, section)
		if err != nil {
			t.Fatal(err)
		}
		blocks := walkthrough.Blocks(text)
		for i := 0; i < len(blocks); i++ {
			block := blocks[i]
			if block.Language != "sh" {
				if err := block.Write(r.tree); err != nil {
					t.Fatalf("%s: %v", section, err)
				}
				continue
			}
			output := r.shell(section, block.Text)
			if i+1 < len(blocks) && blocks[i+1].Language == "text" {
				i++
				if err := walkthrough.Prints(output, blocks[i].Text); err != nil {
					t.Fatalf("%s: %s\n%v", section, block.Text, err)
				}
			}
			if strings.Contains(block.Text, "go build -o controller .\n") {
				r.rollOut()
			}
		}
		walkthrough.Run(t, r.tree, "git", "add", "--all")
		walkthrough.Run(t, r.tree, "git", "-c", "user.name=reader", "-c", "user.email=reader@example.com", "commit", "--quiet", "--message="+section)
		r.shell(section, "go build ./...")
	}
	walkthrough.Format(t, r.tree, "pkg", "main.go", "controller.go")
}

// newReader clones the repository, and starts the controller on a cluster with some Icecreams.
func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{T: t, tree: t.TempDir(), last: filepath.Join(t.TempDir(), "controller")}
	flags, err := build.Env(root)
	if err != nil {
		t.Fatal(err)
	}
	walkthrough.Run(t, root, "git", "clone", "--quiet", ".", r.tree)
	r.env = append(os.Environ(), flags...)
	r.shell("the release before", "go build -o "+r.last+" .")

	l := lab.New(t, lab.Options{Binary: r.last})
	r.n = l.NewNamespace(t)
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
	r.env = append(r.env, "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir(),
		"PATH="+filepath.Dir(l.Kubectl())+string(filepath.ListSeparator)+os.Getenv("PATH"))

	r.start(r.last)
	r.n.Create(t, "vanilla", v1alpha1.IcecreamSpec{Image: "registry.example/vanilla:1"})
	r.n.Create(t, "sundae", v1alpha1.IcecreamSpec{Image: "registry.example/sundae:latest"})
	r.n.Create(t, "mint", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), DeploymentName: "cup"})
	for _, name := range []string{"vanilla", "sundae", "mint"} {
		r.n.EventuallyReady(t, name)
	}
	return r
}

// shell runs what stands in a block, and returns what it prints.
func (r *reader) shell(section, text string) string {
	r.Helper()
	command := exec.CommandContext(r.Context(), "bash", "-euo", "pipefail", "-c", text)
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
	r.replace(built)
	r.replace(r.last)
	r.replace(built)
	r.last = built
}

// replace stops the controller and starts another one. Nothing may come of it but a patch of the owner
// of each Deployment, if its version is another one.
func (r *reader) replace(binary string) {
	r.Helper()
	r.running.Stop(r)
	was, mark := r.snapshot(), time.Now()
	r.start(binary)
	// Once it has synced one that is new, it has synced those that were there.
	r.n.Create(r, "probe", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](0)})
	r.n.EventuallyReady(r, "probe")
	is := r.snapshot()
	requests := r.n.Requests(r).By(r.running.User).Since(mark).Writes()
	for name, was := range was.owners {
		want := 0
		if is.owners[name] != was {
			want = 1
		}
		if writes := requests.Resource("deployments").ByObject()[name]; writes != want {
			r.Errorf("%d writes of Deployment %q, whose owner was of %s and is of %s", writes, name, was, is.owners[name])
		}
	}
	wrote := requests.Resource("icecreams/status").ByObject()
	delete(wrote, "probe")
	if len(wrote) > 0 {
		r.Errorf("statuses were written without need: %v", wrote)
	}
	r.n.Kubectl(r, "delete", "icecream", "probe", "--wait")
	r.n.Eventually(r, "the Deployment of the probe is gone", func(ctx context.Context) error {
		if _, err := r.n.Deployments().Get(ctx, "probe", metav1.GetOptions{}); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	delete(is.icecreams, "probe")
	if diff := cmp.Diff(was.icecreams, is.icecreams); diff != "" {
		r.Errorf("Icecreams, by UID and generation (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(was.pods, is.pods); diff != "" {
		r.Errorf("Pods by UID (-before +after):\n%s", diff)
	}
}

// start starts a controller with the permissions of the release.
func (r *reader) start(binary string) {
	r.Helper()
	r.running = r.n.Lab.NewProgram(binary, "-leader-elect=false", "-bind-address=", "-kubeconfig="+r.config)
	r.running.User = "system:serviceaccount:" + lab.SystemNamespace + ":" + lab.ServiceAccount
	r.n.Controller = r.running
	r.running.StartForTest(r)
}

// snapshot is what must not change when a controller is replaced.
type snapshot struct {
	icecreams map[string]string // UID and generation
	pods      map[string]string // UID and restarts
	owners    map[string]string // the versions by which Deployments name their owners
}

func (r *reader) snapshot() snapshot {
	r.Helper()
	s := snapshot{map[string]string{}, map[string]string{}, map[string]string{}}
	icecreams, err := r.n.Icecreams().List(r.Context(), metav1.ListOptions{}) // a client of the release before
	if err != nil {
		r.Fatal(err)
	}
	for _, ice := range icecreams.Items {
		s.icecreams[ice.Name] = fmt.Sprintf("%s, generation %d", ice.UID, ice.Generation)
	}
	for _, pod := range r.n.LivePods(r) {
		s.pods[pod.Name] = string(pod.UID)
	}
	for _, d := range r.n.AllDeployments(r) {
		s.owners[d.Name] = d.OwnerReferences[0].APIVersion
	}
	return s
}
