package source

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/icecream"
)

// small is a cluster of two namespaces.
var small = Config{Icecreams: perNamespace + 2, Pods: 3, Others: 5}

// start starts a source, and returns a config for clients of it.
func start(t *testing.T, config Config) (*Source, *rest.Config) {
	t.Helper()
	s, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	path, err := s.WriteKubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client.QPS = -1
	return s, client
}

// protobuf returns the config for clients of built-in types.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return config
}

// run starts an informer, and returns when it has filled its cache.
func run(t *testing.T, informer cache.SharedIndexInformer) cache.Store {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the cache was not filled")
	}
	return informer.GetStore()
}

func TestInformersSeeAll(t *testing.T) {
	s, config := start(t, small)
	icecreams := run(t, externalversions.NewSharedInformerFactory(versioned.NewForConfigOrDie(config), 0).Samplecontroller().V1alpha1().Icecreams().Informer())
	kube := kubernetes.NewForConfigOrDie(protobuf(config))
	deployments := run(t, kubeinformers.NewSharedInformerFactory(kube, 0).Apps().V1().Deployments().Informer())
	labeled := kubeinformers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = icecream.LabelIcecream })
	pods := run(t, kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0, labeled).Core().V1().Pods().Informer())
	for store, want := range map[cache.Store]int{
		icecreams:   small.Icecreams,
		deployments: small.Icecreams + small.Others,
		pods:        small.Icecreams * small.Pods,
	} {
		if got := len(store.ListKeys()); got != want {
			t.Errorf("%d objects, want %d", got, want)
		}
		uids, versions := map[types.UID]bool{}, map[string]bool{}
		for _, obj := range store.List() {
			obj := obj.(metav1.Object)
			uids[obj.GetUID()], versions[obj.GetResourceVersion()] = true, true
		}
		if len(uids) != want || len(versions) != want {
			t.Errorf("%d UIDs and %d resource versions, want %d", len(uids), len(versions), want)
		}
	}
	name := s.Icecream(perNamespace + 1)
	obj, exists, err := deployments.GetByKey(name.String())
	if err != nil || !exists {
		t.Fatalf("Deployment %s: %v, %v", name, exists, err)
	}
	ice, _, _ := icecreams.GetByKey(name.String())
	if d := obj.(*appsv1.Deployment); !metav1.IsControlledBy(d, ice.(metav1.Object)) || len(d.ManagedFields) != 2 {
		t.Errorf("not the Icecream's Deployment: %+v", d.ObjectMeta)
	}
}

