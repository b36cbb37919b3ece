package charts

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An umbrella chart switches a dependency on by a value of the dependency.
func TestConditionOfAnUmbrellaChart(t *testing.T) {
	if _, err := render(parse(t, "{enabled: true, global: {imageRegistry: registry.example}}")); err != nil {
		t.Error(err)
	}
}

// Some clusters forbid limits of CPU, and a user of the chart may leave out any other one.
func TestResourcesAreOptional(t *testing.T) {
	quantities := func(list corev1.ResourceList) (names []string) {
		for name, quantity := range list {
			if quantity.Cmp(resource.Quantity{}) > 0 {
				names = append(names, string(name))
			} else {
				names = append(names, string(name)+" of nothing")
			}
		}
		slices.Sort(names)
		return names
	}
	for values, want := range map[string]string{
		"{}":                                     "cpu memory, cpu memory, GOMEMLIMIT",
		"resources: {limits: {cpu: null}}":       "cpu memory, memory, GOMEMLIMIT",
		`resources: {limits: {cpu: ""}}`:         "cpu memory, memory, GOMEMLIMIT",
		"resources: {limits: null}":              "cpu memory, , GOMEMLIMIT",
		"resources: {requests: {memory: null}}":  "cpu, cpu memory, ",
		"resources: {requests: {memory: 200Mi}}": "cpu memory, cpu memory, GOMEMLIMIT",
		"resources: null":                        ", , ",
	} {
		manifests, err := render(parse(t, values))
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		container := pods(t, manifests)["Deployment/k8s-controller"].Spec.Containers[0]
		var environment []string
		for _, e := range container.Env {
			environment = append(environment, e.Name)
		}
		got := strings.Join([]string{
			strings.Join(quantities(container.Resources.Requests), " "),
			strings.Join(quantities(container.Resources.Limits), " "),
			strings.Join(environment, " "),
		}, ", ")
		if got != want {
			t.Errorf("%s gives %q, want %q", values, got, want)
		}
	}
}

// clusterScoped are the objects of the manifests that are in no namespace.
func clusterScoped(t *testing.T, manifests []byte) (names []string) {
	t.Helper()
	for name, object := range objects(t, manifests) {
		if object["metadata"].(map[string]any)["namespace"] == nil {
			names = append(names, name)
		}
	}
	return names
}

// Releases of different names have no object of the whole cluster in common, however long
// the names are, except the CustomResourceDefinition, and that comes with Icecreams alone.
func TestReleasesDoNotCollide(t *testing.T) {
	const common = "a-team-with-a-rather-long-name"
	releases := []string{common, common + "-1", common + "-2", common + "-k8s-controller-for-production-1", common + "-k8s-controller-for-production-2"}
	seen := map[string]string{}
	for _, release := range releases {
		manifests, err := renderAs(release, allOn(t, "{crd: {install: false}, namespace: \"\"}"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range clusterScoped(t, manifests) {
			if _, object, _ := strings.Cut(name, "/"); len(object) > 63 {
				t.Errorf("%s: %s is longer than a label", release, name)
			}
			if strings.HasPrefix(name, "Namespace/") {
				continue // it has a value of its own, and Helm refuses to share it
			}
			if other, isTaken := seen[name]; isTaken {
				t.Errorf("%s and %s both have %s", release, other, name)
			}
			seen[name] = release
		}
	}
}

// A release without the Icecream controller has nothing to do with Icecreams.
func TestNoIcecreamsWithoutTheirController(t *testing.T) {
	for _, name := range optional(t) {
		manifests, err := render(parse(t, "controllers: {icecream: {enabled: false}, "+name+": {enabled: true}}"))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range clusterScoped(t, manifests) {
			if strings.Contains(object, "icecream") {
				t.Errorf("a release of %s alone has %s", name, object)
			}
		}
	}
}

// Neither Helm nor Argo CD deletes the CustomResourceDefinition, and with it all Icecreams.
func TestDefinitionIsKept(t *testing.T) {
	manifests, err := render(parse(t, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	definition := objects(t, manifests)["CustomResourceDefinition/icecreams.controller.nicoleh.io"]
	annotations := definition["metadata"].(map[string]any)["annotations"].(map[string]any)
	for key, want := range map[string]string{
		"helm.sh/resource-policy":         "keep",
		"argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
	} {
		if annotations[key] != want {
			t.Errorf("its annotation %s is %v, want %s", key, annotations[key], want)
		}
	}
}
