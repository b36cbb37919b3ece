//go:debug randseednop=0

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	secretsync "nicoleh.io/k8s-controller/apps/secretsync"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation/program"
)

// secrets is the world of secretsync: Secrets in a source namespace, namespaces that ask for
// copies, and people who meddle with both: who remove and misspell annotations, delete and re-create, refuse,
// and plant Secrets that look like copies.
type secrets struct {
	*simulation.History
	made      int
	edits     int
	writes    int
	refusing  refusal
	since     time.Time // it is or is not refusing
	isOpposed bool      // Somebody has refused writes, or there is more to do than a write for each copy.
}

// refusal is who refuses writes.
type refusal string

const (
	nobody    refusal = ""
	byQuota   refusal = "a quota refuses new Secrets"
	byWebhook refusal = "a webhook refuses Secrets, and repeats them"
	byPolicy  refusal = "a policy refuses Secrets, and repeats them"
)

const sourceNamespace = "secretsync"

var (
	targetNamespaces = []string{"team-a", "team-b", "team-c"}
	secretNames      = []string{"registry", "token"}
)

// none stands for no annotation.
const none = "-"

// What can be said, and what it means.
var (
	namespaceValues = map[string]wish{"": wanted, "true": wanted, "false": unwanted, none: frozen, "no": frozen, "disabled": frozen}
	sourceLists     = map[string][]string{
		"*": targetNamespaces, "team-*": targetNamespaces, "team-a": {"team-a"}, "team-c,team-b": {"team-b", "team-c"}, "elsewhere": nil,
	}
	// These are no list: nobody knows what they mean.
	sourceWords = []string{none, "", "yes", "team-a;team-b"}
)

func anyNamespaceValue(draw *rand.Rand) string {
	return simulation.Pick(draw, []string{"", "", "true", "false", none, none, "no", "disabled"})
}

func anySourceValue(draw *rand.Rand) string {
	return simulation.Pick(draw, []string{"*", "*", "team-*", "team-a", "team-c,team-b", "elsewhere", "false", none, none, "", "yes", "team-a;team-b"})
}

// newWorld returns the world of secretsync.
func newWorld(h *simulation.History) simulation.World { return &secrets{History: h} }

func secretKey(namespace, name string) apiserver.Key {
	return apiserver.Key{Resource: schema.GroupResource{Resource: "secrets"}, Namespace: namespace, Name: name}
}

func namespaceKey(name string) apiserver.Key {
	return apiserver.Key{Resource: schema.GroupResource{Resource: "namespaces"}, Name: name}
}

// TestSimulation runs the program with this controller in simulated worlds. See package simulation.
func TestSimulation(t *testing.T) {
	simulation.Simulation{
		Run:      program.With(secretsync.NewDescriptor),
		Kinds:    []apiserver.Kind{apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases(), apiserver.EventObjects()},
		NewWorld: newWorld,
	}.Test(t)
}

// Begin implements World.
func (w *secrets) Begin() {
	draw := w.Draw("begin")
	w.newNamespace(metav1.NamespaceSystem, none)
	w.newNamespace(sourceNamespace, none)
	for _, name := range targetNamespaces {
		w.newNamespace(name, simulation.Pick(draw, []string{"", none}))
	}
	w.newSecret(draw, sourceNamespace, secretNames[0], "*")
}

func (w *secrets) newNamespace(name, value string) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	annotate(namespace, secretsync.Annotation, value)
	w.Create(namespace)
}

// annotate sets an annotation, or removes it.
func annotate(obj metav1.Object, key, value string) {
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == none {
		delete(annotations, key)
	}
	obj.SetAnnotations(annotations)
}

// newValue returns bytes that must not appear anywhere else.
func (w *secrets) newValue() []byte {
	w.made++
	value := fmt.Appendf(nil, "hush-%d-%x", w.made, w.Draw("secret", fmt.Sprint(w.made)).Uint64())
	w.Hide(value)
	return value
}

// newData returns what a Secret contains: nothing, or one or two values.
func (w *secrets) newData(draw *rand.Rand) map[string][]byte {
	data := map[string][]byte{}
	for _, key := range [][]string{nil, {"key"}, {"key"}, {"key", "more"}}[draw.IntN(4)] {
		data[key] = w.newValue()
	}
	return data
}

func (w *secrets) newSecret(draw *rand.Rand, namespace, name, value string) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       w.newData(draw), Type: corev1.SecretTypeOpaque,
	}
	annotate(secret, secretsync.Annotation, value)
	w.Create(secret)
}

func (w *secrets) secret(store apiserver.Store, namespace, name string) *corev1.Secret {
	return simulation.Get[corev1.Secret](w.History, store, secretKey(namespace, name))
}

func (w *secrets) namespace(store apiserver.Store, name string) *corev1.Namespace {
	return simulation.Get[corev1.Namespace](w.History, store, namespaceKey(name))
}

