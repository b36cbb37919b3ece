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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

var noon = time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)

// transport answers the requests of clients by the model.
type transport struct {
	server *apiserver.Server
	store  apiserver.Store
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := apiserver.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	var response apiserver.Response
	t.store, response = t.server.Answer(t.store, noon, request)
	return response.HTTP(r), nil
}

// Typed clients understand the model, whether they send JSON or protobuf.
func TestClients(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			server := &transport{server: apiserver.New(apiserver.Options{Generation: 1000}, apiserver.Secrets(), apiserver.Pods())}
			kube, err := kubernetes.NewForConfig(&rest.Config{Transport: server, ContentConfig: rest.ContentConfig{ContentType: contentType}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, secrets := t.Context(), kube.CoreV1().Secrets("kitchen")
			made, err := secrets.Create(ctx, newSecret("recipe"), metav1.CreateOptions{FieldManager: "cook"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := secrets.Create(ctx, newSecret("recipe"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("the second creation returned %v", err)
			}
			stale := made.DeepCopy()
			made.Data = map[string][]byte{"a": []byte("b")}
			if made, err = secrets.Update(ctx, made, metav1.UpdateOptions{}); err != nil || made.ResourceVersion != "2" {
				t.Errorf("the update returned version %s, %v", made.ResourceVersion, err)
			}
			if _, err := secrets.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("a stale update returned %v", err)
			}
			list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=recipe"})
			if err != nil || len(list.Items) != 1 || list.ResourceVersion != "2" {
				t.Errorf("the list is %v, %v", list, err)
			}
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}
			if err := secrets.Delete(ctx, "recipe", options); !apierrors.IsConflict(err) {
				t.Errorf("the deletion of another one returned %v", err)
			}
			if err := secrets.Delete(ctx, "recipe", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "oven"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			if pod, err = kube.CoreV1().Pods("kitchen").Create(ctx, pod, metav1.CreateOptions{}); err != nil || pod.Generation != 1000 {
				t.Errorf("the Pod has generation %d, %v", pod.Generation, err)
			}
		})
	}
}

func newSecret(name string, owners ...metav1.OwnerReference) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kitchen", Name: name, OwnerReferences: owners}}
}

// Answer never changes the store that it gets.
func TestStoreIsAValue(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets())
	before, err := server.Create(apiserver.Store{}, noon, "cook", newSecret("recipe"))
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf("recipe")
	was := before.Objects[key].DeepCopy()
	after, err := server.Update(before, noon.Add(time.Hour), "waiter", key, "", func(obj *unstructured.Unstructured) {
		obj.SetLabels(map[string]string{"best": "true"})
		obj.SetFinalizers([]string{"example.com/wait"})
	})
	if err != nil {
		t.Fatal(err)
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
			"kitchen/secrets/child was deleted because its owners are",
			"kitchen/secrets/grandchild was deleted because its owners are",
		}, nil},
		{metav1.DeletePropagationOrphan, []string{
			"kitchen/secrets/child was orphaned",
			"kitchen/secrets/owner lost its finalizer orphan",
		}, []string{"child", "grandchild"}},
		{metav1.DeletePropagationForeground, []string{
			"kitchen/secrets/child was deleted because its owners are",
			"kitchen/secrets/grandchild was deleted because its owners are",
			"kitchen/secrets/child lost its finalizer foregroundDeletion",
			"kitchen/secrets/owner lost its finalizer foregroundDeletion",
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
		if store, err = server.Create(store, noon, "cook", newSecret(name, owners...)); err != nil {
			t.Fatal(err)
		}
		owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: name, UID: store.Objects[keyOf(name)].GetUID(), BlockOwnerDeletion: ptr.To(true)}}
	}
	return store
}

// A namespace that is being deleted accepts nothing new, loses its content and then goes.
func TestNamespace(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets(), apiserver.Namespaces())
	if _, err := server.Create(apiserver.Store{}, noon, "cook", newSecret("recipe")); !apierrors.IsNotFound(err) {
		t.Errorf("without a namespace, the creation returned %v", err)
	}
	store, err := server.Create(apiserver.Store{}, noon, "cook", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kitchen"}})
	if err != nil {
		t.Fatal(err)
	}
	if store, err = server.Create(store, noon, "cook", newSecret("recipe")); err != nil {
		t.Fatal(err)
	}
	key := apiserver.Key{Resource: apiserver.Namespaces().Resource.GroupResource(), Name: "kitchen"}
	if store, err = server.Delete(store, noon, key, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Create(store, noon, "cook", newSecret("other")); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("while it is being deleted, the creation returned %v", err)
	}
	for len(store.Objects) > 0 {
		var ok bool
		if store, _, ok = server.Collect(store, noon); !ok {
			t.Fatalf("there are still %v", store.Objects)
		}
	}
}

// Parse names what a request is about, and refuses what the model does not have.
func TestParse(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets(), apiserver.Deployments(), apiserver.Nodes())
	for _, test := range []struct{ request, want string }{
		{"GET /api/v1/namespaces/n/secrets/a", "get secrets n/a "},
		{"GET /api/v1/secrets", "list secrets / "},
		{"PUT /apis/apps/v1/namespaces/n/deployments/a/status", "update deployments.apps n/a status"},
		{"PATCH /api/v1/nodes/a", "patch nodes /a "},
		{"PATCH /apis/apps/v1/namespaces/n/deployments/a application/apply-patch+yaml", "apply deployments.apps n/a "},
		{`POST /api/v1/namespaces/n/secrets {"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`, "create secrets n/b "},
		{"DELETE /api/v1/namespaces/n/secrets", ""},
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

const definition = `
spec:
  group: example.com
  names: {kind: Recipe, plural: recipes}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, default: {}, properties: {servings: {type: integer, default: 2}}}
          status: {type: object, properties: {cooked: {type: integer}}}
`

// A custom kind has the defaults and fields of its definition.
func TestDefinition(t *testing.T) {
	kind, err := apiserver.Definition([]byte(definition), func(_, _ *unstructured.Unstructured) field.ErrorList { return nil })
	if err != nil {
		t.Fatal(err)
	}
	server := apiserver.New(apiserver.Options{}, kind)
	recipe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Recipe",
		"metadata": map[string]any{"namespace": "kitchen", "name": "soup"},
		"spec":     map[string]any{"salt": "yes"},
		"status":   map[string]any{"cooked": int64(1)},
	}}
	store, err := server.Create(apiserver.Store{}, noon, "cook", recipe)
	if err != nil {
		t.Fatal(err)
	}
	key := apiserver.Key{Resource: kind.Resource.GroupResource(), Namespace: "kitchen", Name: "soup"}
	made := store.Objects[key]
	if diff := cmp.Diff(map[string]any{"servings": int64(2)}, made.Object["spec"]); diff != "" || made.Object["status"] != nil {
		t.Errorf("(-want +is):\n%s\nand the status is %v", diff, made.Object["status"])
	}
	if store, err = server.Update(store, noon, "cook", key, "status", func(obj *unstructured.Unstructured) {
		obj.Object["status"] = map[string]any{"cooked": int64(1)}
		obj.Object["spec"] = map[string]any{"servings": int64(9)}
	}); err != nil {
		t.Fatal(err)
	}
	cooked := store.Objects[key]
	if servings, _, _ := unstructured.NestedInt64(cooked.Object, "spec", "servings"); servings != 2 || cooked.GetGeneration() != 1 {
		t.Errorf("the update of the status changed the spec: %v", cooked.Object)
	}
}
