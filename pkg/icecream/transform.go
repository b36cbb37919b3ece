package icecream

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/compact"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

// resources are those that Icecreams have asked for. Most ask for the same, and each list of
// them takes as much memory as all the rest of an Icecream.
var resources = compact.NewShared[v1alpha1.IcecreamResources](1024)

// CompactIcecream reduces an Icecream to what the cache keeps of it. What many of them have
// in common is in memory once.
func CompactIcecream(ice *v1alpha1.Icecream) {
	compact.Metadata(&ice.ObjectMeta)
	ice.Labels = nil // nobody here reads them
	ice.Spec.Resources = resources.Of(ice.Spec.Resources)
	compact.Share(&ice.Spec.Image)
	// The decoder leaves room for more of these.
	ice.Status.Conditions, ice.Status.Nodes = slices.Clone(ice.Status.Conditions), slices.Clone(ice.Status.Nodes)
	compact.Conditions(ice.Status.Conditions)
	for _, name := range []*string{&ice.Spec.DeploymentName, &ice.Status.DeploymentName} {
		if *name == ice.Name {
			*name = ice.Name
		}
	}
	for i := range ice.Status.Nodes {
		compact.Share(&ice.Status.Nodes[i].Name)
	}
}

// Pod is what the status needs to know about a Pod.
type Pod struct {
	Name       string
	Node       string // empty while it is not scheduled
	Deployment string // the value of LabelDeployment
	SpecHash   string // the value of AnnotationSpecHash
	Ready      bool
	Since      time.Time          // when Ready became what it is, at the earliest at its creation
	Problem    podproblem.Problem // the zero value if nothing is known to be wrong
}

// kept says what is kept of Pods.
var kept = podproblem.Keeper{Kind: "ReplicaSet", Keys: []string{LabelIcecream, LabelDeployment, AnnotationSpecHash}}

// CachePod returns what the cache keeps of a Pod.
func CachePod(pod *corev1.Pod) *podproblem.Pod { return kept.Keep(pod) }

// PodOf reads a Pod. counts is false for one that is no replica: it is ending, has
// ended, or was removed from its ReplicaSet, for debugging for example.
func PodOf(pod *podproblem.Pod) (p Pod, counts bool) {
	if !pod.IsReplica() {
		return Pod{}, false
	}
	p = Pod{
		Name:       pod.GetName(),
		Node:       pod.Node(),
		Deployment: pod.Value(LabelDeployment),
		SpecHash:   pod.Value(AnnotationSpecHash),
		Problem:    pod.Problem(),
	}
	p.Ready, p.Since = pod.Ready()
	return p, true
}
