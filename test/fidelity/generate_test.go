package fidelity

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

const protobufType = runtime.ContentTypeProtobuf

var (
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	replicaSets = appsv1.SchemeGroupVersion.WithResource("replicasets")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	secrets     = corev1.SchemeGroupVersion.WithResource("secrets")
	nodes       = corev1.SchemeGroupVersion.WithResource("nodes")
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	leases      = coordinationv1.SchemeGroupVersion.WithResource("leases")
	icecreams   = v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)

	resources = []schema.GroupVersionResource{deployments, replicaSets, pods, secrets, nodes, namespaces, leases, icecreams}

	kindOf = map[schema.GroupVersionResource]string{
		deployments: "Deployment", replicaSets: "ReplicaSet", pods: "Pod", secrets: "Secret",
		nodes: "Node", namespaces: "Namespace", leases: "Lease", icecreams: "Icecream",
	}
)

// generator makes random requests that have something to do with what is stored.
type generator struct {
	rand      *rand.Rand
	namespace string
	store     apiserver.Store
	past      []*unstructured.Unstructured // earlier states of objects
}

func newGenerator(r *rand.Rand, namespace string) *generator {
	return &generator{rand: r, namespace: namespace}
}

// accept continues with another store.
func (g *generator) accept(after apiserver.Store) {
	for key, was := range g.store.Objects {
		if after.Objects[key] != was {
			g.past = append(g.past, was)
		}
	}
	g.store = after
}

// in reports true in that many of a hundred cases.
func (g *generator) in(percent int) bool { return g.rand.IntN(100) < percent }

// pick returns one of the choices.
func pick[T any](g *generator, choices ...T) T { return choices[g.rand.IntN(len(choices))] }

func (g *generator) createNamespace(name string) apiserver.Request {
	return g.request(http.MethodPost, namespaces, "", "", newObject(namespaces, "", name))
}

// lastRequests create an object of each kind, so that watches have a last event.
func (g *generator) lastRequests() []apiserver.Request {
	var last []apiserver.Request
	for _, resource := range resources {
		obj := newObject(resource, g.namespaceOf(resource), "last")
		if !isNamespaced(resource) {
			obj.SetName(g.namespace + "-last")
		}
		maps.Copy(obj.Object, g.content(resource))
		last = append(last, g.request(http.MethodPost, resource, obj.GetNamespace(), "", obj))
	}
	return last
}

// next returns the next request.
func (g *generator) next() apiserver.Request {
	resource := pick(g, deployments, deployments, deployments, deployments, icecreams, icecreams, icecreams, icecreams,
		pods, pods, pods, pods, secrets, secrets, nodes, leases, replicaSets, namespaces)
	live := g.pickLive(resource)
	if live == nil && g.in(80) {
		return g.create(resource)
	}
	name := g.name(resource)
	if live != nil && g.in(90) {
		name = live.GetName()
	}
	switch n := g.rand.IntN(100); {
	case n < 10:
		return g.create(resource)
	case n < 27:
		return g.update(resource, live, name)
	case n < 42:
		return g.updateStatus(resource, live, name)
	case n < 62:
		return g.apply(resource, live, name)
	case n < 72:
		return g.mergePatch(resource, live, name)
	case n < 78:
		return g.jsonPatch(resource, live, name)
	case n < 83:
		return g.strategicPatch(resource, name)
	case n < 94:
		return g.delete(resource, live, name)
	case n < 97:
		return g.request(http.MethodGet, resource, g.namespaceOf(resource), name, nil)
	default:
		return g.list(resource)
	}
}

func isNamespaced(resource schema.GroupVersionResource) bool {
	return resource != nodes && resource != namespaces
}

// namespaceOf returns the namespace of a request: mostly the one of the sequence.
func (g *generator) namespaceOf(resource schema.GroupVersionResource) string {
	if !isNamespaced(resource) {
		return ""
	}
	return g.namespace
}

