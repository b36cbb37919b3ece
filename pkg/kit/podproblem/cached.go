package podproblem

import (
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Keeper says what a cache keeps of each Pod besides what it is and what is wrong with it.
type Keeper struct {
	Kind string   // the kind of controller that keeps the Pods running, such as ReplicaSet
	Keys []string // of labels and annotations
}

// Pod is what a cache keeps of a Pod, which is little, because it holds many: about 110 bytes
// and the name. What many Pods have in common is in memory once.
type Pod struct {
	keeper                  *Keeper
	name, resourceVersion   string
	namespace, node, values unique.Handle[string]

	since     time.Time
	problem   *Problem // nil if nothing is known to be wrong
	isReady   bool
	isReplica bool
}

// separator is between the values of labels and annotations. Neither can contain it.
const separator = "\x00"

// Keep returns what a cache keeps of the Pod. The Keeper must not be changed afterward.
func (k *Keeper) Keep(pod *corev1.Pod) *Pod {
	values := make([]string, len(k.Keys))
	for i, key := range k.Keys {
		value, ok := pod.Labels[key]
		if !ok {
			value = pod.Annotations[key]
		}
		values[i] = value
	}
	kept := &Pod{
		keeper:          k,
		name:            pod.Name,
		resourceVersion: pod.ResourceVersion,
		namespace:       unique.Make(pod.Namespace),
		node:            unique.Make(pod.Spec.NodeName),
		values:          unique.Make(strings.Join(values, separator)),
		isReplica:       isReplica(pod, k.Kind),
	}
	kept.isReady, kept.since = Ready(pod)
	if problem := Of(pod); problem != (Problem{}) {
		kept.problem = &problem
	}
	return kept
}

// IsReplica reports whether the Pod counts as one of those that a controller of the Keeper's
// kind keeps running: the controller has not given it up, and it is neither ending nor has
// ended. A controller gives up a Pod that loses a label of its selector.
func (p *Pod) IsReplica() bool { return p.isReplica }

// Ready is [Ready] of the Pod.
func (p *Pod) Ready() (isReady bool, since time.Time) { return p.isReady, p.since }

// Problem is [Of] the Pod.
func (p *Pod) Problem() Problem { return ptr.Deref(p.problem, Problem{}) }

// Node returns the name of the Pod's node; empty while it is not scheduled.
func (p *Pod) Node() string { return p.node.Value() }

// Value returns the value of a label or an annotation, which has to be one of the Keeper's.
// It is empty if the Pod does not have it.
func (p *Pod) Value(key string) string {
	values := p.values.Value()
	for range slices.Index(p.keeper.Keys, key) {
		_, values, _ = strings.Cut(values, separator)
	}
	value, _, _ := strings.Cut(values, separator)
	return value
}

// IsAs reports whether nothing that is kept has changed since another version of the Pod,
// apart from the version.
func (p *Pod) IsAs(other *Pod) bool {
	a, b := *p, *other
	isSameProblem := ptr.Equal(a.problem, b.problem)
	a.resourceVersion, a.problem, b.resourceVersion, b.problem = "", nil, "", nil
	return a == b && isSameProblem
}

// GetName returns the Pod's name.
func (p *Pod) GetName() string { return p.name }

// GetNamespace returns the Pod's namespace.
func (p *Pod) GetNamespace() string { return p.namespace.Value() }

// GetObjectMeta implements metav1.ObjectMetaAccessor, for the informer.
func (p *Pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.namespace.Value(), Name: p.name, ResourceVersion: p.resourceVersion}
}

func isReplica(pod *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == kind &&
		pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
