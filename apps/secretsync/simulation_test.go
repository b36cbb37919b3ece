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
	answer    metav1.Status               // of the webhook that refuses
	since     time.Time                   // it is or is not refusing
	denied    map[apiserver.Key]denial    // in a row
	written   map[apiserver.Key]time.Time // when a copy was stored or deleted last, in this namespace
	removed   map[apiserver.Key]time.Time // when one was deleted last
	chores    []chore                     // what somebody does later
	isOpposed bool                        // Somebody has refused writes, or there is more to do than a write for each copy.
}

// chore is what somebody does at a time.
type chore struct {
	at time.Time
	do func()
}

// denial is how often a write was refused that asks for the same.
type denial struct {
	source, namespace string // their versions
	times             int
}

// refusal is who refuses writes.
type refusal string

const (
	nobody          refusal = ""
	byQuota         refusal = "a quota refuses new Secrets"
	byWebhook       refusal = "a webhook refuses Secrets, and repeats them"
	byBrokenWebhook refusal = "a webhook that cannot be called"
	byPolicy        refusal = "a policy refuses Secrets, and repeats them"
)

// words are how the message of an event names who refuses.
var words = map[refusal]string{
	byQuota: "exceeded quota: small", byWebhook: "indiscreet.example.com", byBrokenWebhook: "failed calling webhook", byPolicy: "ValidatingAdmissionPolicy",
}

// answers are those of webhooks, which choose the code, the reason and the details of a denial.
var answers = []metav1.Status{
	{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden},
	{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound},
	{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
	{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists},
	{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonAlreadyExists},
	{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid},
	{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests},
	{Code: http.StatusInternalServerError},
	{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable},
}

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
	return simulation.Pick(draw, []string{"*", "*", "team-*", "team-a", "team-c,team-b", "elsewhere", "false", "false", "false", none, none, "", "yes", "team-a;team-b"})
}

// newWorld returns the world of secretsync.
func newWorld(h *simulation.History) simulation.World {
	return &secrets{History: h, denied: map[apiserver.Key]denial{}, written: map[apiserver.Key]time.Time{}, removed: map[apiserver.Key]time.Time{}}
}

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
func (w *secrets) Act() (next time.Time) {
	for len(w.chores) > 0 {
		slices.SortStableFunc(w.chores, func(a, b chore) int { return a.at.Compare(b.at) })
		first := w.chores[0]
		if first.at.After(time.Now()) {
			return first.at
		}
		w.chores = w.chores[1:]
		first.do()
	}
	return time.Time{}
}

func (w *secrets) later(after time.Duration, do func()) {
	w.chores = append(w.chores, chore{time.Now().Add(after), do})
}

// end has a namespace deleted, which loses one Secret after the other, and is gone some time later.
func (w *secrets) end(draw *rand.Rand, name string) {
	w.Delete(namespaceKey(name), metav1.DeletePropagationBackground)
	for _, secret := range simulation.All[corev1.Secret](w.History, w.Store) {
		if secret.Namespace == name {
			w.later(time.Duration(draw.IntN(3000))*time.Millisecond, func() { w.deleteNow(secret) })
		}
	}
	w.later(time.Duration(draw.IntN([]int{3, 100}[draw.IntN(2)]))*time.Second, func() {
		w.Collect()
		for key := range w.written {
			if key.Namespace == name {
				delete(w.written, key)
			}
		}
	})
}

// deleteNow deletes a Secret that may be gone.
func (w *secrets) deleteNow(secret *corev1.Secret) {
	if is := w.secret(w.Store, secret.Namespace, secret.Name); is != nil && is.UID == secret.UID {
		w.DeleteNow(secretKey(is.Namespace, is.Name))
	}
}