// name returns the name of an object that may exist or not.
func (g *generator) name(resource schema.GroupVersionResource) string {
	name := pick(g, "a", "b")
	if !isNamespaced(resource) {
		return g.namespace + "-" + name
	}
	return name
}

// pickLive returns an object of a kind that is stored, or nil.
func (g *generator) pickLive(resource schema.GroupVersionResource) *unstructured.Unstructured {
	var names []string
	for key := range g.store.Objects {
		if key.Resource == resource.GroupResource() && key.Namespace == g.namespaceOf(resource) && key.Name != g.namespace {
			names = append(names, key.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return g.store.Objects[apiserver.Key{Resource: resource.GroupResource(), Namespace: g.namespaceOf(resource), Name: pick(g, names...)}]
}

// newObject returns an object with nothing but its name.
func newObject(resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(resource.GroupVersion().WithKind(kindOf[resource]))
	obj.SetName(name)
	if namespace != "" {
		obj.SetNamespace(namespace)
	}
	return obj
}

// allPath returns the path of all objects of a kind, in all namespaces.
func allPath(resource schema.GroupVersionResource) string {
	if resource.Group == "" {
		return "/api/" + resource.Version + "/" + resource.Resource
	}
	return "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
}

// request returns a request with a body in JSON.
func (g *generator) request(method string, resource schema.GroupVersionResource, namespace, name string, body any) apiserver.Request {
	path := allPath(resource)
	if namespace != "" {
		path = strings.TrimSuffix(path, resource.Resource) + "namespaces/" + namespace + "/" + resource.Resource
	}
	if name != "" {
		path += "/" + name
	}
	r := apiserver.Request{Method: method, Path: path, Query: url.Values{}, UserAgent: "somebody/v1.2 (linux/amd64)"}
	if body != nil {
		r.ContentType = runtime.ContentTypeJSON
		encoded, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		r.Body = encoded
	}
	return r
}

// withManager adds the options of a write.
func (g *generator) withManager(r apiserver.Request) apiserver.Request {
	if g.in(85) {
		r.Query.Set("fieldManager", pick(g, "cook", "waiter", "guest"))
	}
	return r
}

// inProtobuf sends some requests about built-in kinds in protobuf.
func (g *generator) inProtobuf(resource schema.GroupVersionResource, r apiserver.Request) apiserver.Request {
	if resource != icecreams && g.in(40) {
		r.ContentType = protobufType
	}
	return r
}

// onWire encodes the body of a request in the type that it has. What a typed client could not
// send stays JSON.
func onWire(t *testing.T, r apiserver.Request) apiserver.Request {
	t.Helper()
	if r.ContentType != protobufType {
		return r
	}
	var obj runtime.Object = &metav1.DeleteOptions{}
	if r.Method == http.MethodDelete {
		if err := json.Unmarshal(r.Body, obj); err != nil {
			t.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"})
	} else {
		var err error
		if obj, _, err = scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.Body, err = runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), obj); err != nil {
		t.Fatal(err)
	}
	return r
}

func (g *generator) create(resource schema.GroupVersionResource) apiserver.Request {
	obj := newObject(resource, "", g.name(resource))
	maps.Copy(obj.Object, g.content(resource))
	g.decorate(obj)
	namespace := g.namespaceOf(resource)
	switch g.rand.IntN(30) {
	case 0:
		obj.SetResourceVersion(versionText(1))
	case 1:
		obj.SetName(pick(g, "", "Not_Valid", "a/b"))
	case 2:
		obj.SetNamespace(pick(g, "elsewhere", g.namespace))
	case 3:
		obj.SetUID(types.UID(g.otherUID()))
		obj.SetGeneration(7)
	case 4:
		if namespace != "" {
			namespace = g.namespace + "-a" // which may not exist, or be terminating
		}
	}
	return g.withManager(g.inProtobuf(resource, g.request(http.MethodPost, resource, namespace, "", obj)))
}

// base returns the object that an update begins with: the stored one, an older one or a new
// one.
func (g *generator) base(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) *unstructured.Unstructured {
	isPast := func(obj *unstructured.Unstructured) bool {
		return obj.GetName() == name && obj.GetKind() == kindOf[resource]
	}
	past := slices.DeleteFunc(slices.Clone(g.past), func(obj *unstructured.Unstructured) bool { return !isPast(obj) })
	n := g.rand.IntN(100)
	switch {
	case live != nil && name == live.GetName() && n < 75:
		return live.DeepCopy()
	case len(past) > 0 && n < 90 && resource != pods:
		return pick(g, past...).DeepCopy()
	default:
		obj := newObject(resource, g.namespaceOf(resource), name)
		maps.Copy(obj.Object, g.content(resource))
		if stored := g.store.Objects[apiserver.Key{Resource: resource.GroupResource(), Namespace: obj.GetNamespace(), Name: name}]; resource == pods && stored != nil {
			obj.Object["spec"] = stored.DeepCopy().Object["spec"]
		}
		return obj
	}
}

func (g *generator) update(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) apiserver.Request {
	obj := g.base(resource, live, name)
	if g.in(60) {
		g.change(resource, obj)
	}
	if g.in(50) {
		g.decorate(obj)
	}
	g.identify(obj)
	switch g.rand.IntN(30) {
	case 0:
		obj.SetName("other")
	case 1:
		obj.SetNamespace("elsewhere")
	case 2:
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{})
	case 3, 4, 5:
		obj.SetManagedFields(nil)
	case 6:
		if resource == deployments || resource == icecreams {
			maps.Copy(obj.Object, g.content(resource))
		}
	case 7:
		obj.Object["status"] = g.status(resource)
	}
	return g.withManager(g.inProtobuf(resource, g.request(http.MethodPut, resource, g.namespaceOf(resource), name, obj)))
}

func (g *generator) updateStatus(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) apiserver.Request {
	if resource == secrets || resource == leases {
		return g.update(resource, live, name)
	}
	obj := g.base(resource, live, name)
	obj.Object["status"] = g.status(resource)
	if g.in(20) {
		g.decorate(obj)
	}
	if g.in(20) {
		g.change(resource, obj)
	}
	g.identify(obj)
	if g.in(20) {
		obj.SetManagedFields(nil)
	}
	r := g.request(http.MethodPut, resource, g.namespaceOf(resource), name, obj)
	if g.in(20) {
		meta := map[string]any{"labels": map[string]any{"by": "status"}}
		r = g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, map[string]any{"metadata": meta, "status": obj.Object["status"]})
		r.ContentType = string(types.MergePatchType)
	} else {
		r = g.inProtobuf(resource, r)
	}
	r.Path += "/status"
	return g.withManager(r)
}

func (g *generator) apply(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) apiserver.Request {
	config := newObject(resource, "", name)
	if g.in(70) {
		config.Object["spec"] = g.partialSpec(resource)
		if resource == secrets {
			delete(config.Object, "spec")
			maps.Copy(config.Object, g.content(resource))
		}
	}
	if g.in(60) {
		g.decorate(config)
	}
	if live != nil && name == live.GetName() && g.in(40) {
		config.SetUID(live.GetUID())
	}
	switch g.rand.IntN(25) {
	case 0:
		config.SetUID(types.UID(g.otherUID()))
	case 1:
		config.SetResourceVersion(versionText(1 + g.rand.Int64N(g.store.Version)))
	case 2:
		if live != nil {
			config.SetResourceVersion(live.GetResourceVersion())
		}
	case 3:
		config.SetName("other")
	case 4:
		config.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1"}})
	case 5:
		config.Object["spec"] = map[string]any{"noSuchField": int64(1)}
	case 6:
		config.SetKind("Other")
	}
	r := g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, config)
	if resource != secrets && resource != leases && g.in(15) {
		config.Object["status"] = g.status(resource)
		r = g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, config)
		r.Path += "/status"
	}
	r.ContentType = string(types.ApplyYAMLPatchType)
	if g.in(70) {
		r.Query.Set("force", pick(g, "true", "true", "false"))
	}
	if g.in(97) {
		r.Query.Set("fieldManager", pick(g, "cook", "waiter", "guest"))
	}
	return r
}

