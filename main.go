// Command controller is the Icecream controller. See README.md.
package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

func main() {
	newProgram().Main()
}

func newProgram() manager.Manager {
	return manager.Manager{Name: "controller", LeaseName: "k8s-controller", Controllers: []manager.Descriptor{NewDescriptor()}}
}

// NewDescriptor describes the Icecream controller to a [manager.Manager].
func NewDescriptor() manager.Descriptor {
	return manager.Descriptor{Name: "icecream", AddToScheme: v1alpha1.Install, New: newController}
}

// newController makes the Icecream controller with its clients and informers.
func newController(d *manager.Dependencies) (manager.Controller, error) {
	groupVersion := schema.GroupVersion(v1alpha1.GroupVersion)
	// One Icecream that cannot be decoded must not stop the others.
	client, err := lenient.ClientsetFor(d.Config, groupVersion, scheme.Scheme, versioned.New)
	if err != nil {
		return nil, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(client, d.Resync, externalversions.WithNamespace(d.Namespace))
	all := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(d.Namespace))
	labeled := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync,
		kubeinformers.WithNamespace(d.Namespace), kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = icecream.LabelIcecream
		}))

	icecreams := preflight.Resource{
		GroupVersionResource: groupVersion.WithResource("icecreams"),
		Define:               "kubectl apply -f artifacts/examples/crd-icecream.yaml",
	}
	deployments := preflight.Resource{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments")}
	pods := preflight.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Selector: icecream.LabelIcecream}
	for _, needed := range []*preflight.Resource{&icecreams, &deployments, &pods} {
		needed.Namespace = d.Namespace
		needed.Permit = "kubectl apply -f artifacts/rbac-icecream.yaml, or restrict the controller to one namespace with -namespace"
	}
	c, err := NewController(client, d.Kube, d.Recorder,
		manager.Watch(d, icecreams, own.Samplecontroller().V1alpha1().Icecreams()),
		manager.Watch(d, deployments, all.Apps().V1().Deployments()),
		manager.Watch(d, pods, labeled.Core().V1().Pods()))
	if err != nil {
		return nil, err
	}
	// Not "namespace": Prometheus sets that label to the namespace of this process.
	metrics.Count("icecream_objects", "Icecreams by namespace, and by status and reason of the Ready condition.",
		[]string{"icecream_namespace", "ready", "reason"}, c.count)
	return c, nil
}

// count counts the Icecreams for icecream_objects.
func (c *Controller) count(add func(n float64, values ...string)) {
	icecreams, _ := c.icecreams.List(labels.Everything()) // A cache can always be listed.
	type series struct {
		namespace string
		ready     metav1.ConditionStatus
		reason    string
	}
	counts := map[series]float64{}
	for _, ice := range icecreams {
		ready := icecream.ReadyOf(ice.Status)
		counts[series{ice.Namespace, ready.Status, ready.Reason}]++
	}
	for s, n := range counts {
		add(n, s.namespace, string(s.ready), s.reason)
	}
}
