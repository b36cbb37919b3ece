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
	statefuls   = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	secrets     = corev1.SchemeGroupVersion.WithResource("secrets")
	nodes       = corev1.SchemeGroupVersion.WithResource("nodes")
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	leases      = coordinationv1.SchemeGroupVersion.WithResource("leases")
	icecreams   = v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)

	resources = []schema.GroupVersionResource{deployments, statefuls, pods, secrets, nodes, namespaces, leases, icecreams}

	kindOf = map[schema.GroupVersionResource]string{
		deployments: "Deployment", statefuls: "StatefulSet", pods: "Pod", secrets: "Secret", nodes: "Node", namespaces: "Namespace", leases: "Lease", icecreams: "Icecream",
	}
)

// request is one to both servers, or one by another program, whose result the model stores.
type request struct {
	apiserver.Request
	byOthers bool
}

// generator makes random requests that have something to do with what is stored.
type generator struct {
	rand      *rand.Rand
	namespace string
	store     apiserver.Store
	past      []*unstructured.Unstructured // earlier states of objects
	applied   map[string]request           // the last apply, by the path
}

func newGenerator(r *rand.Rand, namespace string) *generator {
	return &generator{rand: r, namespace: namespace, applied: map[string]request{}}
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

// createNew returns the creation of an object, by other programs if the model knows no other way.
func (g *generator) createNew(resource schema.GroupVersionResource, name string) request {
	obj := newObject(resource, g.namespaceOf(resource), name)
	maps.Copy(obj.Object, g.content(resource))
	r := g.request(http.MethodPost, resource, obj.GetNamespace(), "", obj)
	r.byOthers = isPut(resource)
	return r
}

// isPut reports whether only other programs create the objects of a kind.
func isPut(resource schema.GroupVersionResource) bool {
	return resource == pods || resource == nodes || resource == icecreams
}

// lastRequests create an object of each kind, so that watches have a last event.
func (g *generator) lastRequests() []request {
	var last []request
	for _, resource := range resources {
		name := "last"
		if !isNamespaced(resource) {
			name = g.namespace + "-last"
		}
		last = append(last, g.createNew(resource, name))
	}
	return last
}

// next returns the next request.
func (g *generator) next() request {
	resource := pick(g, deployments, deployments, deployments, statefuls, statefuls, icecreams, icecreams, icecreams, pods, pods, secrets, secrets, nodes, leases, namespaces)
	target := g.pickLive(resource)
	name := g.name(resource)
	if target == nil && g.in(80) {
		if isWorkload(resource) && g.in(50) {
			return g.apply(resource, nil, name)
		}
		return g.create(resource)
	}
	if target != nil && g.in(90) {
		name = target.GetName()
	}
	target = g.stored(resource, name)
	if resource == icecreams && target != nil && !hasStatus(target) {
		return g.updateStatus(target, name)
	}
	switch n := g.rand.IntN(100); {
	case isWorkload(resource) && g.in(40):
		return g.apply(resource, target, name)
	case n < 10:
		return g.create(resource)
	case n < 20 && target != nil && !slices.Contains(withoutOthers, resource):
		return g.byOthers(resource, target)
	case n < 35 && resource == icecreams:
		return g.updateStatus(target, name)
	case n < 50 && (isWorkload(resource) || resource == secrets || resource == leases):
		return g.update(resource, target, name)
	case n < 60 && isWorkload(resource):
		return g.strategicPatch(resource, target, name)
	case n < 65 && resource == secrets:
		return g.replaceData(target, name)
	case n < 80:
		return g.mergePatch(resource, target, name)
	case n < 92 && resource == pods && g.in(50):
		return g.evict(target, name)
	case n < 92:
		return g.delete(resource, target, name)
	case n < 96:
		return g.request(http.MethodGet, resource, g.namespaceOf(resource), name, nil)
	default:
		return g.list(resource)
	}
}

// isWorkload reports whether a kind has a template of Pods. These kinds can be applied.
func isWorkload(resource schema.GroupVersionResource) bool {
	return resource == deployments || resource == statefuls
}

// withoutOthers are the kinds of which other programs change nothing in this test.
var withoutOthers = []schema.GroupVersionResource{secrets, leases, namespaces}

// hasStatus reports whether the status of an Icecream is stored. The API server shows the
// default until then, and the first write stores the object anew even if it changes nothing.
func hasStatus(ice *unstructured.Unstructured) bool {
	_, isSet, _ := unstructured.NestedFieldNoCopy(ice.Object, "status", "replicas")
	return isSet
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

// stored returns the object of that name, or nil.
func (g *generator) stored(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	return g.store.Objects[apiserver.Key{Resource: resource.GroupResource(), Namespace: g.namespaceOf(resource), Name: name}]
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
	return g.stored(resource, pick(g, names...))
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
func (g *generator) request(method string, resource schema.GroupVersionResource, namespace, name string, body any) request {
	path := allPath(resource)
	if namespace != "" {
		path = strings.TrimSuffix(path, resource.Resource) + "namespaces/" + namespace + "/" + resource.Resource
	}
	if name != "" {
		path += "/" + name
	}
	r := request{Request: apiserver.Request{Method: method, Path: path, Query: url.Values{}}}
	if body != nil {
		r.ContentType = runtime.ContentTypeJSON
		encoded, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		r.Body = encoded
	}
	if method != http.MethodGet && method != http.MethodDelete && g.in(80) {
		r.Query.Set("fieldManager", pick(g, "cook", "waiter"))
	}
	r.AsMetadata = method == http.MethodGet && g.in(40) || method == http.MethodPatch && g.in(20)
	if method == http.MethodPost && !isPut(resource) && name == "" && namespace != "" && g.in(10) {
		r.Query.Set("dryRun", metav1.DryRunAll)
	}
	return r
}

func (g *generator) patch(patchType types.PatchType, resource schema.GroupVersionResource, name string, body any) request {
	r := g.request(http.MethodPatch, resource, g.namespaceOf(resource), name, body)
	r.ContentType = string(patchType)
	return r
}

// inProtobuf sends some requests about built-in kinds in protobuf.
func (g *generator) inProtobuf(resource schema.GroupVersionResource, r request) request {
	if resource != icecreams && g.in(40) {
		r.ContentType = protobufType
	}
	return r
}

// onWire encodes the body of a request in the type that it has.
func onWire(t *testing.T, r apiserver.Request) apiserver.Request {
	t.Helper()
	if r.ContentType != protobufType {
		return r
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Body, err = runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), obj); err != nil {
		t.Fatal(err)
	}
	return r
}

func (g *generator) create(resource schema.GroupVersionResource) request {
	name := g.name(resource)
	if isPut(resource) {
		if g.stored(resource, name) != nil {
			return g.request(http.MethodGet, resource, g.namespaceOf(resource), name, nil)
		}
		return g.createNew(resource, name)
	}
	obj := newObject(resource, "", name)
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
	return g.inProtobuf(resource, g.request(http.MethodPost, resource, namespace, "", obj))
}

// byOthers returns what another program writes: the spec of an Icecream, or the status of
// another kind.
func (g *generator) byOthers(resource schema.GroupVersionResource, target *unstructured.Unstructured) request {
	obj := target.DeepCopy()
	if resource == icecreams {
		g.change(icecreams, obj)
		// What others write is not refused, so they leave alone what cannot change.
		if name, found, _ := unstructured.NestedString(target.Object, "spec", "deploymentName"); found {
			obj.Object["spec"].(object)["deploymentName"] = name
		} else {
			delete(obj.Object["spec"].(object), "deploymentName")
		}
	} else {
		obj.Object["status"] = g.status(resource)
	}
	r := g.request(http.MethodPut, resource, obj.GetNamespace(), obj.GetName(), obj)
	if resource != icecreams {
		r.Path += "/status"
	}
	r.byOthers = true
	return r
}

// base returns the object that an update begins with: the stored one, an older one or a new
// one.
func (g *generator) base(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) *unstructured.Unstructured {
	past := slices.DeleteFunc(slices.Clone(g.past), func(obj *unstructured.Unstructured) bool {
		return obj.GetName() != name || obj.GetKind() != kindOf[resource]
	})
	n := g.rand.IntN(100)
	switch {
	case target != nil && n < 75:
		return target.DeepCopy()
	case len(past) > 0 && n < 90:
		return pick(g, past...).DeepCopy()
	default:
		obj := newObject(resource, g.namespaceOf(resource), name)
		maps.Copy(obj.Object, g.content(resource))
		return obj
	}
}

func (g *generator) update(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) request {
	if target == nil && resource == leases {
		return g.create(resource)
	}
	obj := g.base(resource, target, name)
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
		maps.Copy(obj.Object, g.content(resource))
	case 3:
		if isWorkload(resource) {
			obj.Object["status"] = g.status(resource)
		}
	}
	return g.inProtobuf(resource, g.request(http.MethodPut, resource, g.namespaceOf(resource), name, obj))
}

// updateStatus writes the status of an Icecream.
func (g *generator) updateStatus(target *unstructured.Unstructured, name string) request {
	obj := g.base(icecreams, target, name)
	obj.Object["status"] = g.status(icecreams)
	if g.in(20) {
		g.decorate(obj)
	}
	if g.in(20) {
		g.change(icecreams, obj)
	}
	g.identify(obj)
	r := g.request(http.MethodPut, icecreams, g.namespaceOf(icecreams), name, obj)
	if g.in(20) {
		meta := map[string]any{"labels": map[string]any{"by": "status"}}
		r = g.patch(types.MergePatchType, icecreams, name, map[string]any{"metadata": meta, "status": obj.Object["status"]})
	}
	r.Path += "/status"
	return r
}

func (g *generator) mergePatch(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) request {
	meta := g.metadata(resource, target, name)
	switch g.rand.IntN(12) {
	case 0:
		meta["labels"] = nil
	case 1, 2:
		meta["finalizers"] = nil
	case 3:
		meta["ownerReferences"] = nil
	case 4:
		meta["name"] = "other"
	case 5:
		meta["annotations"] = map[string]any{"a": nil, "b": "2"}
	}
	body := map[string]any{"metadata": meta}
	if g.in(50) && slices.Contains([]schema.GroupVersionResource{deployments, statefuls, nodes, leases, icecreams}, resource) {
		body["spec"] = g.partialSpec(resource)
	}
	r := g.patch(types.MergePatchType, resource, name, body)
	if g.in(3) {
		r.Body = []byte(pick(g, `[]`, `{"metadata":`))
	}
	return r
}

// metadata returns some metadata for a patch, in some cases with the UID and version of the object,
// or with wrong ones.
func (g *generator) metadata(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) map[string]any {
	patch := newObject(resource, "", name)
	g.decorate(patch)
	meta := patch.Object["metadata"].(map[string]any)
	delete(meta, "name")
	if target != nil && g.in(40) {
		meta["uid"], meta["resourceVersion"] = string(target.GetUID()), target.GetResourceVersion()
	}
	switch g.rand.IntN(12) {
	case 0:
		meta["resourceVersion"] = versionText(1 + g.rand.Int64N(g.store.Version))
	case 1:
		meta["uid"] = g.otherUID()
	}
	return meta
}

// strategicPatch changes the image of a container of a workload, or adds one.
func (g *generator) strategicPatch(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) request {
	body := map[string]any{"metadata": g.metadata(resource, target, name)}
	if g.in(60) {
		container := object{"name": pick(g, "c", "d"), "image": pick(g, "i:1", "i:2")}
		g.furnish(container)
		body["spec"] = object{"template": object{"spec": object{"containers": []any{container}}}}
	}
	return g.patch(types.StrategicMergePatchType, resource, name, body)
}

// apply applies what one of two managers wants of a workload, who may have wanted something else before.
func (g *generator) apply(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) request {
	if again, ok := g.applied[resource.Resource+name]; ok && g.in(25) {
		return again
	}
	obj := newObject(resource, pick(g, "", g.namespace), name)
	obj.Object["metadata"] = g.metadata(resource, target, name)
	obj.SetName(name)
	if target == nil {
		obj.SetUID(types.UID(pick(g, "", "", "", "", g.otherUID())))
	}
	if g.in(85) {
		obj.Object["spec"] = asJSON(g.workload(resource))
	} else if g.in(80) {
		obj.Object["spec"] = g.partialSpec(resource)
	}
	switch g.rand.IntN(40) {
	case 0:
		obj.SetName(pick(g, "", "other"))
	case 1:
		obj.SetNamespace("elsewhere")
	case 2:
		obj.SetAPIVersion(pick(g, "", "apps/v1beta1", "v1"))
	case 3:
		obj.SetKind(pick(g, "", "ReplicaSet"))
	case 4:
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "cook"}})
	case 5:
		obj.Object["spec"] = pick(g, object{"unknown": 1}, object{"replicas": "many"}, nil)
	case 6:
		obj.Object["status"] = g.status(resource)
	}
	r := g.patch(types.ApplyYAMLPatchType, resource, name, obj)
	if !r.Query.Has("fieldManager") && g.in(90) {
		r.Query.Set("fieldManager", pick(g, "cook", "waiter"))
	}
	if g.in(60) {
		r.Query.Set("force", pick(g, "true", "true", "true", "1", "false", "0"))
	}
	if g.in(2) {
		r.Body = []byte(pick(g, `[]`, `{"metadata":`, `null`, `text`))
	}
	g.applied[resource.Resource+name] = r
	return r
}