func (g *generator) mergePatch(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) apiserver.Request {
	patch := newObject(resource, "", name)
	g.decorate(patch)
	meta := patch.Object["metadata"].(map[string]any)
	delete(meta, "name")
	if live != nil && g.in(40) {
		meta["uid"], meta["resourceVersion"] = string(live.GetUID()), live.GetResourceVersion()
	}
	switch g.rand.IntN(12) {
	case 0:
		meta["resourceVersion"] = versionText(1 + g.rand.Int64N(g.store.Version))
	case 1:
		meta["uid"] = g.otherUID()
	case 2:
		meta["labels"] = nil
	case 3, 4:
		meta["finalizers"] = nil
	case 5:
		meta["ownerReferences"] = nil
	case 6:
		meta["name"] = "other"
	case 7:
		meta["annotations"] = map[string]any{"a": nil, "b": "2"}
	}
	body := map[string]any{"metadata": meta}
	if g.in(50) && resource != pods && resource != secrets {
		body["spec"] = g.partialSpec(resource)
	}
	r := g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, body)
	r.ContentType = string(types.MergePatchType)
	if g.in(3) {
		r.Body = []byte(pick(g, `[]`, `{"metadata":`))
	}
	return g.withManager(r)
}

func (g *generator) jsonPatch(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) apiserver.Request {
	var operations []map[string]any
	if live != nil && g.in(40) {
		operations = append(operations, map[string]any{"op": "test", "path": "/metadata/uid", "value": string(live.GetUID())})
	}
	if live != nil && g.in(40) {
		version := pick(g, live.GetResourceVersion(), live.GetResourceVersion(), versionText(1))
		operations = append(operations, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": version})
	}
	operations = append(operations, pick(g,
		map[string]any{"op": "add", "path": "/metadata/labels", "value": map[string]any{"a": "1"}},
		map[string]any{"op": "remove", "path": "/metadata/labels"},
		map[string]any{"op": "remove", "path": "/metadata/finalizers"},
		map[string]any{"op": "add", "path": "/metadata/annotations/x", "value": "y"},
		map[string]any{"op": "replace", "path": "/metadata/managedFields", "value": g.editedEntries(live)},
	))
	r := g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, operations)
	r.ContentType = string(types.JSONPatchType)
	return g.withManager(r)
}

