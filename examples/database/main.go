// Command database is the Database controller. See README.md.
package main

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/examples/database/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

func main() {
	program := manager.Manager{
		Name:        "database",
		LeaseName:   "database-controller",
		Controllers: []manager.Descriptor{NewDescriptor()},
	}
	program.Main()
}

// NewDescriptor describes the controller to a [manager.Manager].
func NewDescriptor() manager.Descriptor {
	return manager.Descriptor{Name: "database", AddToScheme: v1alpha1.Install, New: newController}
}

// newController makes the controller with its clients and informers.
func newController(d *manager.Dependencies) (manager.Controller, error) {
	groupVersion := schema.GroupVersion(v1alpha1.GroupVersion)
	// One Database that cannot be decoded must not stop the others.
	client, err := lenient.ClientsetFor(d.Config, groupVersion, scheme.Scheme, versioned.New)
	if err != nil {
		return nil, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(client, d.Resync, externalversions.WithNamespace(d.Namespace))
	all := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(d.Namespace))
	needs := func(resource schema.GroupVersionResource) preflight.Resource {
		return preflight.Resource{GroupVersionResource: resource, Namespace: d.Namespace, Permit: "kubectl apply -f artifacts/install.yaml"}
	}
	databases := needs(groupVersion.WithResource("databases"))
	databases.Define = "kubectl apply -f artifacts/crd-database.yaml"
	c, err := NewController(client, d.Kube, d.Recorder,
		manager.Watch(d, databases, own.Database().V1alpha1().Databases()),
		manager.Watch(d, needs(appsv1.SchemeGroupVersion.WithResource("statefulsets")), all.Apps().V1().StatefulSets()))
	if err != nil {
		return nil, err
	}
	// Not "namespace": Prometheus sets that label to the namespace of this process.
	metrics.Count("database_objects", "Databases by namespace, and by status and reason of the Ready condition.",
		[]string{"database_namespace", "ready", "reason"}, c.count)
	return c, nil
}

// count counts the Databases for database_objects.
func (c *Controller) count(add func(n float64, values ...string)) {
	type series struct {
		namespace string
		ready     metav1.ConditionStatus
		reason    string
	}
	counts := map[series]float64{}
	databases, _ := c.databases.List(labels.Everything()) // A cache can always be listed.
	for _, db := range databases {
		ready := readyOf(db.Status)
		counts[series{db.Namespace, ready.Status, ready.Reason}]++
	}
	for s, n := range counts {
		add(n, s.namespace, string(s.ready), s.reason)
	}
}
