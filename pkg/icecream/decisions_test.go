package icecream

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// TestDecisions plays the stories in testdata/decisions, each of which is a small world
// of one Icecream. After an edit, run it with -rewrite. These are the commands:
//
//	icecream KEY=VALUE...     somebody creates or edits the Icecream, or deletes it
//	deployment NAME KEY=VALUE...  somebody creates, edits or deletes a Deployment
//	rollout                   the Deployment controller and the garbage collector finish
//	pods waits=REASON         the Pods get no further than that; without it, they run
//	wait DURATION             time passes
//	sync [refused=MESSAGE]    the controller looks once, and writes, or is refused that
//
// A sync shows what was decided, what the status says then, and the events.
func TestDecisions(t *testing.T) {
	datadriven.Walk(t, "testdata/decisions", func(t *testing.T, path string) {
		w := &tale{t: t, server: newServer(t), now: now}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			switch d.Cmd {
			case "icecream":
				return w.editIcecream(d)
			case "deployment":
				return w.editDeployment(d)
			case "rollout":
				w.server.rollOut()
				return w.deployments()
			case "pods":
				w.waits = argOf(d, "waits")
				return w.deployments()
			case "wait":
				passed, err := time.ParseDuration(d.CmdArgs[0].Key)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				w.now = w.now.Add(passed)
				return ""
			case "sync":
				return w.sync(argOf(d, "refused"))
			}
			d.Fatalf(t, "there is no command %q", d.Cmd)
			return ""
		})
	})
}

// tale is the world of one file.
type tale struct {
	t      *testing.T
	server *server
	ice    *v1alpha1.Icecream
	memory Memory
	now    time.Time
	waits  string // what all Pods wait for
}

func argOf(d *datadriven.TestData, key string) string {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			return strings.Join(arg.Vals, " ")
		}
	}
	return ""
}

func (w *tale) number(d *datadriven.TestData, text string) int32 {
	n, err := strconv.Atoi(text)
	if err != nil {
		d.Fatalf(w.t, "%v", err)
	}
	return int32(n)
}

func (w *tale) editIcecream(d *datadriven.TestData) string {
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
			w.ice.Spec.Replicas = ptr.To(w.number(d, value))
		case "image":
			w.ice.Spec.Image = value
		case "deleted":
			beingDeleted(w.ice)
		default:
			d.Fatalf(w.t, "an Icecream has no %q", arg.Key)
		}
	}
	return fmt.Sprintf("generation %d", w.ice.Generation)
}

// ghost is the UID of an Icecream that no longer exists.
const ghost = types.UID("uid-of-a-ghost")