// Act implements World.
func (w *secrets) Act() time.Time {
	w.Collect()
	return time.Time{}
}

// Edit implements World.
func (w *secrets) Edit(draw *rand.Rand) string {
	w.checkBudget()
	w.edits++
	name := simulation.Pick(draw, secretNames)
	if draw.IntN(2) == 0 {
		return w.editSource(draw, name)
	}
	target := simulation.Pick(draw, targetNamespaces)
	namespace := w.namespace(w.Store, target)
	switch draw.IntN(8) {
	case 0:
		w.refuse(simulation.Pick(draw, []refusal{nobody, byQuota, byWebhook, byPolicy}))
		return fmt.Sprintf("who refuses: %s", w.refusing)
	case 1, 2:
		if namespace == nil {
			w.newNamespace(target, "")
			return "a new namespace " + target
		}
		w.Delete(namespaceKey(target), metav1.DeletePropagationBackground)
		return "namespace " + target + " is deleted"
	case 3:
		if secret := w.secret(w.Store, target, name); secret != nil {
			return w.disturb(draw, secret)
		}
		return w.plant(draw, target, name)
	case 4: // as whoever revokes a Secret does
		source := w.secret(w.Store, sourceNamespace, name)
		if source == nil || namespace == nil {
			return ""
		}
		revoked, rotated := namespace.DeepCopy(), source.DeepCopy()
		annotate(revoked, secretsync.Annotation, simulation.Pick(draw, []string{none, "false", "disabled"}))
		w.Put(revoked)
		rotated.Data = w.newData(draw)
		annotate(rotated, secretsync.Annotation, simulation.Pick(draw, []string{valueOf(source), "false", "elsewhere"}))
		w.Put(rotated)
		w.edits++
		return fmt.Sprintf("namespace %s says %q, and Secret %s rotates and says %q", target, valueOf(revoked), name, valueOf(rotated))
	default:
		if namespace == nil {
			return ""
		}
		changed := namespace.DeepCopy()
		annotate(changed, secretsync.Annotation, anyNamespaceValue(draw))
		w.Put(changed)
		return fmt.Sprintf("namespace %s says %q", target, valueOf(changed))
	}
}

// editSource has somebody change, create or delete a source, or all of them with their namespace.
func (w *secrets) editSource(draw *rand.Rand, name string) string {
	namespace, source := w.namespace(w.Store, sourceNamespace), w.secret(w.Store, sourceNamespace, name)
	switch {
	case namespace == nil:
		w.newNamespace(sourceNamespace, none)
		return "the source namespace is created again"
	case draw.IntN(12) == 0:
		w.Delete(namespaceKey(sourceNamespace), metav1.DeletePropagationBackground)
		return "the source namespace is deleted"
	case source == nil:
		w.newSecret(draw, sourceNamespace, name, simulation.Pick(draw, []string{"*", "*", "team-a", none}))
		return "a new source " + name
	}
	return w.disturb(draw, source)
}

func (w *secrets) refuse(who refusal) { w.refusing, w.since, w.isOpposed = who, time.Now(), true }

// plant has somebody create a Secret that is no copy, or looks like one.
func (w *secrets) plant(draw *rand.Rand, namespace, name string) string {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: w.newData(draw), Type: corev1.SecretTypeOpaque}
	what := draw.IntN(5)
	if what > 0 {
		secret.Labels = map[string]string{secretsync.LabelSourceNamespace: sourceNamespace}
	}
	if what > 1 {
		annotate(secret, secretsync.AnnotationMadeFor, []string{namespace + "/" + name, "elsewhere/" + name, namespace + "/other"}[what-2])
	}
	if draw.IntN(4) == 0 {
		secret.Immutable = new(true)
	}
	w.isOpposed = true // Each is looked for, written to or deleted.
	w.Create(secret)
	return fmt.Sprintf("somebody's Secret %s/%s with %v and %v", namespace, name, secret.Labels, secret.Annotations)
}

