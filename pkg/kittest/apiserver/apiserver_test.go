package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

var recipes = apiserver.CustomResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "recipes"}, "Recipe")

var noon = time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)

func newSecret(name string, owners ...metav1.OwnerReference) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kitchen", Name: name, OwnerReferences: owners}}
}

// Answer never changes the store that it gets.
func TestStoreIsAValue(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets())
	before, err := server.Create(apiserver.Store{}, noon, newSecret("recipe"))
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf("recipe")
	was := before.Objects[key].DeepCopy()
	after, response := server.Answer(before, noon.Add(time.Hour), apiserver.Request{
		Method: http.MethodPatch, Path: "/api/v1/namespaces/kitchen/secrets/recipe", ContentType: string(types.MergePatchType),
		Body: []byte(`{"metadata": {"labels": {"best": "true"}, "finalizers": ["example.com/wait"]}}`),
	})
	if response.Code != http.StatusOK {
		t.Fatalf("%s", response.Body)
	}
	marked, err := server.Delete(after, noon, key, metav1.DeleteOptions{})
	if err != nil || marked.Objects[key].GetDeletionTimestamp() == nil {
		t.Fatalf("it is not being deleted: %v", err)
	}
	if diff := cmp.Diff(was, before.Objects[key]); diff != "" || len(before.Objects) != 1 || before.Version != 1 {
		t.Errorf("the first store has changed:\n%s", diff)
	}
	if after.Objects[key].GetDeletionTimestamp() != nil {
		t.Error("the second store has changed")
	}
}

func keyOf(name string) apiserver.Key {
	return apiserver.Key{Resource: apiserver.Secrets().Resource.GroupResource(), Namespace: "kitchen", Name: name}
}

// The garbage collector deletes what lost its owner, as the propagation policy of the owner's
// deletion says.
func TestCollect(t *testing.T) {
	for _, test := range []struct {
		policy metav1.DeletionPropagation
		want   []string // steps of the collector
		left   []string
	}{
		{metav1.DeletePropagationBackground, []string{
			"secrets kitchen/child was deleted because its owners are",
			"secrets kitchen/grandchild was deleted because its owners are",
		}, nil},
		{metav1.DeletePropagationOrphan, []string{
			"secrets kitchen/child was orphaned",
			"secrets kitchen/owner lost its finalizer orphan",
		}, []string{"child", "grandchild"}},
		{metav1.DeletePropagationForeground, []string{
			"secrets kitchen/child was deleted because its owners are",
			"secrets kitchen/grandchild was deleted because its owners are",
			"secrets kitchen/child lost its finalizer foregroundDeletion",
			"secrets kitchen/owner lost its finalizer foregroundDeletion",
		}, nil},
	} {
		t.Run(string(test.policy), func(t *testing.T) {
			server := apiserver.New(apiserver.Options{}, apiserver.Secrets())
			store := family(t, server)
			store, err := server.Delete(store, noon, keyOf("owner"), metav1.DeleteOptions{PropagationPolicy: &test.policy})
			if err != nil {
				t.Fatal(err)
			}
			var steps, left []string
			for range 10 {
				after, did, ok := server.Collect(store, noon)
				if !ok {
					break
				}
				steps, store = append(steps, did), after
			}
			for key := range store.Objects {
				left = append(left, key.Name)
			}
			slices.Sort(left)
			if diff := cmp.Diff(test.want, steps); diff != "" {
				t.Errorf("steps (-want +is):\n%s", diff)
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("left (-want +is):\n%s", diff)
			}
		})
	}
}

// family returns a store with an owner, its dependent, and the dependent of that.
func family(t *testing.T, server *apiserver.Server) apiserver.Store {
	t.Helper()
	var store apiserver.Store
	var owners []metav1.OwnerReference
	for _, name := range []string{"owner", "child", "grandchild"} {
		var err error
		if store, err = server.Create(store, noon, newSecret(name, owners...)); err != nil {
			t.Fatal(err)
		}
		owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: name, UID: store.Objects[keyOf(name)].GetUID(), BlockOwnerDeletion: ptr.To(true)}}
	}
	return store
}