// replaceData replaces all data of a Secret by a JSON patch.
func (g *generator) replaceData(target *unstructured.Unstructured, name string) request {
	type operation = map[string]any
	var patch []operation
	for field, value := range g.metadata(secrets, target, name) {
		patch = append(patch, operation{"op": "add", "path": "/metadata/" + field, "value": value})
	}
	slices.SortFunc(patch, func(a, b operation) int { return strings.Compare(a["path"].(string), b["path"].(string)) })
	data := map[string]any{}
	if value := pick(g, "", "MQ==", "Mg=="); value != "" {
		data[pick(g, "a", "b")] = value
	}
	patch = append(patch, operation{"op": "add", "path": "/data", "value": data})
	if g.in(20) {
		patch = append(patch, operation{"op": "add", "path": "/immutable", "value": true})
	}
	return g.patch(types.JSONPatchType, secrets, name, patch)
}

func (g *generator) delete(resource schema.GroupVersionResource, target *unstructured.Unstructured, name string) request {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	preconditions := map[string]any{}
	if target != nil && g.in(50) {
		uid := string(target.GetUID())
		preconditions["uid"] = pick(g, uid, uid, uid, g.otherUID())
	}
	if target != nil && !waitsForCollector(target) && g.in(50) {
		version := target.GetResourceVersion()
		preconditions["resourceVersion"] = pick(g, version, version, version, versionText(1+g.rand.Int64N(g.store.Version)))
	}
	if len(preconditions) > 0 {
		options["preconditions"] = preconditions
	}
	if resource != namespaces && g.in(60) {
		options["propagationPolicy"] = pick(g, "Background", "Background", "Orphan", "Foreground")
	}
	if g.in(30) {
		options["gracePeriodSeconds"] = pick(g, 0, 0, 1, 5, 40)
	}
	if g.in(5) {
		return g.request(http.MethodDelete, resource, g.namespaceOf(resource), name, nil)
	}
	r := g.request(http.MethodDelete, resource, g.namespaceOf(resource), name, options)
	if g.in(40) {
		r.ContentType = protobufType
	}
	return r
}