// disturb has somebody change or delete a Secret.
func (w *secrets) disturb(draw *rand.Rand, secret *corev1.Secret) string {
	changed := secret.DeepCopy()
	where := secret.Namespace + "/" + secret.Name
	isSource := secret.Namespace == sourceNamespace
	switch n := draw.IntN(8); {
	case n == 0:
		w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		return "Secret " + where + " is deleted"
	case n < 3 && !isSource:
		w.isOpposed = true
		if draw.IntN(2) == 0 {
			changed.Immutable = new(true)
			w.Put(changed)
			if source := w.secret(w.Store, sourceNamespace, secret.Name); source != nil && source.Immutable == nil {
				source = source.DeepCopy()
				source.Data = w.newData(draw)
				w.Put(source)
			}
			w.refuse(simulation.Pick(draw, []refusal{nobody, byQuota, byQuota, byWebhook}))
			return fmt.Sprintf("somebody makes %s immutable, and its source changes; who refuses: %s", where, w.refusing)
		}
		changed.Labels, changed.Annotations = nil, nil
		w.Put(changed)
		return "somebody makes " + where + " theirs"
	case n < 5 && isSource:
		annotate(changed, secretsync.Annotation, anySourceValue(draw))
		w.Put(changed)
		return fmt.Sprintf("Secret %s says %q", where, valueOf(changed))
	case n == 5:
		w.isOpposed = true
		w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		if isSource {
			w.newSecret(draw, secret.Namespace, secret.Name, simulation.Pick(draw, []string{"*", "*", none}))
			return "another Secret takes the place of " + where
		}
		return w.plant(draw, secret.Namespace, secret.Name)
	default:
		if secret.Immutable != nil {
			return ""
		}
		changed.Data = w.newData(draw)
		w.Put(changed)
		return fmt.Sprintf("Secret %s has other data: %d keys", where, len(changed.Data))
	}
}

// Interfere implements World.
func (w *secrets) Interfere(draw *rand.Rand, _ string, key apiserver.Key) string {
	for _, secret := range []*corev1.Secret{w.secret(w.Store, key.Namespace, key.Name), w.secret(w.Store, sourceNamespace, key.Name)} {
		if secret != nil && draw.IntN(2) == 0 {
			return w.disturb(draw, secret)
		}
	}
	return w.Edit(draw)
}

// Admit implements World. Webhooks and policies repeat what they have refused.
func (w *secrets) Admit(a apiserver.Admission) error {
	if w.refusing == nobody || a.Key.Resource.Resource != "secrets" || a.Verb == "delete" || w.refusing == byQuota && a.Verb != "create" {
		return nil
	}
	secret, err := json.Marshal(a.Object)
	if err != nil {
		return err
	}
	words := w.Hidden(secret)
	switch w.refusing {
	case byWebhook:
		denied := apierrors.NewForbidden(a.Key.Resource, a.Key.Name, nil)
		denied.ErrStatus.Message = fmt.Sprintf(`admission webhook "indiscreet.example.com" denied the request: exceeded quota: %s`, words)
		return denied
	case byPolicy:
		return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: %s", words))
	default:
		return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("exceeded quota: small, requested: %s", words))
	}
}

// Mutate implements World.
func (w *secrets) Mutate(apiserver.Admission) {}

// Settle implements World. A name that is taken would be tried every five minutes.
func (w *secrets) Settle() time.Duration {
	w.refusing = nobody
	for _, secret := range simulation.All[corev1.Secret](w.History, w.Store) {
		if secret.Namespace != sourceNamespace && secret.Labels[secretsync.LabelSourceNamespace] == "" {
			w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		}
	}
	return 11 * time.Minute // Repairs and refusals wait for five minutes at most.
}

// isCopy reports whether a Secret is a copy, or is to be made one by its label.
func isCopy(secret *corev1.Secret) bool {
	if secret == nil || secret.Labels[secretsync.LabelSourceNamespace] != sourceNamespace {
		return false
	}
	place, isPlaced := secret.Annotations[secretsync.AnnotationMadeFor]
	return !isPlaced || place == secret.Namespace+"/"+secret.Name
}

// isMade reports whether a Secret is a copy that says for which place it was made.
func isMade(secret *corev1.Secret) bool {
	return isCopy(secret) && secret.Annotations[secretsync.AnnotationMadeFor] != ""
}

// wish is whether there should be a copy.
type wish string

const (
	wanted   wish = "wanted"
	frozen   wish = "frozen"
	unwanted wish = "unwanted"
	dropped  wish = "unlisted, or without its source" // for a minute
)

// wishOf returns whether there should be a copy.
func (w *secrets) wishOf(store apiserver.Store, namespace, name string) wish {
	target, source := w.namespace(store, namespace), w.secret(store, sourceNamespace, name)
	if target == nil || target.DeletionTimestamp != nil {
		return unwanted
	}
	if source != nil && valueOf(source) == "false" {
		return unwanted
	}
	if says := namespaceValues[valueOf(target)]; says != wanted {
		return says
	}
	if source == nil {
		is, of := w.secret(store, namespace, name), w.namespace(store, sourceNamespace)
		if of == nil || of.DeletionTimestamp != nil || is != nil && is.CreationTimestamp.Before(&of.CreationTimestamp) {
			return frozen
		}
		return dropped
	}
	if slices.Contains(sourceWords, valueOf(source)) {
		return frozen
	}
	if slices.Contains(sourceLists[valueOf(source)], namespace) {
		return wanted
	}
	return dropped
}

func valueOf(obj metav1.Object) string {
	if value, ok := obj.GetAnnotations()[secretsync.Annotation]; ok {
		return value
	}
	return none
}

