package apiserver

import (
	"net/http"
	"slices"
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// builtin knows the schema of all kinds of client-go.
var builtin = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

// typed is a pointer to a type of client-go.
type typed[T any] interface {
	*T
	object
}

// hooks are functions of a strategy for one type.
type hooks[T any, P typed[T]] struct {
	setDefaults, admit                                func(P)
	prepareCreate                                     func(P, int64)
	prepareUpdate, prepareStatusUpdate                func(obj, old P)
	validate                                          func(P) field.ErrorList
	validateUpdate, validateStatusUpdate              func(obj, old P) field.ErrorList
	fields                                            func(P) fields.Set
	gracePeriod                                       func(P, *int64) int64
	canBeDeletedByUpdate                              func(P) bool
	unconditionalUpdate, createOnUpdate, returnsThose bool
	resets, statusResets                              []fieldpath.Path
}

// strategyFor returns a strategy for the objects of one type.
func strategyFor[T any, P typed[T]](prefix string, h hooks[T, P]) strategy {
	s := strategy{
		prefix:              prefix,
		empty:               func() object { return P(new(T)) },
		converter:           builtin,
		unconditionalUpdate: h.unconditionalUpdate,
		createOnUpdate:      h.createOnUpdate,
		returnsDeleted:      h.returnsThose,
		resets:              h.resets,
		statusResets:        h.statusResets,
		validate:            func(obj object) field.ErrorList { return h.validate(obj.(P)) },
		validateUpdate:      func(obj, old object) field.ErrorList { return h.validateUpdate(obj.(P), old.(P)) },
	}
	s.setDefaults, s.admit = each[T](h.setDefaults), each[T](h.admit)
	s.prepareUpdate, s.prepareStatusUpdate = both[T](h.prepareUpdate), both[T](h.prepareStatusUpdate)
	if h.prepareCreate != nil {
		s.prepareCreate = func(obj object, generation int64) { h.prepareCreate(obj.(P), generation) }
	}
	if h.validateStatusUpdate != nil {
		s.validateStatusUpdate = func(obj, old object) field.ErrorList { return h.validateStatusUpdate(obj.(P), old.(P)) }
	}
	if h.fields != nil {
		s.fields = func(obj object) fields.Set { return h.fields(obj.(P)) }
	}
	if h.gracePeriod != nil {
		s.gracePeriod = func(obj object, requested *int64) int64 { return h.gracePeriod(obj.(P), requested) }
	}
	if h.canBeDeletedByUpdate != nil {
		s.canBeDeletedByUpdate = func(obj object) bool { return h.canBeDeletedByUpdate(obj.(P)) }
	}
	return s
}

func each[T any, P typed[T]](f func(P)) func(object) {
	if f == nil {
		return nil
	}
	return func(obj object) { f(obj.(P)) }
}

func both[T any, P typed[T]](f func(obj, old P)) func(obj, old object) {
	if f == nil {
		return nil
	}
	return func(obj, old object) { f(obj.(P), old.(P)) }
}

var (
	statusPath = []fieldpath.Path{fieldpath.MakePathOrDie("status")}
	specPath   = []fieldpath.Path{fieldpath.MakePathOrDie("spec")}
)

// Deployments returns the kind apps/v1 Deployment.
func Deployments() Kind {
	return Kind{appsv1.SchemeGroupVersion.WithResource("deployments"), "Deployment", true, true, strategyFor("/registry/deployments", hooks[appsv1.Deployment, *appsv1.Deployment]{
		unconditionalUpdate: true,
		resets:              statusPath,
		statusResets:        append([]fieldpath.Path{fieldpath.MakePathOrDie("metadata", "labels")}, specPath...),
		setDefaults:         setDeploymentDefaults,
		prepareCreate: func(d *appsv1.Deployment, generation int64) {
			d.Status, d.Generation = appsv1.DeploymentStatus{}, generation
		},
		prepareUpdate: func(d, old *appsv1.Deployment) {
			d.Status = old.Status
			if !equality.Semantic.DeepEqual(d.Spec, old.Spec) || !equality.Semantic.DeepEqual(d.Annotations, old.Annotations) {
				d.Generation = old.Generation + 1
			}
		},
		prepareStatusUpdate:  func(d, old *appsv1.Deployment) { d.Spec, d.Labels = old.Spec, old.Labels },
		validate:             validateDeployment,
		validateUpdate:       validateDeploymentUpdate,
		validateStatusUpdate: validateDeploymentStatusUpdate,
	})}
}

// ReplicaSets returns the kind apps/v1 ReplicaSet.
func ReplicaSets() Kind {
	return Kind{appsv1.SchemeGroupVersion.WithResource("replicasets"), "ReplicaSet", true, true, strategyFor("/registry/replicasets", hooks[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
		unconditionalUpdate: true,
		resets:              statusPath,
		statusResets:        specPath,
		setDefaults:         setReplicaSetDefaults,
		prepareCreate: func(r *appsv1.ReplicaSet, generation int64) {
			r.Status, r.Generation = appsv1.ReplicaSetStatus{}, generation
		},
		prepareUpdate: func(r, old *appsv1.ReplicaSet) {
			r.Status = old.Status
			if !equality.Semantic.DeepEqual(r.Spec, old.Spec) {
				r.Generation = old.Generation + 1
			}
		},
		prepareStatusUpdate:  func(r, old *appsv1.ReplicaSet) { r.Spec = old.Spec },
		validate:             validateReplicaSet,
		validateUpdate:       validateReplicaSetUpdate,
		validateStatusUpdate: validateReplicaSetStatusUpdate,
	})}
}

// Pods returns the kind v1 Pod. New Pods get what the admission plugins of a new cluster set,
// except for the volume with the token, whose name is random.
func Pods() Kind {
	return Kind{corev1.SchemeGroupVersion.WithResource("pods"), "Pod", true, true, strategyFor("/registry/pods", hooks[corev1.Pod, *corev1.Pod]{
		unconditionalUpdate: true,
		returnsThose:        true,
		resets:              statusPath,
		statusResets: append([]fieldpath.Path{
			fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
			fieldpath.MakePathOrDie("metadata", "ownerReferences"),
		}, specPath...),
		setDefaults: setPodDefaults,
		admit:       admitPod,
		prepareCreate: func(p *corev1.Pod, generation int64) {
			p.Status, p.Generation = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qualityOf(p)}, generation
		},
		prepareUpdate: func(p, old *corev1.Pod) {
			p.Status = old.Status
			if !equality.Semantic.DeepEqual(p.Spec, old.Spec) {
				p.Generation = old.Generation + 1
			}
		},
		prepareStatusUpdate:  preparePodStatusUpdate,
		validate:             validatePod,
		validateUpdate:       validatePodUpdate,
		validateStatusUpdate: validatePodStatusUpdate,
		gracePeriod:          podGracePeriod,
		fields: func(p *corev1.Pod) fields.Set {
			return fields.Set{
				"spec.nodeName":           p.Spec.NodeName,
				"spec.restartPolicy":      string(p.Spec.RestartPolicy),
				"spec.schedulerName":      p.Spec.SchedulerName,
				"spec.serviceAccountName": p.Spec.ServiceAccountName,
				"spec.hostNetwork":        strconv.FormatBool(p.Spec.HostNetwork),
				"status.phase":            string(p.Status.Phase),
				"status.podIP":            p.Status.PodIP,
			}
		},
	})}
}