// editedEntries returns managedFields that a client may want: all are of another manager.
func (g *generator) editedEntries(live *unstructured.Unstructured) any {
	if live == nil {
		return []any{}
	}
	entries, _, _ := unstructured.NestedSlice(live.Object, "metadata", "managedFields")
	for _, entry := range entries {
		entry.(map[string]any)["manager"] = "heir"
	}
	if len(entries) > 1 {
		entries = entries[:1]
	}
	return entries
}

func (g *generator) strategicPatch(resource schema.GroupVersionResource, name string) apiserver.Request {
	patch := newObject(resource, "", name)
	g.decorate(patch)
	body := map[string]any{"metadata": patch.Object["metadata"]}
	if resource == deployments && g.in(60) {
		body["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": pick(g, "c", "d"), "image": pick(g, "i:1", "i:2")}}}}}
	}
	r := g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, body)
	r.ContentType = string(types.StrategicMergePatchType)
	return g.withManager(r)
}

func (g *generator) delete(resource schema.GroupVersionResource, live *unstructured.Unstructured, name string) apiserver.Request {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	preconditions := map[string]any{}
	if live != nil && g.in(50) {
		preconditions["uid"] = pick(g, string(live.GetUID()), string(live.GetUID()), string(live.GetUID()), g.otherUID())
	}
	if live != nil && g.in(50) {
		preconditions["resourceVersion"] = pick(g, live.GetResourceVersion(), live.GetResourceVersion(), live.GetResourceVersion(), versionText(1+g.rand.Int64N(g.store.Version)))
	}
	if len(preconditions) > 0 {
		options["preconditions"] = preconditions
	}
	if g.in(60) {
		options["propagationPolicy"] = pick(g, "Background", "Background", "Orphan", "Foreground")
	}
	if g.in(30) {
		options["gracePeriodSeconds"] = pick(g, 0, 0, 1, 5, 40, -1)
	}
	switch g.rand.IntN(20) {
	case 0:
		options["propagationPolicy"] = "Whatever"
	case 1:
		return g.request(http.MethodDelete, resource, g.namespaceOf(resource), name, nil)
	}
	r := g.request(http.MethodDelete, resource, g.namespaceOf(resource), name, options)
	if g.in(40) {
		r.ContentType = protobufType
	}
	return r
}

