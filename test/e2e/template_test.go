package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/test/lab"
)

// template returns the spec.template with a part of testdata/templates.yaml.
func template(t *testing.T, part map[string]any) *runtime.RawExtension {
	t.Helper()
	if part == nil {
		return nil
	}
	spec := maps.Clone(part)
	if ours, ok := spec["icecream"].(map[string]any); ok {
		ours = maps.Clone(ours)
		ours["name"] = "icecream"
		delete(spec, "icecream")
		spec["containers"] = []any{ours}
	}
	asJSON, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: asJSON}
}

// writer writes Deployments as the controller does, one request after the other.
type writer struct {
	*testing.T
	n *lab.Namespace
}

// icecreamOf returns an Icecream that runs no Pod. It exists, or the garbage collector would delete its Deployment.
func (w *writer) icecreamOf(name string, template *runtime.RawExtension) *v1alpha1.Icecream {
	w.Helper()
	spec := v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](0), Image: "registry.example/vanilla:1"}
	ice, err := w.n.Icecreams().Create(w.Context(), &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		ice, err = w.n.Icecreams().Get(w.Context(), name, metav1.GetOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	ice.Spec.Template = template
	return ice
}

// get returns the Deployment of an Icecream; nil if there is none.
func (w *writer) get(ice *v1alpha1.Icecream) *appsv1.Deployment {
	w.Helper()
	d, err := w.n.Deployments().Get(w.Context(), ice.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return d
}

// decide returns what is decided from what a new process keeps of the Deployment.
func (w *writer) decide(ice *v1alpha1.Icecream, live *appsv1.Deployment) icecream.Plan {
	w.Helper()
	o := icecream.Observed{Now: time.Now(), Icecream: ice}
	if live != nil {
		kept, err := icecream.StripDeployment(live)
		if err != nil {
			w.Fatal(err)
		}
		o.Live = kept.(*appsv1.Deployment)
	}
	return icecream.Decide(o)
}

// sync writes what is decided, and requires that then nothing is.
func (w *writer) sync(ice *v1alpha1.Icecream) (*appsv1.Deployment, error) {
	w.Helper()
	plan := w.decide(ice, w.get(ice))
	if plan.Held.Message != "" {
		return nil, errors.New(plan.Held.Message)
	}
	if plan.Apply != nil {
		options := plan.Apply.Options(icecream.FieldManager)
		if _, err := w.n.Deployments().Patch(w.Context(), ice.Name, plan.Apply.Type, plan.Apply.Body, options); err != nil {
			return nil, err
		}
	}
	live := w.get(ice)
	if again := w.decide(ice, live); again.IsOpen() {
		w.Errorf("it is written again: %s", again.Apply.Body)
	}
	return live, nil
}

// remove deletes the Deployment of an Icecream, if there is one.
func (w *writer) remove(ice *v1alpha1.Icecream) {
	w.Helper()
	if err := w.n.Deployments().Delete(w.Context(), ice.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// requireEqual requires that an updated Deployment is like one that is created from the same template.
func (w *writer) requireEqual(updated *appsv1.Deployment, template *runtime.RawExtension) {
	w.Helper()
	fresh := w.icecreamOf("fresh", template)
	created, err := w.sync(fresh)
	if err != nil {
		w.Fatal(err)
	}
	w.remove(fresh)
	asUpdated := func(labels map[string]string) {
		for key, value := range labels {
			if value == fresh.Name {
				labels[key] = updated.Name
			}
		}
	}
	asUpdated(created.Spec.Template.Labels)
	asUpdated(created.Spec.Selector.MatchLabels)
	if diff := cmp.Diff(created.Spec, updated.Spec); diff != "" {
		w.Errorf("the Deployment differs from a new one (-new +updated):\n%s", diff)
	}
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	return &writer{t, NewQuietNamespace(t)}
}

// A Deployment that is updated from one template to another equals one that is created from the other. Then there is
// nothing left to write, for a new process either.
func TestUpdatedEqualsCreated(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var groups map[string][]map[string]any
	if err := yaml.UnmarshalStrict(content, &groups); err != nil {
		t.Fatal(err)
	}
	for group, parts := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			w := newWriter(t)
			parts := append([]map[string]any{nil}, parts...)
			for i, from := range parts {
				for j, to := range parts {
					if i == j {
						continue
					}
					name := fmt.Sprintf("from-%d-to-%d", i, j)
					ice := w.icecreamOf(name, template(t, from))
					if _, err := w.sync(ice); err != nil {
						t.Fatalf("%v: %v", from, err)
					}
					ice.Spec.Template = template(t, to)
					updated, err := w.sync(ice)
					if err != nil {
						t.Fatalf("%v, and then %v: %v", from, to, err)
					}
					w.requireEqual(updated, ice.Spec.Template)
					if t.Failed() {
						t.Fatalf("from %v to %v", from, to)
					}
				}
			}
		})
	}
}

// A template that the API server does not take is refused with the path of the field. For what the controller refuses,
// see pkg/icecream.
func TestBrokenTemplates(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	ice := w.icecreamOf("good", nil)
	if _, err := w.sync(ice); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{spec: {initContainers: [{name: icecream, image: x}]}}`:                             `spec.template.spec.initContainers[0].name: Duplicate value: "icecream"`,
		`{spec: {containers: [{image: a}]}}`:                                                 "spec.template.spec.containers[1].name: Required value",
		`{spec: {restartPolicy: Never}}`:                                                     "spec.template.spec.restartPolicy: Unsupported value",
		`{spec: {containers: [{name: icecream, volumeMounts: [{name: v, mountPath: /v}]}]}}`: "spec.template.spec.containers[0].volumeMounts[0].name: Not found",
		`{spec: {containers: [{name: icecream, livenessProbe: {}}]}}`:                        "spec.template.spec.containers[0].livenessProbe: Required value",
		`{spec: {containers: [{name: a}]}}`:                                                  "spec.template.spec.containers[1].image: Required value",
		`{metadata: {labels: {"a b": c}}}`:                                                   "spec.template.labels: Invalid value",
		`{spec: {containers: [{name: icecream, env: [{name: A}, {name: A, value: b}]}]}}`:    `.spec.template.spec.containers[name="icecream"].env: duplicate entries for key [name="A"]`,
	} {
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		ice.Spec.Template = &runtime.RawExtension{Raw: asJSON}
		_, err = w.sync(ice)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s, the error is: %v\nwant %q", text, err, want)
		}
		ice.Spec.Replicas = ptr.To(*ice.Spec.Replicas + 1)
	}
}