// podGracePeriod returns for how long a Pod may still run once it is to be deleted.
func podGracePeriod(p *corev1.Pod, requested *int64) int64 {
	hasEnded := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	if p.Spec.NodeName == "" || hasEnded {
		return 0
	}
	if requested == nil {
		requested = p.Spec.TerminationGracePeriodSeconds
	}
	seconds := ptr.Deref(requested, 0)
	if seconds < 0 {
		return 1
	}
	return seconds
}

func preparePodStatusUpdate(p, old *corev1.Pod) {
	p.Spec, p.DeletionTimestamp, p.OwnerReferences = old.Spec, nil, old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	if p.Status.ObservedGeneration == 0 {
		p.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
	known := map[corev1.PodConditionType][]int64{}
	for _, condition := range old.Status.Conditions {
		known[condition.Type] = append(known[condition.Type], condition.ObservedGeneration)
	}
	for i, condition := range p.Status.Conditions {
		if generations := known[condition.Type]; len(generations) > 0 {
			known[condition.Type] = generations[1:]
			if condition.ObservedGeneration == 0 {
				p.Status.Conditions[i].ObservedGeneration = generations[0]
			}
		}
	}
}

// Secrets returns the kind v1 Secret.
func Secrets() Kind {
	return Kind{corev1.SchemeGroupVersion.WithResource("secrets"), "Secret", true, false, strategyFor("/registry/secrets", hooks[corev1.Secret, *corev1.Secret]{
		unconditionalUpdate: true,
		setDefaults:         setSecretDefaults,
		validate:            validateSecret,
		validateUpdate:      validateSecretUpdate,
		fields:              func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
	})}
}

// Nodes returns the kind v1 Node. New Nodes get the taint that says that they are not ready.
func Nodes() Kind {
	return Kind{corev1.SchemeGroupVersion.WithResource("nodes"), "Node", false, true, strategyFor("/registry/minions", hooks[corev1.Node, *corev1.Node]{
		unconditionalUpdate: true,
		resets:              statusPath,
		statusResets:        specPath,
		setDefaults:         setNodeDefaults,
		admit:               admitNode,
		prepareUpdate:       func(n, old *corev1.Node) { n.Status = old.Status },
		prepareStatusUpdate: func(n, old *corev1.Node) { n.Spec = old.Spec },
		validate:            validateNode,
		validateUpdate: func(n, old *corev1.Node) field.ErrorList {
			return append(validateNode(n), validateNodeUpdate(n, old)...)
		},
		validateStatusUpdate: validateNodeUpdate,
		fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
	})}
}

// Namespaces returns the kind v1 Namespace. [Server.Collect] takes the place of the controller
// that empties and finalizes namespaces that are being deleted.
func Namespaces() Kind {
	return Kind{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace", false, true, strategyFor("/registry/namespaces", hooks[corev1.Namespace, *corev1.Namespace]{
		unconditionalUpdate:  true,
		resets:               statusPath,
		statusResets:         specPath,
		setDefaults:          setNamespaceDefaults,
		prepareCreate:        prepareNewNamespace,
		prepareUpdate:        func(n, old *corev1.Namespace) { n.Spec.Finalizers, n.Status = old.Spec.Finalizers, old.Status },
		prepareStatusUpdate:  func(n, old *corev1.Namespace) { n.Spec = old.Spec },
		validate:             validateNamespace,
		validateUpdate:       validateNamespaceUpdate,
		validateStatusUpdate: validateNamespaceStatusUpdate,
		canBeDeletedByUpdate: func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) == 0 },
		fields:               func(n *corev1.Namespace) fields.Set { return fields.Set{"status.phase": string(n.Status.Phase)} },
	})}
}