// flap has one tool change an annotation and another one set it again, seconds or a minute later and several times.
func (w *secrets) flap(draw *rand.Rand, obj metav1.Object, values ...string) string {
	was, other := valueOf(obj), simulation.Pick(draw, values)
	after, times := time.Duration(0), 1+draw.IntN(3)
	for n := range 2 * times {
		w.later(after, func() {
			changed := simulation.Get[corev1.Namespace](w.History, w.Store, namespaceKey(obj.GetName()))
			source := w.secret(w.Store, sourceNamespace, obj.GetName())
			value := []string{other, was}[n%2]
			w.edits++
			switch {
			case obj.GetNamespace() == "" && changed != nil:
				changed = changed.DeepCopy()
				annotate(changed, secretsync.Annotation, value)
				w.Put(changed)
			case obj.GetNamespace() != "" && source != nil:
				source = source.DeepCopy()
				annotate(source, secretsync.Annotation, value)
				w.Put(source)
			}
		})
		after += time.Duration(100+draw.IntN([]int{3000, 59_000}[draw.IntN(2)])) * time.Millisecond
	}
	w.Act()
	return fmt.Sprintf("%s says %q and %q in turns, %d times", obj.GetName(), other, was, times)
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
	switch draw.IntN(10) {
	case 0:
		w.refuse(draw, nobody, byQuota, byWebhook, byWebhook, byBrokenWebhook, byPolicy)
		return fmt.Sprintf("who refuses: %s %d %s", w.refusing, w.answer.Code, w.answer.Reason)
	case 1, 2:
		if namespace == nil {
			w.newNamespace(target, "")
			return "a new namespace " + target
		}
		w.end(draw, target)
		return "namespace " + target + " is deleted"
	case 3:
		if secret := w.secret(w.Store, target, name); secret != nil {
			return w.disturb(draw, secret)
		}
		return w.plant(draw, target, name)
	case 4:
		return w.revoke(draw, target, name)
	case 5:
		if namespace == nil {
			return ""
		}
		return w.flap(draw, namespace, none, none, "disabled", "false")
	case 6:
		for _, target := range targetNamespaces {
			if copied := w.secret(w.Store, target, name); isMade(copied) && w.wishOf(w.Store, target, name) == wanted {
				return w.harden(draw, copied.DeepCopy())
			}
		}
		return ""
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

// revoke has somebody revoke a Secret, who also changes it.
func (w *secrets) revoke(draw *rand.Rand, target, name string) string {
	source, namespace := w.secret(w.Store, sourceNamespace, name), w.namespace(w.Store, target)
	if source == nil || namespace == nil {
		return ""
	}
	revoked, rotated := namespace.DeepCopy(), source.DeepCopy()
	annotate(revoked, secretsync.Annotation, simulation.Pick(draw, []string{none, "false", "disabled"}))
	w.Put(revoked)
	if rotated.Immutable == nil {
		rotated.Data = w.newData(draw)
	}
	annotate(rotated, secretsync.Annotation, simulation.Pick(draw, []string{valueOf(source), "false", "elsewhere"}))
	w.Put(rotated)
	w.edits += 2
	return fmt.Sprintf("namespace %s says %q, and Secret %s rotates and says %q", target, valueOf(revoked), name, valueOf(rotated))
}

// editSource has somebody change, create or delete a source, or all of them with their namespace.
func (w *secrets) editSource(draw *rand.Rand, name string) string {
	namespace, source := w.namespace(w.Store, sourceNamespace), w.secret(w.Store, sourceNamespace, name)
	switch {
	case namespace == nil:
		w.newNamespace(sourceNamespace, none)
		return "the source namespace is created again"
	case namespace.DeletionTimestamp != nil && source == nil:
		return ""
	case draw.IntN(12) == 0:
		w.end(draw, sourceNamespace)
		return "the source namespace is deleted"
	case source == nil:
		w.newSecret(draw, sourceNamespace, name, simulation.Pick(draw, []string{"*", "*", "team-a", none}))
		return "a new source " + name
	case draw.IntN(11) == 0: // as when a source moves
		changed := source.DeepCopy()
		annotate(changed, secretsync.Annotation, "elsewhere")
		w.Put(changed)
		w.edits++
		w.later(time.Duration(10+draw.IntN(50))*time.Second, func() { w.deleteNow(source) })
		return "Secret " + name + " is for nobody, and will be deleted"
	case draw.IntN(6) == 0:
		return w.flap(draw, source, none, none, "yes", "elsewhere", "elsewhere", "team-a")
	}
	return w.disturb(draw, source)
}

func (w *secrets) refuse(draw *rand.Rand, who ...refusal) {
	w.refusing, w.answer, w.since, w.isOpposed = simulation.Pick(draw, who), simulation.Pick(draw, answers), time.Now(), true
	clear(w.denied)
}

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
	case n == 1 && !isSource:
		return w.harden(draw, changed)
	case n == 2 && !isSource:
		w.isOpposed = true
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

// harden has somebody make a copy immutable, whose source changes.
func (w *secrets) harden(draw *rand.Rand, copied *corev1.Secret) string {
	copied.Immutable = new(true)
	w.Put(copied)
	if source := w.secret(w.Store, sourceNamespace, copied.Name); source != nil && source.Immutable == nil {
		source = source.DeepCopy()
		source.Data = w.newData(draw)
		w.Put(source)
	}
	w.refuse(draw, nobody, byQuota, byWebhook, byWebhook)
	return fmt.Sprintf("somebody makes %s/%s immutable, and its source changes; who refuses: %s %s", copied.Namespace, copied.Name, w.refusing, w.answer.Reason)
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
	w.checkTold(a.Key)
	hidden := w.Hidden(secret)
	details := &metav1.StatusDetails{Kind: a.Key.Resource.Resource, Name: a.Key.Name}
	switch w.refusing {
	case byWebhook:
		denied := w.answer
		denied.Status, denied.Details = metav1.StatusFailure, details
		denied.Message = fmt.Sprintf(`admission webhook "indiscreet.example.com" denied the request: exceeded quota: %s`, hidden)
		return &apierrors.StatusError{ErrStatus: denied}
	case byBrokenWebhook:
		return apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "indiscreet.example.com": %s`, hidden))
	case byPolicy:
		details.Causes = []metav1.StatusCause{{Message: string(hidden)}}
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Details: details,
			Message: fmt.Sprintf("secrets %q is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: %s", a.Key.Name, hidden),
		}}
	default:
		return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("exceeded quota: small, requested: %s", hidden))
	}
}

// checkTold checks that an event has told who refuses a copy before it is refused for the third time.
func (w *secrets) checkTold(key apiserver.Key) {
	source, namespace := w.secret(w.Store, sourceNamespace, key.Name), w.namespace(w.Store, key.Namespace)
	if source == nil || namespace == nil || !w.IsCalm() {
		return
	}
	now, before := denial{source.ResourceVersion, namespace.ResourceVersion, 0}, w.denied[key]
	if now.times = before.times; now != before {
		now.times = 0
	}
	now.times++
	w.denied[key] = now
	const burst = 20 // of events about one object, until client-go lets some out
	isTold := slices.ContainsFunc(w.Said, func(event []byte) bool {
		return bytes.Contains(event, []byte(secretsync.ReasonFailed)) && bytes.Contains(event, []byte(key.Namespace)) && bytes.Contains(event, []byte(words[w.refusing]))
	})
	if now.times > 2 && !isTold && len(w.Said) < burst {
		w.Fail("untold", "nobody is told that %s, although %s was refused %d times", w.refusing, simulation.Describe(key), now.times)
	}
}

// Mutate implements World.
func (w *secrets) Mutate(apiserver.Admission) {}

// Settle implements World. A name that is taken would be tried every five minutes.
func (w *secrets) Settle() time.Duration {
	w.refusing, w.chores = nobody, nil
	w.Collect()
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
	unlisted wish = "unlisted"           // for a minute
	orphaned wish = "without its source" // for a minute
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
		return orphaned
	}
	if slices.Contains(sourceWords, valueOf(source)) {
		return frozen
	}
	if slices.Contains(sourceLists[valueOf(source)], namespace) {
		return wanted
	}
	return unlisted
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
	if removed := w.removed[x.Key]; removed.After(x.Decided) && x.Verb == "create" && !x.IsLate {
		read = w.SinceTime(removed) // It is replaced, and webhooks can make that slow.
	}
	defer w.note(x)
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
	minute := w.SinceTime(time.Now().Add(-time.Minute))
	isFor := func(reason wish) bool { // a minute, with moments at most between
		return in(read, wishIs(reason)) && wishIs(reason)(minute[0]) && (!w.IsCalm() || !w.wasFor(wanted, x.Key))
	}
	switch {
	case x.Key.Resource.Resource != "secrets" || !slices.Contains(targetNamespaces, x.Key.Namespace):
		w.Fail("permissions", "%s", what)
	case before != nil && !isCopy(before):
		w.Fail("ownership", "%s, which is no copy", what)
	case x.Verb == "delete" && !isMade(before):
		w.Fail("ownership", "%s, which was not made for this place", what)
	case x.Verb == "delete" && w.refusing != nobody && !w.since.After(x.Decided) && !in(w.SinceTime(x.Decided.Add(-time.Minute)), wishIs(unwanted, unlisted, orphaned)):
		w.Fail("deletion", "%s, although no other can be created", what)
	case x.Verb == "delete" && before.Immutable != nil &&
		in(read, func(s apiserver.Store) bool { return wishIs(wanted)(s) && !isOfSource(before.Data)(s) }):
		// It is replaced.
	case x.Verb == "delete" && in(read, wishIs(unwanted)):
	case x.Verb == "delete" && !in(read, wishIs(unlisted, orphaned)):
		w.Fail("deletion", "%s, which somebody wants, or may want", what)
	case x.Verb == "delete" && !isFor(unlisted) && !isFor(orphaned):
		w.Fail("deletion", "%s, which has not been unwanted for a minute", what)
	case x.Verb == "delete":
	case !in(read, wishIs(wanted)):
		w.Fail("disclosure", "%s, which has not been wanted since it was decided on", what)
	case !in(read, isOfSource(after.Data)):
		w.Fail("data", "%s, whose data the source has not had since it was decided on", what)
	}
}

// wasFor reports whether a wish about a copy has lasted for more than five seconds, within the last minute.
func (w *secrets) wasFor(is wish, key apiserver.Key) bool {
	for ago := 55 * time.Second; ago >= 10*time.Second; ago -= time.Second {
		since := w.SinceTime(time.Now().Add(-ago))
		until := w.SinceTime(time.Now().Add(5*time.Second - ago))
		lasting := since[:len(since)-len(until)+1]
		if !slices.ContainsFunc(lasting, func(s apiserver.Store) bool { return w.wishOf(s, key.Namespace, key.Name) != is }) {
			return true
		}
	}
	return false
}

// note checks that one copy is written at most every five seconds, and remembers the write.
func (w *secrets) note(x simulation.Exchange) {
	last, isSecond := w.written[x.Key]
	if isSecond && w.IsCalm() && x.Verb != "create" && time.Since(last) < 5*time.Second {
		w.Fail("pace", "%s %s %s after the last write", x.Verb, simulation.Describe(x.Key), time.Since(last))
	}
	if w.written[x.Key] = time.Now(); x.Verb == "delete" {
		w.removed[x.Key] = time.Now()
		if draw := w.Draw("revoke", fmt.Sprint(x.Before.Version)); draw.IntN(2) == 0 { // in the middle of a replacement
			w.Note("%s", w.revoke(draw, x.Key.Namespace, x.Key.Name))
		}
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
			case (is == unwanted || is == unlisted || is == orphaned) && isMade(found):
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