func (g *generator) list(resource schema.GroupVersionResource) apiserver.Request {
	r := g.request(http.MethodGet, resource, g.namespaceOf(resource), "", nil)
	if !isNamespaced(resource) || g.in(40) {
		r.Query.Set("fieldSelector", "metadata.name="+g.name(resource))
	} else if g.in(50) {
		r.Query.Set("labelSelector", pick(g, "a", "a=1", "!a", "a in (1,2)", "a=!"))
	}
	if g.in(10) {
		r.Query.Set("fieldSelector", "spec.color=red")
	}
	return r
}

// otherUID returns a UID that is not that of the object at hand: perhaps of another one,
// perhaps of none.
func (g *generator) otherUID() string {
	if g.in(50) || len(g.past) == 0 {
		return "01234567-89ab-4cde-8f01-23456789abcd"
	}
	return string(pick(g, g.past...).GetUID())
}

// identify sets the UID and the version of an update to something else in some cases.
func (g *generator) identify(obj *unstructured.Unstructured) {
	switch g.rand.IntN(12) {
	case 0:
		obj.SetUID("")
	case 1:
		obj.SetUID(types.UID(g.otherUID()))
	}
	switch g.rand.IntN(12) {
	case 0, 1:
		obj.SetResourceVersion("")
	case 2:
		obj.SetResourceVersion("0")
	case 3:
		obj.SetResourceVersion(versionText(1 + g.rand.Int64N(g.store.Version)))
	}
}

// decorate changes the metadata.
func (g *generator) decorate(obj *unstructured.Unstructured) {
	if g.in(40) {
		obj.SetLabels(pick(g, map[string]string{"a": "1"}, map[string]string{"a": "2", "b": "1"}, map[string]string{}, map[string]string{"a": "not valid!"}))
	}
	if g.in(40) {
		obj.SetAnnotations(pick(g, map[string]string{"a": "1"}, map[string]string{"b": "1", "c": "x y"}, map[string]string{}))
	}
	if g.in(25) {
		obj.SetFinalizers(pick(g, []string{"example.com/a"}, []string{"example.com/a", "example.com/b"}, nil, nil, nil,
			[]string{metav1.FinalizerOrphanDependents}, []string{metav1.FinalizerDeleteDependents}, []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}))
	}
	if g.in(25) {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "s", UID: types.UID(g.otherUID())}
		controller := owner
		yes := true
		controller.Controller, controller.BlockOwnerDeletion = &yes, &yes
		controller.UID = "11111111-2222-4333-8444-555555555555"
		obj.SetOwnerReferences(pick(g, []metav1.OwnerReference{owner}, []metav1.OwnerReference{owner, controller}, []metav1.OwnerReference{controller, controller}, nil))
	}
}
