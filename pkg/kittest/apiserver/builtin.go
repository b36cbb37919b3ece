package apiserver

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Deployments returns the kind apps/v1 Deployment, without the status subresource.
func Deployments() Kind {
	return Kind{Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Kind: "Deployment", strategy: strategy{
		Namespaced:          true,
		empty:               func() Object { return &appsv1.Deployment{} },
		unconditionalUpdate: true,
		fields:              deploymentFields,
		setDefaults:         func(obj Object) { setDeploymentDefaults(obj.(*appsv1.Deployment)) },
		prepareCreate: func(obj Object) {
			d := obj.(*appsv1.Deployment)
			d.Status, d.Generation = appsv1.DeploymentStatus{}, 1
		},
		prepareUpdate: func(is, was Object) {
			d, old := is.(*appsv1.Deployment), was.(*appsv1.Deployment)
			d.Status = old.Status
			if !equality.Semantic.DeepEqual(d.Spec, old.Spec) || !equality.Semantic.DeepEqual(d.Annotations, old.Annotations) {
				d.Generation = old.Generation + 1
			}
		},
		validate: validateDeployment,
	}}
}

// StatefulSets returns the kind apps/v1 StatefulSet, without the status subresource.
func StatefulSets() Kind {
	return Kind{Resource: appsv1.SchemeGroupVersion.WithResource("statefulsets"), Kind: "StatefulSet", strategy: strategy{
		Namespaced:          true,
		empty:               func() Object { return &appsv1.StatefulSet{} },
		unconditionalUpdate: true,
		fields:              statefulSetFields,
		setDefaults:         func(obj Object) { setStatefulSetDefaults(obj.(*appsv1.StatefulSet)) },
		prepareCreate: func(obj Object) {
			s := obj.(*appsv1.StatefulSet)
			s.Status, s.Generation = appsv1.StatefulSetStatus{}, 1
		},
		prepareUpdate: func(is, was Object) {
			s, old := is.(*appsv1.StatefulSet), was.(*appsv1.StatefulSet)
			s.Status = old.Status
			if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
				s.Generation = old.Generation + 1
			}
		},
		validate: validateStatefulSet,
	}}
}

// ReplicaSets returns the kind apps/v1 ReplicaSet. Requests can change only the metadata.
func ReplicaSets() Kind {
	return Kind{Resource: appsv1.SchemeGroupVersion.WithResource("replicasets"), Kind: "ReplicaSet", strategy: strategy{
		Namespaced:          true,
		empty:               func() Object { return &appsv1.ReplicaSet{} },
		isPut:               true,
		unconditionalUpdate: true,
	}}
}

// Pods returns the kind v1 Pod. Requests can change only the metadata. Neither defaults nor
// admission plugins change a new Pod.
func Pods() Kind {
	return Kind{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", strategy: strategy{
		Namespaced:          true,
		empty:               func() Object { return &corev1.Pod{} },
		unconditionalUpdate: true,
		returnsDeleted:      true,
		prepareCreate: func(obj Object) {
			p := obj.(*corev1.Pod)
			p.Status, p.Generation = corev1.PodStatus{Phase: corev1.PodPending}, 1
		},
		prepareUpdate: func(is, was Object) { is.(*corev1.Pod).Status = was.(*corev1.Pod).Status },
		validate:      validatePod,
		gracePeriod:   podGracePeriod,
	}}
}

// podGracePeriod returns for how many seconds a Pod may still run once it is to be deleted.
func podGracePeriod(obj Object, requested *int64) int64 {
	p := obj.(*corev1.Pod)
	hasEnded := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	if p.Spec.NodeName == "" || hasEnded {
		return 0
	}
	if requested == nil {
		requested = p.Spec.TerminationGracePeriodSeconds
	}
	return ptr.Deref(requested, 0)
}

// Secrets returns the kind v1 Secret.
func Secrets() Kind {
	return Kind{Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", strategy: strategy{
		Namespaced:          true,
		empty:               func() Object { return &corev1.Secret{} },
		unconditionalUpdate: true,
		setDefaults:         func(obj Object) { setSecretDefaults(obj.(*corev1.Secret)) },
		validate:            validateSecret,
	}}
}

// Nodes returns the kind v1 Node, without the status subresource.
func Nodes() Kind {
	return Kind{Resource: corev1.SchemeGroupVersion.WithResource("nodes"), Kind: "Node", strategy: strategy{
		empty:               func() Object { return &corev1.Node{} },
		isPut:               true,
		unconditionalUpdate: true,
		prepareUpdate:       func(is, was Object) { is.(*corev1.Node).Status = was.(*corev1.Node).Status },
	}}
}

// Namespaces returns the kind v1 Namespace, without the status subresource. A deletion ignores
// the propagation policy. [Server.Collect] takes the place of the controller that empties and
// finalizes namespaces that are being deleted.
func Namespaces() Kind {
	return Kind{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", strategy: strategy{
		empty:               func() Object { return &corev1.Namespace{} },
		isNamespace:         true,
		unconditionalUpdate: true,
		setDefaults: func(obj Object) {
			n := obj.(*corev1.Namespace)
			metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name)
		},
		prepareCreate: func(obj Object) {
			n := obj.(*corev1.Namespace)
			n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
				n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		},
		prepareUpdate: func(is, was Object) {
			n, old := is.(*corev1.Namespace), was.(*corev1.Namespace)
			n.Spec, n.Status = old.Spec, old.Status
		},
		validateName: apivalidation.ValidateNamespaceName,
	}}
}

// Leases returns the kind coordination.k8s.io/v1 Lease, whose spec is not validated.
func Leases() Kind {
	return Kind{Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease", strategy: strategy{
		Namespaced:     true,
		empty:          func() Object { return &coordinationv1.Lease{} },
		createOnUpdate: true,
	}}
}

// EventObjects returns the kind v1 Event. Only the metadata is validated.
func EventObjects() Kind {
	return Kind{Resource: corev1.SchemeGroupVersion.WithResource("events"), Kind: "Event", strategy: strategy{
		Namespaced:          true,
		empty:               func() Object { return &corev1.Event{} },
		unconditionalUpdate: true,
		createOnUpdate:      true,
	}}
}