// A namespace that is being deleted accepts nothing new, loses its content and then goes.
func TestNamespace(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets(), apiserver.Namespaces())
	if _, err := server.Create(apiserver.Store{}, noon, newSecret("recipe")); !apierrors.IsNotFound(err) {
		t.Errorf("without a namespace, the creation returned %v", err)
	}
	store, err := server.Create(apiserver.Store{}, noon, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kitchen"}})
	if err != nil {
		t.Fatal(err)
	}
	if store, err = server.Create(store, noon, newSecret("recipe")); err != nil {
		t.Fatal(err)
	}
	key := apiserver.Key{Resource: apiserver.Namespaces().Resource.GroupResource(), Name: "kitchen"}
	if store, err = server.Delete(store, noon, key, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Create(store, noon, newSecret("other")); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("while it is being deleted, the creation returned %v", err)
	}
	for len(store.Objects) > 0 {
		var ok bool
		if store, _, ok = server.Collect(store, noon); !ok {
			t.Fatalf("there are still %v", store.Objects)
		}
	}
}

// Webhooks change an object before it is validated, and policies and quotas refuse what is valid.
func TestAdmission(t *testing.T) {
	var asked []string
	server := apiserver.New(apiserver.Options{
		Mutate: func(a apiserver.Admission) {
			a.Object.SetLabels(map[string]string{"best": a.Object.GetAnnotations()["label"]})
		},
		Admit: func(a apiserver.Admission) error {
			asked = append(asked, a.Verb+" "+a.Key.Name)
			if a.Old != nil {
				return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, nil)
			}
			return nil
		},
	}, apiserver.Secrets())
	secret := newSecret("recipe")
	secret.Annotations = map[string]string{"label": "not valid"}
	if _, err := server.Create(apiserver.Store{}, noon, secret); !apierrors.IsInvalid(err) || len(asked) > 0 {
		t.Errorf("the label that the webhook sets is not validated: %v, %v", err, asked)
	}
	secret.Annotations["label"] = "valid"
	store, err := server.Create(apiserver.Store{}, noon, secret)
	if err != nil || store.Objects[keyOf("recipe")].GetLabels()["best"] != "valid" {
		t.Errorf("the webhook has no effect: %v", err)
	}
	after, err := server.Update(store, noon, newSecret("recipe"))
	if !apierrors.IsForbidden(err) || after.Version != store.Version {
		t.Errorf("the update is not refused: %v", err)
	}
	if want := []string{"create recipe", "update recipe"}; !slices.Equal(asked, want) {
		t.Errorf("the policy saw %v, want %v", asked, want)
	}
}

// Parse names what a request is about, and refuses what the model does not have.
func TestParse(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets(), apiserver.Deployments(), apiserver.Nodes(), apiserver.Pods(), recipes)
	for _, test := range []struct{ request, want string }{
		{"GET /api/v1/namespaces/n/secrets/a", "get secrets n/a "},
		{"GET /api/v1/secrets", "list secrets / "},
		{"PUT /apis/apps/v1/namespaces/n/deployments/a/status", ""},
		{"PUT /apis/example.com/v1/namespaces/n/recipes/a/status", "update recipes.example.com n/a status"},
		{"PATCH /api/v1/nodes/a", "patch nodes /a "},
		{"PATCH /apis/apps/v1/namespaces/n/deployments/a application/apply-patch+yaml", "patch deployments.apps n/a "},
		{`POST /api/v1/namespaces/n/secrets {"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`, "create secrets n/b "},
		{"DELETE /api/v1/namespaces/n/secrets", ""},
		{"POST /api/v1/namespaces/n/pods/a/eviction", "create pods n/a eviction"},
		{"POST /api/v1/namespaces/n/secrets/a/eviction", ""},
		{"GET /api/v1/namespaces/n/configmaps/a", ""},
		{"PUT /api/v1/namespaces/n/secrets/a/status", ""},
		{"GET /api/v1/namespaces/n/nodes", ""},
		{"PUT /apis/apps/v1/deployments/a", ""},
	} {
		parts := append(strings.SplitN(test.request, " ", 3), "")
		r := apiserver.Request{Method: parts[0], Path: parts[1], ContentType: parts[2], Body: []byte(parts[2])}
		verb, key, subresource, ok := server.Parse(r)
		is := ""
		if ok {
			is = verb + " " + key.Resource.String() + " " + key.Namespace + "/" + key.Name + " " + subresource
		}
		if is != test.want {
			t.Errorf("%s: %q, want %q", test.request, is, test.want)
		}
	}
}
