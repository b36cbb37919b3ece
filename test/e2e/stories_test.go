package e2e

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/test/lab"
)

// Some of the stories that the controller plays on the model are played on a real control plane, too.
func TestStories(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "testdata")
	stories := script.Also(t, filepath.Join(root, "stories"))
	if len(stories) == 0 {
		t.Fatal("there are no stories")
	}
	show := script.ReadShow(t, filepath.Join(root, "show.yaml"))
	for _, path := range stories {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			script.Reality{
				Config:    n.Lab.RESTConfig(),
				Namespace: n.Name,
				Resources: map[string]schema.GroupVersionResource{
					"Icecream":   {Group: "controller.nicoleh.io", Version: "v1alpha1", Resource: "icecreams"},
					"Deployment": {Group: "apps", Version: "v1", Resource: "deployments"},
					"Pod":        {Version: "v1", Resource: "pods"},
				},
				Show:    show,
				Timeout: lab.Timeout,
			}.Play(t, path)
		})
	}
}