// Check implements World.
func (w *secrets) Check(x simulation.Exchange) {
	isAsked := x.Request.Query.Has("dryRun")
	if x.Key.Resource.Resource == "secrets" && x.Request.Method != http.MethodGet && (x.IsWrite() || w.isOpposed) {
		w.writes++
	}
	if !x.IsWrite() || isAsked || x.Key.Resource.Resource == "events" || x.Key.Resource.Resource == "leases" {
		return
	}
	what := fmt.Sprintf("%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	before, after := w.secret(x.Before, x.Key.Namespace, x.Key.Name), w.secret(x.After, x.Key.Namespace, x.Key.Name)
	read := w.SinceTime(x.Decided)
	in := slices.ContainsFunc[[]apiserver.Store]
	wishIs := func(wishes ...wish) func(apiserver.Store) bool {
		return func(s apiserver.Store) bool { return slices.Contains(wishes, w.wishOf(s, x.Key.Namespace, x.Key.Name)) }
	}
	isOfSource := func(data map[string][]byte) func(apiserver.Store) bool {
		return func(s apiserver.Store) bool {
			source := w.secret(s, sourceNamespace, x.Key.Name)
			return source != nil && equality.Semantic.DeepEqual(source.Data, data)
		}
	}
	aMinuteAgo := w.SinceTime(time.Now().Add(-time.Minute))[:1]
	switch {
	case x.Key.Resource.Resource != "secrets" || !slices.Contains(targetNamespaces, x.Key.Namespace):
		w.Fail("permissions", "%s", what)
	case before != nil && !isCopy(before):
		w.Fail("ownership", "%s, which is no copy", what)
	case x.Verb == "delete" && !isMade(before):
		w.Fail("ownership", "%s, which was not made for this place", what)
	case x.Verb == "delete" && w.refusing != nobody && !w.since.After(x.Decided) && !in(w.SinceTime(x.Decided.Add(-time.Minute)), wishIs(unwanted, dropped)):
		w.Fail("deletion", "%s, although no other can be created", what)
	case x.Verb == "delete" && before.Immutable != nil &&
		in(read, func(s apiserver.Store) bool { return wishIs(wanted)(s) && !isOfSource(before.Data)(s) }):
		// It is replaced.
	case x.Verb == "delete" && in(read, wishIs(unwanted)):
	case x.Verb == "delete" && !in(read, wishIs(dropped)):
		w.Fail("deletion", "%s, which somebody wants, or may want", what)
	case x.Verb == "delete" && in(aMinuteAgo, wishIs(wanted)):
		w.Fail("deletion", "%s, which was wanted a minute ago", what)
	case x.Verb == "delete":
	case !in(read, wishIs(wanted)):
		w.Fail("disclosure", "%s, which has not been wanted since it was decided on", what)
	case !in(read, isOfSource(after.Data)):
		w.Fail("data", "%s, whose data the source has not had since it was decided on", what)
	}
}

// CheckEnd implements World.
func (w *secrets) CheckEnd() {
	for _, namespace := range targetNamespaces {
		for _, name := range secretNames {
			found, source := w.secret(w.Store, namespace, name), w.secret(w.Store, sourceNamespace, name)
			switch is := w.wishOf(w.Store, namespace, name); {
			case is == wanted && found == nil:
				w.Fail("end", "there is no copy of %s in %s", name, namespace)
			case is == wanted && (isMade(found) || isCopy(found) && found.Immutable == nil) && !equality.Semantic.DeepEqual(found.Data, source.Data):
				w.Fail("end", "the copy of %s in %s is not as its source", name, namespace)
			case (is == unwanted || is == dropped) && isMade(found):
				w.Fail("end", "there is a copy of %s in %s, which is %s", name, namespace, is)
			case is == frozen && isMade(found) && !w.hasTold():
				w.Fail("end", "nobody is told that the copy of %s in %s is frozen", name, namespace)
			}
		}
	}
	w.checkBudget()
}

// hasTold reports whether an event says that something is frozen.
func (w *secrets) hasTold() bool {
	return slices.ContainsFunc(w.Said, func(event []byte) bool {
		return slices.ContainsFunc([]string{secretsync.ReasonUnclear, secretsync.ReasonMarkMissing, secretsync.ReasonSourceNamespaceGone}, func(reason string) bool {
			return bytes.Contains(event, []byte(reason))
		})
	})
}

// checkBudget checks that a history without faults costs at most a write in each namespace for
// the first source and for each edit.
func (w *secrets) checkBudget() {
	most := len(targetNamespaces) * (1 + w.edits)
	if w.isOpposed {
		most *= simulation.Repeated
	}
	if w.writes > most && w.IsCalm() {
		w.Fail("budget", "%d writes after %d edits", w.writes, w.edits)
	}
}
