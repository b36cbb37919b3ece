// How to write. Asks are what the Icecream asks for, and Patch is the request. With says what came of
// it.

package icecream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// The parts of a Deployment. The API server refuses a patch as a whole, and an edit that it refuses
// must not keep the replicas from arriving.
const (
	Shape    = "shape"
	Replicas = "replicas"
)

const replicasField = "spec.replicas"

// everything is what is left to ask for if there is no Deployment.
const everything = "everything"

// Asks returns what the Icecream asks for: the shape, then the replicas.
func (o Observed) Asks() []ledger.Ask {
	shape := ledger.Ask{Part: Shape, Goal: specHash(o.Icecream.Spec), Left: everything}
	replicas := ledger.Ask{Part: Replicas, Goal: strconv.Itoa(int(replicasOf(o.Icecream))), Left: everything}
	if o.Live != nil {
		drift := o.drift()
		ofReplicas := func(d patch.Difference) bool { return d.Field == replicasField }
		shape.Left = hashOf(slices.DeleteFunc(slices.Clone(drift), ofReplicas))
		replicas.Left = hashOf(slices.DeleteFunc(drift, func(d patch.Difference) bool { return !ofReplicas(d) }))
	}
	return []ledger.Ask{shape, replicas}
}

// drift returns where the live Deployment is not as the Icecream asks for.
func (o Observed) drift() []patch.Difference {
	want := wanted(o.Live, o.Icecream)
	if equality.Semantic.DeepEqual(o.Live, want) {
		return nil
	}
	return differences(o.Live, want)
}

// wanted returns an existing Deployment as it should be.
func wanted(live *appsv1.Deployment, ice *v1alpha1.Icecream) *appsv1.Deployment {
	want := live.DeepCopy()
	setDeployment(want, ice)
	return want
}

// hashOf distinguishes differences from others; it is empty if there are none.
func hashOf(drift []patch.Difference) string {
	if len(drift) == 0 {
		return ""
	}
	raw, _ := json.Marshal(drift) // cannot fail for what the API server stores
	return hash(raw)
}

// differences returns where a Deployment is not like another one.
func differences(live, want *appsv1.Deployment) []patch.Difference {
	found, _ := patch.Differences(live, want) // cannot fail for types of the API
	return found
}

// Patch returns the patch by which the live Deployment becomes as it should be in the parts that
// are due, with its UID as a precondition. If that is an adoption, the version is one as well.
func (o Observed) Patch(due []ledger.Ask) ([]byte, error) {
	if IsControlledBy(o.Live, o.Icecream) {
		return patch.IfUID(o.Live, o.want(due))
	}
	return patch.IfUnchanged(o.Live, o.want(due))
}

// want returns the live Deployment with the parts that are due as they should be.
func (o Observed) want(due []ledger.Ask) *appsv1.Deployment {
	isDue := func(part string) bool {
		return slices.ContainsFunc(due, func(ask ledger.Ask) bool { return ask.Part == part })
	}
	want := o.Live.DeepCopy()
	if isDue(Shape) {
		want = wanted(o.Live, o.Icecream)
		want.Spec.Replicas = o.Live.Spec.Replicas
	}
	if isDue(Replicas) {
		want.Spec.Replicas = ptr.To(replicasOf(o.Icecream))
	}
	return want
}

// Result is what came of a write.
type Result struct {
	// Stored is the Deployment as the API server stored it; nil if it refused the write.
	Stored *appsv1.Deployment
	// Refusal is the error with which the API server refused the write; nil if it did not.
	Refusal error
	// Other is who has undone it before; empty if unknown.
	Other string
}