func (w *tale) editDeployment(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	if w.server.deployments[name] == nil {
		w.server.create("somebody", &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ice.Namespace, Name: name},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}},
			},
		})
	}
	for _, arg := range d.CmdArgs[1:] {
		value := strings.Join(arg.Vals, " ")
		w.server.update("somebody", name, func(live *appsv1.Deployment) {
			switch arg.Key {
			case "replicas":
				live.Spec.Replicas = ptr.To(w.number(d, value))
			case "image":
				live.Spec.Template.Spec.Containers[0].Image = value
			case "paused":
				live.Spec.Paused = true
			case "finalizer":
				live.Finalizers = []string{value}
			case "owner":
				live.OwnerReferences = map[string][]metav1.OwnerReference{
					"nobody":  nil,
					"another": {{APIVersion: "v1", Kind: "ConfigMap", Name: "another", UID: "uid-of-another", Controller: ptr.To(true)}},
					"ghost":   {{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Icecream", Name: "ghost", UID: ghost, Controller: ptr.To(true)}},
				}[value]
			case "being-deleted":
				beingDeleted(live)
			case "gone":
			default:
				d.Fatalf(w.t, "a Deployment has no %q", arg.Key)
			}
		})
		if arg.Key == "gone" {
			delete(w.server.deployments, name)
		}
	}
	return w.deployments()
}

// deployments says in a line each what there is.
func (w *tale) deployments() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(w.server.deployments)) {
		d := w.server.deployments[name]
		owner := "nobody's"
		if ref := metav1.GetControllerOf(d); ref != nil && ref.UID == w.ice.UID {
			owner = "the Icecream's"
		} else if ref != nil {
			owner = ref.Name + "'s"
		}
		line := fmt.Sprintf("Deployment %s: %s, %d of %d Pods available", name, owner, w.available(d), *d.Spec.Replicas)
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

func (w *tale) available(d *appsv1.Deployment) int32 {
	if w.waits != "" {
		return 0
	}
	return d.Status.AvailableReplicas
}

func (w *tale) observe() Observed {
	o := w.server.observe(w.ice)
	o.Now, o.Memory, o.Pods = w.now, w.memory, nil
	for _, d := range w.server.deployments {
		o.OwnerIsGone = o.OwnerIsGone || d == w.server.deployments[DeploymentName(w.ice)] && len(d.OwnerReferences) > 0 && d.OwnerReferences[0].UID == ghost
	}
	for _, d := range o.Owned {
		d.Status.AvailableReplicas, d.Status.ReadyReplicas = w.available(d), w.available(d)
	}
	for _, name := range slices.Sorted(maps.Keys(w.server.deployments)) {
		if d := w.server.deployments[name]; d.Spec.Template.Labels[LabelIcecream] == w.ice.Name {
			o.Pods = append(o.Pods, w.podsOf(d)...)
		}
	}
	return o
}

// podsOf are the Pods that a Deployment has got so far.
func (w *tale) podsOf(d *appsv1.Deployment) []Pod {
	pods := podsOf(d, "node-1", "node-2")[:d.Status.Replicas]
	for i := range pods {
		if w.waits != "" {
			broken := seen(notReady(0), kittest.Waits(w.waits, "because"))
			pods[i].Ready, pods[i].Problem, pods[i].Since = false, broken.Problem, broken.Since
		}
	}
	return pods
}

func (w *tale) sync(refused string) string {
	a := Assess(w.observe())
	d := Decide(a)
	var out Outcome
	if d.Verdict == children.Act && refused != "" {
		out.Err = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, DeploymentName(w.ice), errors.New(refused))
	} else if d.Verdict == children.Act {
		out = w.server.carryOut(d)
	}
	now, requeueAfter := Remember(a, d, out)
	w.memory = now.Memory
	status, events := Status(a, now, d, out)
	w.ice = w.ice.DeepCopy()
	w.ice.Status = status

	lines := append([]string{"decision: " + inWordsOf(d)}, "status: "+w.status())
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("event: %s %s: %s", e.Type, e.Reason, e.Note))
	}
	if requeueAfter > 0 {
		lines = append(lines, fmt.Sprintf("requeue after: %s", requeueAfter))
	}
	return strings.Join(lines, "\n")
}

func (w *tale) status() string {
	if len(w.ice.Status.Conditions) == 0 {
		return "none"
	}
	return verdictOf(w.ice.Status) + ": " + messageOf(w.ice.Status)
}

// inWordsOf says what a decision is to do, or why it does nothing.
func inWordsOf(d Decision) string {
	if d.Verdict != children.Act {
		text := map[children.Verdict]string{children.Converged: "nothing to do", children.Wait: "wait", children.Blocked: "blocked"}[d.Verdict]
		if d.Reason != "" {
			text += fmt.Sprintf(" (%s)", d.Reason)
		}
		return text
	}
	var parts []string
	if d.RecheckLive {
		parts = append(parts, "recheck that the Icecream is live")
	}
	for _, child := range d.Children {
		if child.UID == "" {
			parts = append(parts, fmt.Sprintf("create Deployment %s", child.Want.GetName()))
			continue
		}
		var fields []string
		for _, f := range child.Drift {
			fields = append(fields, f.Field)
		}
		parts = append(parts, fmt.Sprintf("apply to Deployment %s: %s", child.Want.GetName(), strings.Join(fields, ", ")))
	}
	for _, old := range d.Deletions {
		parts = append(parts, fmt.Sprintf("delete Deployment %s", old.Name))
	}
	return strings.Join(parts, "; ")
}
