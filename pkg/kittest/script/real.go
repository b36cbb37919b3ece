package script

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// Reality is where stories are played on a real control plane, on which the controller runs already.
type Reality struct {
	Config    *rest.Config
	Namespace string
	// Resources are what the stories write and show, by the name of the kind.
	Resources map[string]schema.GroupVersionResource
	Show      map[string]string
	Timeout   time.Duration // until what there is must be what it should be in the end
}

// Also returns the stories in a directory that begin with also.
func Also(t *testing.T, dir string) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				if line == "also" {
					paths = append(paths, path)
				}
				break
			}
		}
	}
	return paths
}

// Play plays a story, in real time.
func (r Reality) Play(t *testing.T, path string) {
	t.Helper()
	client, err := dynamic.NewForConfig(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	s := &realStory{Reality: r, client: client, path: path}
	last := ""
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		if d.Cmd == "wait" {
			last = d.Expected
		}
		s.do(t, d)
		return d.Expected
	})
	if got, err := s.await(t, last, r.Timeout); err != nil {
		t.Errorf("in the end there is\n%s\nwant\n%s", got, last)
	}
}

// How often it is looked, and how much longer than a story says a step can take.
const (
	interval = 200 * time.Millisecond
	patience = 20 * time.Second
)

type realStory struct {
	Reality
	path   string
	client dynamic.Interface
}

func (s *realStory) do(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	arg := arguments{t, d}
	switch d.Cmd {
	case "also", "start", "count", "at-most", "lost", "says", "get":
	case "begin":
		begin(t, s.path, arg, func(d *datadriven.TestData) { s.do(t, d) })
	case "pass":
		time.Sleep(arg.duration())
	case "wait": // This machine may be slow.
		_, _ = s.await(t, d.Expected, arg.duration()+patience)
	case "apply":
		for _, obj := range documents(t, d) {
			if err := s.apply(t, obj); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
	case "edit":
		s.each(t, arg.key(0), func(client dynamic.ResourceInterface, name string) error {
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				obj, err := client.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				for _, field := range d.CmdArgs[1:] {
					setField(t, d, obj.Object, field)
				}
				_, err = client.Update(t.Context(), obj, metav1.UpdateOptions{FieldManager: "story"})
				return err
			})
		})
	case "delete":
		policy := propagation(arg)
		s.each(t, arg.key(0), func(client dynamic.ResourceInterface, name string) error {
			if err := client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				return err
			}
			return s.awaitGone(t, client, name)
		})
	default:
		d.Fatalf(t, "%q is for the model alone", d.Cmd)
	}
}

// apply creates an object, or merges it into the one that there is.
func (s *realStory) apply(t *testing.T, obj *unstructured.Unstructured) error {
	client := s.of(t, obj.GetKind())
	body, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	_, err = client.Patch(t.Context(), obj.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "story"})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "story"})
	}
	return err
}

// awaitGone waits, as kubectl delete does, until an object is gone, or another one has its name.
func (s *realStory) awaitGone(t *testing.T, client dynamic.ResourceInterface, name string) error {
	return wait.PollUntilContextTimeout(t.Context(), interval, s.Timeout, true, func(ctx context.Context) (bool, error) {
		obj, err := client.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && obj.GetDeletionTimestamp() == nil, nil
	})
}

func (s *realStory) of(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	for name, resource := range s.Resources {
		if strings.EqualFold(name, kind) {
			return s.client.Resource(resource).Namespace(s.Namespace)
		}
	}
	t.Fatalf("there is no resource of kind %q", kind)
	return nil
}

// each does something with each object that KIND/NAME is about.
func (s *realStory) each(t *testing.T, name string, do func(client dynamic.ResourceInterface, name string) error) {
	t.Helper()
	kind, _, _ := strings.Cut(name, "/")
	client := s.of(t, kind)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if !isNamed(t, &list.Items[i], name) {
			continue
		}
		if err := do(client, list.Items[i].GetName()); err != nil {
			t.Fatal(err)
		}
	}
}

// await waits until what there is is what the story shows, as to objects. It returns what there is last.
func (s *realStory) await(t *testing.T, expected string, timeout time.Duration) (got string, err error) {
	t.Helper()
	want := slices.DeleteFunc(strings.Split(strings.TrimSpace(expected), "\n"), func(line string) bool { return strings.HasPrefix(line, eventPrefix) })
	err = wait.PollUntilContextTimeout(t.Context(), interval, timeout, true, func(ctx context.Context) (bool, error) {
		var objects []*unstructured.Unstructured
		for kind := range s.Show {
			list, err := s.of(t, kind).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, nil //nolint:nilerr // It is tried again until the time is over.
			}
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
		}
		lines := shown(t, s.Show, objects)
		got = strings.Join(lines, "\n")
		return slices.Equal(lines, want), nil
	})
	return got, err
}
