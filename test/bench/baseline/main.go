// Command baseline does what the Icecream controller does, written on controller-runtime in
// the way its book describes: one Reconcile, CreateOrUpdate, Owns, and an index. It is what
// the benchmark compares with. It has no rules beyond the ordinary: no renaming, adoption,
// stall detection, pacing or leader election.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	versionedscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
)

// label names the Icecream of a Pod.
const label = "controller.nicoleh.io/icecream"

func main() {
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	workers := flag.Int("workers", 1, "Number of workers.") // -kubeconfig is controller-runtime's
	address := flag.String("metrics-bind-address", "127.0.0.1:0", "The host:port to serve metrics on.")
	flag.Parse()
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, versionedscheme.AddToScheme} {
		if err := add(all); err != nil {
			return err
		}
	}
	isOurs, err := labels.Parse(label)
	if err != nil {
		return err
	}
	klog.InfoS("Starting")
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  all,
		Metrics: metricsserver.Options{BindAddress: *address},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: isOurs}},
		},
	})
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, label, func(obj client.Object) []string {
		return []string{obj.GetLabels()[label]}
	}); err != nil {
		return err
	}
	reconciler := &reconciler{mgr.GetClient(), all, mgr.GetEventRecorderFor("icecream-controller")} //nolint:staticcheck // the recorder that the controller has
	if err := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.Icecream{}).
		Owns(&appsv1.Deployment{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(icecreamOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers}).
		Complete(reconciler); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// icecreamOf returns the request for a Pod's Icecream.
func icecreamOf(_ context.Context, pod client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[label]}}}
}

type reconciler struct {
	client.Client
	scheme   *runtime.Scheme
	recorder record.EventRecorder
}

// Reconcile brings one Icecream closer to what its spec asks for.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var ice v1alpha1.Icecream
	if err := r.Get(ctx, req.NamespacedName, &ice); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if ice.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: nameOf(&ice)}}
	written, err := controllerutil.CreateOrUpdate(ctx, r.Client, d, func() error {
		mutate(d, &ice)
		return controllerutil.SetControllerReference(&ice, d, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if written != controllerutil.OperationResultNone {
		r.recorder.Eventf(&ice, corev1.EventTypeNormal, "Deployment", "Deployment %q: %s", d.Name, written)
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(ice.Namespace), client.MatchingFields{label: ice.Name}); err != nil {
		return ctrl.Result{}, err
	}
	before := ice.Status.DeepCopy()
	setStatus(&ice, d, pods.Items)
	if equality.Semantic.DeepEqual(*before, ice.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Status().Update(ctx, &ice); err != nil {
		return ctrl.Result{}, err
	}
	if !meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionReady) && meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionReady) {
		r.recorder.Event(&ice, corev1.EventTypeNormal, v1alpha1.ReasonSynced, "Icecream synced successfully")
	}
	return ctrl.Result{}, nil
}

func nameOf(ice *v1alpha1.Icecream) string {
	if ice.Spec.DeploymentName != "" {
		return ice.Spec.DeploymentName
	}
	return ice.Name
}

// mutate sets the fields of a Deployment that its Icecream asks for.
func mutate(d *appsv1.Deployment, ice *v1alpha1.Icecream) {
	own := map[string]string{"app.kubernetes.io/managed-by": "icecream-controller", label: ice.Name}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	maps.Copy(d.Labels, own)
	d.Spec.Replicas = ptr.To(ptr.Deref(ice.Spec.Replicas, 1))
	if d.Spec.Selector == nil {
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{label: ice.Name}}
	}
	template := &d.Spec.Template
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	maps.Copy(template.Labels, own)
	template.Spec.AutomountServiceAccountToken = ptr.To(false)
	if len(template.Spec.Containers) == 0 {
		template.Spec.Containers = []corev1.Container{{Name: "icecream"}}
	}
	template.Spec.Containers[0].Image = ice.Spec.Image
	template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: ice.Spec.Resources.Limits, Requests: ice.Spec.Resources.Requests}
}

// setStatus sets the status from the Deployment and its Pods.
func setStatus(ice *v1alpha1.Icecream, d *appsv1.Deployment, pods []corev1.Pod) {
	nodes := map[string]*v1alpha1.IcecreamNode{}
	var ready int32
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		node := nodes[pod.Spec.NodeName]
		if node == nil {
			node = &v1alpha1.IcecreamNode{Name: pod.Spec.NodeName}
			nodes[pod.Spec.NodeName] = node
		}
		node.Pods++
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				node.ReadyPods++
				ready++
			}
		}
	}
	s := &ice.Status
	s.ObservedGeneration = ice.Generation
	s.Selector = metav1.FormatLabelSelector(d.Spec.Selector)
	s.Replicas, s.ReadyReplicas = d.Status.Replicas, d.Status.ReadyReplicas
	s.AvailableReplicas, s.UpdatedReplicas = d.Status.AvailableReplicas, d.Status.UpdatedReplicas
	s.Nodes, s.NodeCount = nil, int32(len(nodes))
	var placement []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		s.Nodes = append(s.Nodes, *nodes[name])
		placement = append(placement, fmt.Sprintf("%s (%d)", name, nodes[name].Pods))
	}
	s.Placement = strings.Join(placement, ", ")
	wanted := *d.Spec.Replicas
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProgressing, ObservedGeneration: ice.Generation,
		Message: message(d.Status.AvailableReplicas, wanted),
	}
	isRolledOut := d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == wanted && d.Status.AvailableReplicas == wanted
	if isRolledOut && ready == wanted {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAvailable
	}
	meta.SetStatusCondition(&s.Conditions, condition)
}

// message says the same as the controller does, so that both leave the same statuses alone.
func message(available, wanted int32) string {
	switch wanted {
	case 0:
		return "Scaled to zero"
	case 1:
		return fmt.Sprintf("%d of 1 Pod available", available)
	}
	return fmt.Sprintf("%d of %d Pods available", available, wanted)
}
