package icecream

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// TestDecisions plays the stories in testdata/decisions, each about one Icecream in a small
// world. After an edit, run it with -rewrite. These are the commands:
//
//	icecream KEY=VALUE...         somebody creates or edits the Icecream, or deletes it
//	deployment NAME KEY=VALUE...  somebody creates, edits or deletes a Deployment
//	rollout                       the Deployment controller and the garbage collector finish
//	pods waits=REASON             the Pods get no further than that; without it, they run
//	wait DURATION                 time passes
//	sync refused=MESSAGE          the controller syncs once; with a message, its write is refused
//	decide CHANGE...              what would be decided if its own Deployment had changed so
//
// A sync shows what was decided, what the status says then, and the events.
func TestDecisions(t *testing.T) {
	datadriven.Walk(t, "testdata/decisions", func(t *testing.T, path string) {
		w := newWorld(t, nil)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.tb = t
			switch d.Cmd {
			case "icecream":
				return editIcecream(t, w, d)
			case "deployment":
				return editDeployment(t, w, d)
			case "rollout":
				w.rollOut()
				return deploymentsOf(w)
			case "pods":
				w.waits = argOf(d, "waits")
				return ""
			case "wait":
				passed, err := time.ParseDuration(d.CmdArgs[0].Key)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				w.now = w.now.Add(passed)
				return ""
			case "sync":
				return look(w, argOf(d, "refused"))
			case "decide":
				return decide(t, d)
			}
			d.Fatalf(t, "there is no command %q", d.Cmd)
			return ""
		})
	})
}

func argOf(d *datadriven.TestData, key string) string {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			return strings.Join(arg.Vals, " ")
		}
	}
	return ""
}

func number(t *testing.T, d *datadriven.TestData, text string) *int32 {
	n, err := strconv.Atoi(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return ptr.To(int32(n))
}

func editIcecream(t *testing.T, w *world, d *datadriven.TestData) string {
	if w.ice == nil {
		w.ice = newIcecream()
	} else {
		w.ice = w.ice.DeepCopy()
		w.ice.Generation++
	}
	for _, arg := range d.CmdArgs {
		switch value := strings.Join(arg.Vals, " "); arg.Key {
		case "deploymentName":
			w.ice.Spec.DeploymentName = value
		case "replicas":
			w.ice.Spec.Replicas = number(t, d, value)
		case "deleted":
			beingDeleted(w.ice)
		default:
			d.Fatalf(t, "an Icecream has no %q", arg.Key)
		}
	}
	return fmt.Sprintf("generation %d", w.ice.Generation)
}

func editDeployment(t *testing.T, w *world, d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	if w.deployment(name) == nil {
		app := map[string]string{"app": name}
		var err error
		w.store, err = model.Create(w.store, w.now, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ice.Namespace, Name: name},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: app},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "mud:1"}}},
				},
			},
		})
		w.check(err)
	}
	for _, arg := range d.CmdArgs[1:] {
		value := strings.Join(arg.Vals, " ")
		if arg.Key == "being-deleted" {
			w.delete(name)
			continue
		}
		w.edit("somebody", name, func(live *appsv1.Deployment) {
			switch arg.Key {
			case "replicas":
				live.Spec.Replicas = number(t, d, value)
			case "finalizer":
				live.Finalizers = []string{value}
			case "owner":
				live.OwnerReferences = map[string][]metav1.OwnerReference{
					"another": {{APIVersion: "v1", Kind: "ConfigMap", Name: "another", UID: "uid-of-another", Controller: ptr.To(true)}},
					"ghost":   {{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Icecream", Name: "ghost", UID: ghost, Controller: ptr.To(true)}},
				}[value]
			default:
				d.Fatalf(t, "a Deployment has no %q", arg.Key)
			}
		})
	}
	return deploymentsOf(w)
}

// decide says what is decided about an Icecream whose Deployment has changed.
func decide(t *testing.T, d *datadriven.TestData) string {
	ice, live := newIcecream(), made(t, newIcecream())
	for _, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, " ")
		switch arg.Key {
		case "gone":
			return inWordsOf(asking(seeing(ice)))
		case "orphaned":
			live.OwnerReferences = nil
		case "owner-uid":
			live.OwnerReferences[0].UID = types.UID(value)
		case "owner-kind":
			live.OwnerReferences[0].Kind = value
		case "owner-version":
			live.OwnerReferences[0].APIVersion = v1alpha1.GroupName + "/" + value
		case "controlled-by":
			live.OwnerReferences[0].Controller = nil
			live.OwnerReferences = append(live.OwnerReferences, metav1.OwnerReference{UID: types.UID(value), Controller: ptr.To(true)})
		case "selects":
			live.Spec.Selector.MatchLabels["flavor"] = value
		case "selects-any":
			live.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: value, Operator: metav1.LabelSelectorOpExists}}
		case "managed-by":
			live.Labels[labelManagedBy] = value
		case "being-deleted":
			beingDeleted(live)
		case "scaled":
			scaled(live)
		case "icecream-uid":
			ice.UID = types.UID(value)
		case "icecream-being-deleted":
			beingDeleted(ice)
		default:
			d.Fatalf(t, "there is no change %q", arg.Key)
		}
	}
	return inWordsOf(asking(seeing(ice, live)))
}

// deploymentsOf says in a line each what there is.
func deploymentsOf(w *world) string {
	var lines []string
	for _, d := range w.deployments() {
		owner := "nobody's"
		if ref := metav1.GetControllerOf(d); ref != nil && ref.UID == w.ice.UID {
			owner = "the Icecream's"
		} else if ref != nil {
			owner = ref.Name + "'s"
		}
		line := fmt.Sprintf("Deployment %s: %s, %d of %d Pods available", d.Name, owner, d.Status.AvailableReplicas, *d.Spec.Replicas)
		if d.DeletionTimestamp != nil {
			line += ", being deleted"
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "no Deployments"
	}
	return strings.Join(lines, "\n")
}

// look syncs once, and says what came of it.
func look(w *world, refused string) string {
	var refusal error
	if refused != "" {
		refusal = forbidden(refused)
	}
	s := w.sync(refusal)
	lines := []string{"decision: " + s.words, "status: " + verdictOf(w.ice.Status) + ": " + messageOf(w.ice.Status)}
	for _, e := range s.events {
		lines = append(lines, "event: "+e)
	}
	if after := s.report.RequeueAfter; after > 0 {
		lines = append(lines, fmt.Sprintf("requeue after: %s", after.Truncate(time.Second)))
	}
	return strings.Join(lines, "\n")
}

// inWordsOf says what is to be done, or why nothing is.
func inWordsOf(o Observed, plan Plan) string {
	var parts []string
	if plan.Adopts {
		parts = append(parts, "recheck what is live")
	}
	switch due := o.Standing.Due; {
	case len(due) > 0 && o.Live == nil:
		parts = append(parts, "create "+DeploymentName(o.Icecream))
	case len(due) > 0:
		parts = append(parts, fmt.Sprintf("update %s: %s", o.Live.Name, driftOf(o, due)))
	case o.Standing.IsOpen:
		parts = append(parts, "wait for "+o.conclude(plan).Reason)
	case plan.Held.Reason == "":
		parts = append(parts, "nothing to do")
	case plan.Held.State == kstatus.Stalled:
		parts = append(parts, "blocked by "+plan.Held.Reason)
	default:
		parts = append(parts, "wait for "+plan.Held.Reason)
	}
	return strings.Join(parts, "; ")
}