func TestObjectsHaveNoTokens(t *testing.T) {
	_, config := start(t, small)
	kube := kubernetes.NewForConfigOrDie(config)
	pods, err := kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	deployments, err := kube.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	icecreams, err := versioned.NewForConfigOrDie(config).SamplecontrollerV1alpha1().Icecreams("").List(t.Context(), metav1.ListOptions{Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{pods.String(), deployments.String(), cmp.Diff(nil, icecreams)} {
		for _, token := range tokens {
			if strings.Contains(text, token.text) {
				t.Errorf("%s is left: %s", token.text, text)
			}
		}
	}
	if got, want := icecreams.Items[0].Status.Selector, icecream.LabelIcecream+"="+icecreams.Items[0].Name; !strings.Contains(got, want) {
		t.Errorf("the selector is %q, want %q in it", got, want)
	}
	if len(pods.Items) != 7 || pods.Items[6].Labels[icecream.LabelIcecream] != icecreams.Items[2].Name {
		t.Errorf("the seventh Pod is not the third Icecream's")
	}
}

func TestControllerHasNothingToDo(t *testing.T) {
	for _, pods := range []int{0, 1, 12} {
		s, config := start(t, Config{Icecreams: 3, Pods: pods})
		kube, name := kubernetes.NewForConfigOrDie(protobuf(config)), s.Icecream(2)
		ice, err := versioned.NewForConfigOrDie(config).SamplecontrollerV1alpha1().Icecreams(name.Namespace).Get(t.Context(), name.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := kube.AppsV1().Deployments(name.Namespace).Get(t.Context(), name.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := kube.CoreV1().Pods(name.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: icecream.LabelIcecream + "=" + name.Name})
		if err != nil {
			t.Fatal(err)
		}
		observed := icecream.Observed{Now: time.Now(), StallAfter: time.Minute, Icecream: ice, Named: d, Owned: []*appsv1.Deployment{d}}
		for _, pod := range list.Items {
			if p, counts := icecream.PodOf(&pod); counts {
				observed.Pods = append(observed.Pods, p)
			}
		}
		plan, err := icecream.Decide(observed)
		status := icecream.Status(observed, plan).Status
		if err != nil || plan.IsWrite() || len(observed.Pods) != pods {
			t.Errorf("%d of %d Pods, and the controller would %+v: %v", len(observed.Pods), pods, plan, err)
		}
		if diff := cmp.Diff(status, ice.Status); diff != "" {
			t.Errorf("with %d Pods, the controller would change the status: -want +got:\n%s", pods, diff)
		}
	}
}

func TestListsHavePages(t *testing.T) {
	_, config := start(t, small)
	client := versioned.NewForConfigOrDie(config).SamplecontrollerV1alpha1().Icecreams("")
	names, options := map[string]bool{}, metav1.ListOptions{Limit: 100}
	for {
		page, err := client.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, ice := range page.Items {
			names[ice.Namespace+"/"+ice.Name] = true
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	if len(names) != small.Icecreams {
		t.Errorf("%d Icecreams, want %d", len(names), small.Icecreams)
	}
}

func TestMetadata(t *testing.T) {
	s, config := start(t, small)
	client := metadata.NewForConfigOrDie(config).Resource(Icecreams)
	list, err := client.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != s.Icecream(0).Name {
		t.Errorf("the list has %+v", list.Items)
	}
	if err := s.SetImage(s.Icecream(3), "registry.example/other:1"); err != nil {
		t.Fatal(err)
	}
	events, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3)})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	var got []string
	for event := range events.ResultChan() {
		object := event.Object.(*metav1.PartialObjectMetadata)
		got = append(got, string(event.Type)+" "+object.Name)
		if event.Type == watch.Bookmark {
			break // the server sends it before the watch times out
		}
	}
	if diff := cmp.Diff([]string{"MODIFIED " + s.Icecream(3).Name, "BOOKMARK "}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWatchSeesChange(t *testing.T) {
	s, config := start(t, small)
	informer := externalversions.NewSharedInformerFactory(versioned.NewForConfigOrDie(config), 0).Samplecontroller().V1alpha1().Icecreams().Informer()
	changed := make(chan *v1alpha1.Icecream, 1)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) { changed <- obj.(*v1alpha1.Icecream) }}); err != nil {
		t.Fatal(err)
	}
	run(t, informer)
	name := s.Icecream(7)
	if err := s.SetImage(name, "registry.example/other:1"); err != nil {
		t.Fatal(err)
	}
	select {
	case ice := <-changed:
		if ice.Name != name.Name || ice.Generation != 2 || ice.Spec.Image != "registry.example/other:1" {
			t.Errorf("changed: %+v", ice)
		}
	case <-time.After(5 * time.Second):
		t.Error("the informer has not seen the change")
	}
}

func TestDiscovery(t *testing.T) {
	_, config := start(t, Config{})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]schema.GroupVersionResource{"Icecream": Icecreams, "Deployment": Deployments, "Pod": Pods} {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: want.Group, Kind: kind}, want.Version)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		} else if mapping.Resource != want {
			t.Errorf("%s is a kind of %s, want %s", kind, mapping.Resource, want)
		}
	}
}

func TestWrites(t *testing.T) {
	s, config := start(t, small)
	deployments := kubernetes.NewForConfigOrDie(protobuf(config)).AppsV1().Deployments(s.Icecream(0).Namespace)
	before, err := deployments.Get(t.Context(), s.Icecream(0).Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// An apply that changes nothing.
	patch := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"uid":"` + string(before.UID) + `"},"spec":{"replicas":3}}`
	same, err := deployments.Patch(t.Context(), before.Name, types.ApplyPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)})
	if err != nil {
		t.Fatal(err)
	}
	if same.Generation != 1 || len(same.ManagedFields) != len(before.ManagedFields)+1 {
		t.Errorf("an apply of what is there: %+v", same.ObjectMeta)
	}

	// An update, and one of an old version.
	changed := same.DeepCopy()
	changed.Spec.Replicas, changed.Status = ptr.To[int32](5), appsv1.DeploymentStatus{}
	updated, err := deployments.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if updated.Generation != 2 || *updated.Spec.Replicas != 5 || updated.Status.Replicas != 3 {
		t.Errorf("after the update: %+v, %+v", updated.ObjectMeta, updated.Status)
	}
	if _, err := deployments.Update(t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v, want a conflict", err)
	}
}

func TestLease(t *testing.T) {
	_, config := start(t, Config{})
	client := kubernetes.NewForConfigOrDie(protobuf(config)).CoordinationV1().Leases(metav1.NamespaceSystem)
	if _, err := client.Get(t.Context(), "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Lease that nobody has created: %v, want that it is not found", err)
	}
	lease, err := client.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), lease, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second Lease: %v, want that it already exists", err)
	}
	lease.Spec.HolderIdentity = ptr.To("me")
	if _, err := client.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	lease.Spec.HolderIdentity = ptr.To("me, too")
	if _, err := client.Update(t.Context(), lease, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v, want a conflict", err)
	}
}
