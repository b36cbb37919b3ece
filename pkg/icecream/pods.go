package icecream

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

// Pod is what Status needs to know about a Pod.
type Pod struct {
	Name         string
	Node         string // empty while it is not scheduled
	ReplicaSet   string // the name of its controller
	TemplateHash string // the Deployment controller's hash of its template
	Created      time.Time
	Ready        bool
	Failed       bool // for good; its ReplicaSet replaces it
	Terminating  bool
	Problem      podproblem.Problem
}

// PodOf reads a Pod. counts is false if it has succeeded, or was removed from its ReplicaSet, for example to debug it.
func PodOf(pod *corev1.Pod, now time.Time) (p Pod, counts bool) {
	if !hasController(pod, appsv1.GroupName, "ReplicaSet") || pod.Status.Phase == corev1.PodSucceeded {
		return Pod{}, false
	}
	return Pod{
		Name:         pod.Name,
		Node:         pod.Spec.NodeName,
		ReplicaSet:   metav1.GetControllerOfNoCopy(pod).Name,
		TemplateHash: pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey],
		Created:      pod.CreationTimestamp.Time,
		Ready:        podproblem.IsReady(pod),
		Failed:       pod.Status.Phase == corev1.PodFailed,
		Terminating:  pod.DeletionTimestamp != nil,
		Problem:      podproblem.Of(pod, now),
	}, true
}

// isOf reports whether the Pod belongs to the Deployment: kube-controller-manager derives the name of a ReplicaSet from
// its Deployment's. Labels prove nothing.
func (p Pod) isOf(d *appsv1.Deployment) bool {
	name, isHashed := strings.CutSuffix(p.ReplicaSet, "-"+p.TemplateHash)
	longest := validation.DNS1123SubdomainMaxLength - len("-"+p.TemplateHash)
	return isHashed && name == d.Name[:min(len(d.Name), max(0, longest))]
}

// ofDeployment yields the Pods of the Icecream's Deployment: none until the Deployment controller has seen it, because
// earlier Pods belong to a previous Deployment of the same name.
func (o Observed) ofDeployment() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		d := o.Own()
		if d == nil || d.Status.ObservedGeneration == 0 {
			return
		}
		for _, pod := range o.Pods {
			if pod.isOf(d) && !yield(pod) {
				return
			}
		}
	}
}

// placement counts the Pods by node, sorted by the name of the node.
func (o Observed) placement() []v1alpha1.IcecreamNode {
	nodes := map[string]v1alpha1.IcecreamNode{}
	for pod := range o.ofDeployment() {
		if pod.Node == "" || pod.Failed || pod.Terminating {
			continue
		}
		node := nodes[pod.Node]
		node.Name = pod.Node
		node.Pods++
		if pod.Ready {
			node.ReadyPods++
		}
		nodes[pod.Node] = node
	}
	return slices.SortedFunc(maps.Values(nodes), func(a, b v1alpha1.IcecreamNode) int { return strings.Compare(a.Name, b.Name) })
}

// podTemplate is what is known of the Pods of one template.
type podTemplate struct {
	hash   string
	first  time.Time // when its first Pod was created: an old template can get a new Pod
	active int32     // Pods that have not failed for good
	worst  podproblem.Problem
}

// templates returns the templates of the Pods that are not terminating, the newest first.
func (o Observed) templates() []podTemplate {
	all := map[string]podTemplate{}
	for pod := range o.ofDeployment() {
		if pod.Terminating {
			continue
		}
		t, isKnown := all[pod.TemplateHash]
		if !isKnown || pod.Created.Before(t.first) {
			t.first = pod.Created
		}
		t.hash, t.worst = pod.TemplateHash, worse(t.worst, pod.Problem)
		if !pod.Failed {
			t.active++
		}
		all[pod.TemplateHash] = t
	}
	return slices.SortedFunc(maps.Values(all), func(a, b podTemplate) int {
		return cmp.Or(b.first.Compare(a.first), strings.Compare(a.hash, b.hash))
	})
}

// problem returns the worst problem of the Pods with the current template, and when to look again. That template is the
// newest with as many Pods as the Deployment's status counts as up to date.
//
// Until the cache shows all Pods of that status, an old template could be taken for it. Then, and for any other
// template, a problem counts only if it is already reported or the Deployment has timed out.
func (o Observed) problem() (p podproblem.Problem, recheckAfter time.Duration) {
	d := o.Own()
	if d == nil {
		return p, 0
	}
	var terminating podproblem.Problem
	for pod := range o.ofDeployment() {
		recheckAfter = pace.Sooner(recheckAfter, pod.Problem.RecheckAfter)
		if pod.Terminating {
			terminating = worse(terminating, pod.Problem)
		}
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && isObserved(d) && d.Status.UpdatedReplicas == 0 {
		return terminating, recheckAfter // No new Pod is created until they have ended.
	}
	templates := o.templates()
	current := slices.IndexFunc(templates, func(t podTemplate) bool { return t.active == d.Status.UpdatedReplicas })
	if current >= 0 && isObserved(d) && o.active() >= d.Status.Replicas {
		p = templates[current].worst
	}
	for _, t := range templates {
		if p.Reason == "" && (hasTimedOut(d) || o.isReported(t.worst.Reason)) {
			p = t.worst
		}
	}
	return p, recheckAfter
}

// active counts the labeled Pods that are neither failed nor terminating, including those of a ReplicaSet that the
// Deployment has adopted.
func (o Observed) active() (n int32) {
	for _, pod := range o.Pods {
		if !pod.Failed && !pod.Terminating {
			n++
		}
	}
	return n
}

// isReported reports whether the status already gives this reason for the current generation.
func (o Observed) isReported(reason string) bool {
	status := o.Icecream.Status
	return status.ObservedGeneration == o.Icecream.Generation && ReadyOf(status).Reason == reason
}

// worse returns the problem to report: a failure before a Pod that only waits, then the older problem.
func worse(a, b podproblem.Problem) podproblem.Problem {
	rank := func(p podproblem.Problem) int {
		switch p.Reason {
		case "":
			return 0
		case podproblem.NotReady:
			return 1
		default:
			return 2
		}
	}
	if cmp.Or(rank(b)-rank(a), a.Since.Compare(b.Since), strings.Compare(a.Message, b.Message)) <= 0 {
		return a
	}
	return b
}
