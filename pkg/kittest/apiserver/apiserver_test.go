package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

var recipes = apiserver.CustomResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "recipes"}, "Recipe")

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
			server := &transport{server: apiserver.New(apiserver.Options{}, apiserver.Secrets(), apiserver.Pods(), apiserver.Deployments())}
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
			if pod, err = kube.CoreV1().Pods("kitchen").Create(ctx, pod, metav1.CreateOptions{}); err != nil || pod.Generation != 1 {
				t.Errorf("the Pod has generation %d, %v", pod.Generation, err)
			}
			soup := appsv1ac.Deployment("soup", "kitchen").WithUID("gone").WithSpec(appsv1ac.DeploymentSpec().WithReplicas(1))
			cook := metav1.ApplyOptions{FieldManager: "cook"}
			if _, err := kube.AppsV1().Deployments("kitchen").Apply(ctx, soup, cook); !apierrors.IsConflict(err) {
				t.Errorf("the apply of a Deployment that is gone returned %v", err)
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

// A change of a custom object leaves its status as it is, and one of the status everything else.
func TestCustomStatus(t *testing.T) {
	server := apiserver.New(apiserver.Options{}, recipes)
	store, err := server.Put(apiserver.Store{}, noon, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Recipe",
		"metadata": map[string]any{"namespace": "kitchen", "name": "soup", "generation": int64(1)},
		"spec":     map[string]any{"servings": int64(2)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	key := apiserver.Key{Resource: recipes.Resource.GroupResource(), Namespace: "kitchen", Name: "soup"}
	const path = "/apis/example.com/v1/namespaces/kitchen/recipes/soup"
	for _, test := range []struct {
		path, body string
		want       map[string]any // spec and status
		generation int64
	}{
		{path + "/status", `{"spec": {"servings": 9}, "status": {"cooked": 1}}`, map[string]any{"spec": int64(2), "status": int64(1)}, 1},
		{path, `{"spec": {"servings": 9}, "status": {"cooked": 7}}`, map[string]any{"spec": int64(9), "status": int64(1)}, 2},
	} {
		request := apiserver.Request{Method: http.MethodPatch, Path: test.path, ContentType: string(types.MergePatchType), Body: []byte(test.body)}
		var response apiserver.Response
		if store, response = server.Answer(store, noon, request); response.Code != http.StatusOK {
			t.Fatalf("%s: %s", test.path, response.Body)
		}
		is := store.Objects[key]
		servings, _, _ := unstructured.NestedInt64(is.Object, "spec", "servings")
		cooked, _, _ := unstructured.NestedInt64(is.Object, "status", "cooked")
		if diff := cmp.Diff(test.want, map[string]any{"spec": servings, "status": cooked}); diff != "" || is.GetGeneration() != test.generation {
			t.Errorf("%s: generation %d, (-want +is):\n%s", test.path, is.GetGeneration(), diff)
		}
	}
}

// An apply creates or changes a Deployment, as far as nobody else manages what it says. Here, others
// have set the replicas, and a webhook the image, which nobody manages for that.
func TestApply(t *testing.T) {
	server := apiserver.New(apiserver.Options{Mutate: func(a apiserver.Admission) {
		a.Object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image = "pinned"
	}}, apiserver.Deployments())
	const cook, force = "fieldManager=cook", "fieldManager=cook&force=true"
	store, response := server.Answer(apiserver.Store{}, noon, applyOf(t, cook, `{"name": "soup"}`, `{"replicas": 2}`, "A", "B"))
	if response.Code != http.StatusCreated {
		t.Fatalf("%s", response.Body)
	}
	key := apiserver.Key{Resource: apiserver.Deployments().Resource.GroupResource(), Namespace: "kitchen", Name: "soup"}
	scaled := store.Objects[key].DeepCopy()
	scaled.Object["spec"].(map[string]any)["replicas"] = int64(3)
	store, err := server.Put(store, noon, scaled)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, query, metadata, spec, env, want string }{
		{"nothing new", cook, `{"name": "soup"}`, `{}`, "A B", "200: version 2, 3 replicas, env A B, by cook Apply, others Update"},
		{"a new object", cook, `{"name": "new"}`, `{}`, "A", "201: version 3, 1 replicas, env A, by cook Apply"},
		{"less than before", cook, `{"name": "soup"}`, `{}`, "B", "200: version 3, 3 replicas, env B, by cook Apply, others Update"},
		{"what others manage", cook, `{"name": "soup"}`, `{"replicas": 2}`, "A", "409: Conflict .spec.replicas"},
		{"by force", force, `{"name": "soup"}`, `{"replicas": 2}`, "A", "200: version 3, 2 replicas, env A, by cook Apply"},
		{"the UID of what is gone", cook, `{"name": "new", "uid": "1"}`, `{}`, "A", "409: Conflict"},
		{"another UID", cook, `{"name": "soup", "uid": "1"}`, `{}`, "A", "422: Invalid metadata.uid"},
		{"an old version", cook, `{"name": "soup", "resourceVersion": "1"}`, `{}`, "A", "409: Conflict"},
		{"twice the same key", cook, `{"name": "soup"}`, `{}`, "A A", "500:"},
		{"another selector", force, `{"name": "soup"}`, `{"selector": {"matchLabels": {"b": "1"}}}`, "A", "422: Invalid spec.selector"},
		{"no manager", "", `{"name": "soup"}`, `{}`, "A", "422: Invalid fieldManager"},
	} {
		request := applyOf(t, test.query, test.metadata, test.spec, strings.Fields(test.env)...)
		after, response := server.Answer(store, noon, request)
		if is := resultOf(t, response); is != test.want {
			t.Errorf("%s: %q, want %q: %s", test.name, is, test.want, response.Body)
		}
		if isNew := response.Code == http.StatusCreated; isNew != server.Creates(store, request) || isNew != (len(after.Objects) > 1) {
			t.Errorf("%s: it is a creation: %t", test.name, isNew)
		}
	}
}

// applyOf returns the apply of a Deployment with this in it, and what it needs.
func applyOf(t *testing.T, query, metadata, spec string, env ...string) apiserver.Request {
	t.Helper()
	type object = map[string]any
	named, wanted := object{}, object{"selector": object{"matchLabels": object{"a": "1"}}}
	values, err := url.ParseQuery(query)
	if err := errors.Join(err, json.Unmarshal([]byte(metadata), &named), json.Unmarshal([]byte(spec), &wanted)); err != nil {
		t.Fatal(err)
	}
	variables := []object{}
	for _, name := range env {
		variables = append(variables, object{"name": name})
	}
	wanted["template"] = object{
		"metadata": object{"labels": object{"a": "1", "b": "1"}},
		"spec":     object{"containers": []object{{"name": "c", "image": "i", "env": variables}}},
	}
	body, err := json.Marshal(object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named, "spec": wanted})
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.Request{
		Method: http.MethodPatch, Path: fmt.Sprintf("/apis/apps/v1/namespaces/kitchen/deployments/%s", named["name"]), Query: values,
		ContentType: string(types.ApplyYAMLPatchType), Body: body,
	}
}

// resultOf describes the response to an apply.
func resultOf(t *testing.T, response apiserver.Response) string {
	t.Helper()
	var d appsv1.Deployment
	var status metav1.Status
	var into any = &d
	if response.Code >= http.StatusBadRequest {
		into = &status
	}
	if err := json.Unmarshal(response.Body, into); err != nil {
		t.Fatal(err)
	}
	if into == &status {
		result := fmt.Sprintf("%d: %s", response.Code, status.Reason)
		if status.Details != nil {
			for _, cause := range status.Details.Causes {
				result += " " + cause.Field
			}
		}
		return strings.TrimSpace(result)
	}
	result := fmt.Sprintf("%d: version %s, %d replicas, env", response.Code, d.ResourceVersion, *d.Spec.Replicas)
	for _, env := range d.Spec.Template.Spec.Containers[0].Env {
		result += " " + env.Name
	}
	managers := make([]string, len(d.ManagedFields))
	for i, entry := range d.ManagedFields {
		managers[i] = fmt.Sprintf("%s %s", entry.Manager, entry.Operation)
	}
	return result + ", by " + strings.Join(managers, ", ")
}
