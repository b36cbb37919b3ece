package source

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
)

const icecreams, podsOfEach = 7, 3

// start starts a source, and returns a config for clients of it.
func start(t *testing.T) (*Source, *rest.Config) {
	t.Helper()
	s, err := Start(icecreams, podsOfEach)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	path, err := s.WriteKubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return s, config
}

// run starts an informer, and returns its cache once that is filled.
func run(t *testing.T, informer cache.SharedIndexInformer) cache.Store {
	t.Helper()
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the cache was not filled")
	}
	return informer.GetStore()
}

func TestInformersSeeAll(t *testing.T) {
	s, config := start(t)
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	builtin := kubeinformers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(protobuf), 0)
	deployments, pods := run(t, builtin.Apps().V1().Deployments().Informer()), run(t, builtin.Core().V1().Pods().Informer())
	if s.IsSent() {
		t.Error("everything was sent before anyone has asked for Icecreams")
	}
	own := externalversions.NewSharedInformerFactory(versioned.NewForConfigOrDie(config), 0)
	ices := run(t, own.Samplecontroller().V1alpha1().Icecreams().Informer())
	if !s.IsSent() {
		t.Error("not everything was sent")
	}
	for store, want := range map[cache.Store]int{ices: icecreams, deployments: icecreams, pods: icecreams * podsOfEach} {
		names, uids, versions := store.ListKeys(), map[types.UID]bool{}, map[string]bool{}
		for _, obj := range store.List() {
			object := obj.(metav1.Object)
			uids[object.GetUID()], versions[object.GetResourceVersion()] = true, true
			if len(object.GetManagedFields()) != 2 {
				t.Errorf("%s does not have two managers of its fields: %v", object.GetName(), object.GetManagedFields())
			}
			text, err := yaml.Marshal(obj)
			if err != nil || strings.Contains(string(text), tokenIcecream) || strings.Contains(string(text), tokenNodes) {
				t.Fatalf("a token is left in %s (%v)", text, err)
			}
		}
		if len(names) != want || len(uids) != want || len(versions) != want {
			t.Errorf("%d names, %d UIDs and %d resource versions, want %d", len(names), len(uids), len(versions), want)
		}
	}
	d, exists, err := deployments.GetByKey("team-shop/ice-00004")
	if err != nil || !exists {
		t.Fatalf("the fifth Deployment: %v, %v", exists, err)
	}
	ice, _, _ := ices.GetByKey("team-shop/ice-00004")
	if d := d.(*appsv1.Deployment); !metav1.IsControlledBy(d, ice.(metav1.Object)) {
		t.Errorf("it is not its Icecream's: %+v", d.ObjectMeta)
	}
}

func TestDiscovery(t *testing.T) {
	_, config := start(t)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[schema.GroupVersionKind]string{
		schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"): "icecreams",
		{Group: "apps", Version: "v1", Kind: "Deployment"}:              "deployments",
		{Group: "", Version: "v1", Kind: "Pod"}:                         "pods",
	} {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		} else if mapping.Resource.Resource != want {
			t.Errorf("%s is a kind of %s, want %s", kind, mapping.Resource, want)
		}
	}
}

func TestWritesAreRefused(t *testing.T) {
	s, config := start(t)
	deployments := kubernetes.NewForConfigOrDie(config).AppsV1().Deployments("team-shop")
	_, err := deployments.Patch(t.Context(), "ice-00001", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a write: %v, want that it is forbidden", err)
	}
	if diff := cmp.Diff([]string{"PATCH /apis/apps/v1/namespaces/team-shop/deployments/ice-00001"}, s.Refused()); diff != "" {
		t.Errorf("refused: -want +got:\n%s", diff)
	}
}