// With returns what is known after what was due was written, the outcome for the ledger of each
// part, and what to record.
func (o Observed) With(due []ledger.Ask, r Result) (after Observed, outcomes []ledger.Outcome, event Event) {
	undone := ""
	if o.Standing.IsAgain {
		undone = o.undone(due, r.Other)
	}
	if r.Refusal != nil { // The report says what is wrong.
		for range due {
			outcomes = append(outcomes, ledger.Outcome{Refusal: r.Refusal, Undone: undone})
		}
		return o, outcomes, Event{}
	}
	after = o
	after.Live = stripped(r.Stored)
	altered, isCrossed := o.altered(due, after.drift())
	asks := after.Asks()
	for _, ask := range due {
		outcome := ledger.Outcome{Undone: undone}
		if i := slices.IndexFunc(asks, func(is ledger.Ask) bool { return is.Part == ask.Part }); ask.Part == Replicas || !isCrossed {
			outcome.Left = asks[i].Left
		}
		outcomes = append(outcomes, outcome)
	}
	return after, outcomes, o.writeEvent(due, r, altered)
}

// altered returns the differences that are left in fields that the write has set: a policy made
// them. isCrossed reports whether there are others in the shape: somebody has written just before,
// and the next sync repairs that.
func (o Observed) altered(due []ledger.Ask, drift []patch.Difference) (altered []patch.Difference, isCrossed bool) {
	if o.Live == nil {
		return drift, false
	}
	written := differences(o.Live, o.want(due))
	for _, d := range drift {
		switch {
		case slices.ContainsFunc(written, func(w patch.Difference) bool {
			return strings.HasPrefix(d.Field, w.Field) || strings.HasPrefix(w.Field, d.Field)
		}):
			altered = append(altered, d)
		case d.Field != replicasField:
			isCrossed = true
		}
	}
	return altered, isCrossed
}

// undone says who has undone what is written again and again.
func (o Observed) undone(due []ledger.Ask, other string) string {
	if o.Live == nil {
		return fmt.Sprintf("Deployment %q keeps being deleted; retrying with back-off", DeploymentName(o.Icecream))
	}
	var fields []string
	for _, d := range differences(o.Live, o.want(due)) {
		fields = append(fields, d.Field)
	}
	message := fmt.Sprintf("Changes to %s of Deployment %q keep being reverted, last by %s; retrying with back-off",
		strings.Join(fields, ", "), o.Live.Name, cmp.Or(other, "another client"))
	return text.Clip(message, maxMessage)
}

// writeEvent returns what to record about a write, with these fields altered by the API server.
func (o Observed) writeEvent(due []ledger.Ask, r Result, altered []patch.Difference) Event {
	e := Event{Type: corev1.EventTypeNormal}
	switch {
	case o.Live == nil:
		e.Reason, e.Message = v1alpha1.ReasonDeploymentCreated, fmt.Sprintf("Created Deployment %q", r.Stored.Name)
	case !IsControlledBy(o.Live, o.Icecream):
		e.Reason, e.Message = v1alpha1.ReasonDeploymentAdopted, fmt.Sprintf("Adopted Deployment %q", r.Stored.Name)
	case o.Standing.IsFirst && len(altered) > 0 && hashOf(altered) == hashOf(differences(o.Live, o.want(due))):
		return Event{} // A policy has turned the request into what was there before, as the process before this one has reported.
	default:
		e.Reason, e.Message = v1alpha1.ReasonDeploymentUpdated, fmt.Sprintf("Updated Deployment %q", r.Stored.Name)
	}
	if len(altered) > 0 {
		e.Reason = v1alpha1.ReasonDeploymentAltered
		var fields []string
		for _, d := range altered {
			fields = append(fields, d.String())
		}
		e.Message += "; an admission policy or webhook changed: " + strings.Join(fields, "; ")
	}
	e.Message = text.Clip(e.Message, maxMessage)
	return e
}

// LastWriter names the last field manager of an object, other than this
// controller and writers of the status; empty if there is none.
func LastWriter(obj metav1.Object) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		isOther := entry.Manager != FieldManager && entry.Subresource == ""
		if isOther && (last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last.Manager == "" {
		return ""
	}
	return fmt.Sprintf("field manager %q", last.Manager)
}