// Leases returns the kind coordination.k8s.io/v1 Lease.
func Leases() Kind {
	return Kind{coordinationv1.SchemeGroupVersion.WithResource("leases"), "Lease", true, false, strategyFor("/registry/leases", hooks[coordinationv1.Lease, *coordinationv1.Lease]{
		createOnUpdate: true,
		prepareCreate: func(l *coordinationv1.Lease, _ int64) {
			l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
		},
		prepareUpdate:  func(l, _ *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil },
		validate:       validateLease,
		validateUpdate: validateLeaseUpdate,
	})}
}

// EventObjects returns the kind v1 Event, which is hardly validated.
func EventObjects() Kind {
	valid := func(*corev1.Event) field.ErrorList { return nil }
	return Kind{corev1.SchemeGroupVersion.WithResource("events"), "Event", true, false, strategyFor("/registry/events", hooks[corev1.Event, *corev1.Event]{
		unconditionalUpdate: true,
		createOnUpdate:      true,
		validate:            valid,
		validateUpdate:      func(e, _ *corev1.Event) field.ErrorList { return valid(e) },
	})}
}

// deleteNamespace marks a namespace as terminating, which then waits for its finalizers.
func (d *deletion) deleteNamespace(obj object) (Response, error) {
	namespace := obj.(*corev1.Namespace)
	if p := d.options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != namespace.UID {
			return Response{}, d.conflict(differs("UID", *p.UID, namespace.UID))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != namespace.ResourceVersion {
			return Response{}, d.conflict(differs("ResourceVersion", *p.ResourceVersion, namespace.ResourceVersion))
		}
	}
	if namespace.DeletionTimestamp != nil {
		if len(namespace.Spec.Finalizers) > 0 {
			return respond(http.StatusOK, d.store.Objects[d.key]), nil
		}
		return d.delete(obj)
	}
	namespace.DeletionTimestamp = d.now.DeepCopy()
	namespace.Status.Phase = corev1.NamespaceTerminating
	if finalizers, hasChanged := d.finalizers(obj); hasChanged {
		namespace.Finalizers = finalizers
	}
	changed, err := d.put(d.key, namespace)
	if err != nil {
		return Response{}, err
	}
	return respond(http.StatusOK, changed), nil
}

func prepareNewNamespace(n *corev1.Namespace, _ int64) {
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name)
}