// evict has a Pod evicted.
func (g *generator) evict(target *unstructured.Unstructured, name string) request {
	options := map[string]any{}
	if target != nil && g.in(60) {
		uid := string(target.GetUID())
		options["preconditions"] = map[string]any{"uid": pick(g, uid, uid, uid, g.otherUID())}
	}
	if g.in(30) {
		options["gracePeriodSeconds"] = pick(g, 0, 1, 40)
	}
	r := g.request(http.MethodPost, pods, g.namespace, name, map[string]any{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      map[string]any{"name": pick(g, name, name, name, "c")},
		"deleteOptions": options,
	})
	r.Path = "/api/v1/namespaces/" + g.namespace + "/pods/" + name + "/eviction"
	return r
}

// waitsForCollector reports whether an object waits for the garbage collector.
func waitsForCollector(obj *unstructured.Unstructured) bool {
	return slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents) || slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

func (g *generator) list(resource schema.GroupVersionResource) request {
	r := g.request(http.MethodGet, resource, g.namespaceOf(resource), "", nil)
	if !isNamespaced(resource) || g.in(40) {
		r.Query.Set("fieldSelector", "metadata.name="+g.name(resource))
	} else if g.in(50) {
		r.Query.Set("labelSelector", pick(g, "a", "a=1", "!a", "a in (1,2)", "a=!"))
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
	if g.in(25) && obj.GetKind() != "Namespace" {
		obj.SetFinalizers(pick(g, []string{"example.com/a"}, []string{"example.com/a", "example.com/b"}, nil, nil, nil))
	}
	if g.in(25) {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "s", UID: types.UID(g.otherUID())}
		controller := owner
		yes := true
		controller.Controller, controller.BlockOwnerDeletion = &yes, &yes
		controller.UID = "11111111-2222-4333-8444-555555555555"
		obj.SetOwnerReferences(pick(g, []metav1.OwnerReference{owner}, []metav1.OwnerReference{owner, controller}, nil))
	}
}
