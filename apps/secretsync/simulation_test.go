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
	"strings"
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
// copies, and people who meddle with both: who misspell annotations, delete and re-create, refuse,
// and plant Secrets that look like copies.
type secrets struct {
	*simulation.History
	made      int
	edits     int
	writes    int
	refusing  bool
	since     time.Time // it is or is not refusing
	isOpposed bool      // Somebody has refused writes, or there is more to do than a write for each copy.
}

const (
	sourceNamespace = "secretsync"
	secretMark      = secretsync.DefaultAnnotation
	misspelt        = "controller.nicoleh.io/secretsync-namespace"
)

var (
	targetNamespaces = []string{"team-a", "team-b", "team-c"}
	secretNames      = []string{"registry", "token"}
)

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
	w.newSecret(draw, sourceNamespace, secretNames[0], "")
}

// none stands for no mark.
const none = "-"

func (w *secrets) newNamespace(name, mark string) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setMark(namespace, mark)
	w.Create(namespace)
}

func setMark(obj metav1.Object, mark string) { set(obj, secretMark, mark) }

// set sets an annotation, or removes it.
func set(obj metav1.Object, key, value string) {
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

func (w *secrets) newSecret(draw *rand.Rand, namespace, name, mark string) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       w.newData(draw), Type: corev1.SecretTypeOpaque,
	}
	setMark(secret, mark)
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
		if source := w.secret(w.Store, sourceNamespace, name); source != nil {
			return w.disturb(draw, source)
		}
		w.newSecret(draw, sourceNamespace, name, simulation.Pick(draw, []string{"", "", "", none}))
		return "a new source " + name
	}
	target := simulation.Pick(draw, targetNamespaces)
	namespace := w.namespace(w.Store, target)
	switch draw.IntN(8) {
	case 0:
		w.refusing, w.since, w.isOpposed = !w.refusing, time.Now(), true
		return fmt.Sprintf("a quota refuses new Secrets: %t", w.refusing)
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
		setMark(revoked, simulation.Pick(draw, []string{none, "no", "ture"}))
		w.Put(revoked)
		rotated.Data = w.newData(draw)
		if draw.IntN(3) == 0 {
			setMark(rotated, "no")
		}
		w.Put(rotated)
		w.edits++
		return fmt.Sprintf("namespace %s says %q, and Secret %s rotates and says %q", target, answerOf(revoked), name, answerOf(rotated))
	default:
		if namespace == nil {
			return ""
		}
		changed := namespace.DeepCopy()
		mark := simulation.Pick(draw, []string{"", "", "true", none, "no", "ture"})
		setMark(changed, mark)
		w.Put(changed)
		return fmt.Sprintf("namespace %s says %q", target, mark)
	}
}

// plant has somebody create a Secret that is no copy, or looks like one.
func (w *secrets) plant(draw *rand.Rand, namespace, name string) string {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: w.newData(draw), Type: corev1.SecretTypeOpaque}
	what := draw.IntN(4)
	if what > 0 {
		secret.Labels = map[string]string{secretsync.LabelSourceNamespace: sourceNamespace}
	}
	if what > 1 {
		set(secret, secretsync.AnnotationSourceName, name)
		set(secret, secretsync.AnnotationMadeFor, []string{namespace, "elsewhere"}[what-2])
	}
	w.isOpposed = true // Each is looked for, written to or deleted.
	w.Create(secret)
	return fmt.Sprintf("somebody's Secret %s/%s with %v and %v", namespace, name, secret.Labels, secret.Annotations)
}

// disturb has somebody change or delete a Secret.
func (w *secrets) disturb(draw *rand.Rand, secret *corev1.Secret) string {
	changed := secret.DeepCopy()
	where := secret.Namespace + "/" + secret.Name
	switch n := draw.IntN(8); {
	case n == 0:
		w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		return "Secret " + where + " is deleted"
	case n < 3 && secret.Namespace != sourceNamespace:
		w.isOpposed = true
		if draw.IntN(2) == 0 {
			changed.Immutable = new(true)
			w.Put(changed)
			if source := w.secret(w.Store, sourceNamespace, secret.Name); source != nil && source.Immutable == nil {
				source = source.DeepCopy()
				source.Data = w.newData(draw)
				w.Put(source)
			}
			w.refusing, w.since = draw.IntN(4) > 0, time.Now()
			return fmt.Sprintf("somebody makes %s immutable, and its source changes; a quota refuses new Secrets: %t", where, w.refusing)
		}
		changed.Labels = nil
		w.Put(changed)
		return "somebody makes " + where + " theirs"
	case n < 3:
		mark := simulation.Pick(draw, []string{"", "", "true", none, "no", "ture"})
		setMark(changed, mark)
		w.Put(changed)
		return fmt.Sprintf("Secret %s says %q", where, mark)
	case n < 5 && secret.Namespace == sourceNamespace:
		key := simulation.Pick(draw, []string{secretsync.AnnotationNamespaces, secretsync.AnnotationNamespaces, secretsync.AnnotationNamespaceSelector, misspelt})
		value := simulation.Pick(draw, []string{none, none, "team-a", "team-c,team-b"})
		set(changed, key, value)
		w.Put(changed)
		return fmt.Sprintf("Secret %s has %s: %s", where, key, value)
	case n == 5:
		w.isOpposed = true
		w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		if secret.Namespace == sourceNamespace {
			w.newSecret(draw, secret.Namespace, secret.Name, simulation.Pick(draw, []string{"", "", none}))
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

// Admit implements World. The policy repeats what it has refused.
func (w *secrets) Admit(a apiserver.Admission) error {
	if !w.refusing || a.Verb != "create" || a.Key.Resource.Resource != "secrets" {
		return nil
	}
	secret, err := json.Marshal(a.Object)
	if err != nil {
		return err
	}
	return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("exceeded quota: no %s", w.Hidden(secret)))
}

// Mutate implements World.
func (w *secrets) Mutate(apiserver.Admission) {}

// Settle implements World.
func (w *secrets) Settle() time.Duration {
	w.refusing = false
	return 11 * time.Minute // Repairs, refusals and edits wait for five minutes at most.
}

// isCopy reports whether a Secret is a copy, or is to be made one by its label.
func isCopy(secret *corev1.Secret) bool {
	if secret == nil || secret.Labels[secretsync.LabelSourceNamespace] != sourceNamespace {
		return false
	}
	name, isNamed := secret.Annotations[secretsync.AnnotationSourceName]
	namespace, isPlaced := secret.Annotations[secretsync.AnnotationMadeFor]
	return (!isNamed || name == secret.Name) && (!isPlaced || namespace == secret.Namespace)
}

// isMade reports whether a Secret is a copy that says where it was made.
func isMade(secret *corev1.Secret) bool {
	return isCopy(secret) && secret.Annotations[secretsync.AnnotationMadeFor] != ""
}

// wish is whether there should be a copy.
type wish string

const (
	wanted   wish = "wanted"
	frozen   wish = "unclear"
	unwanted wish = "unwanted"
	gone     wish = "without a source"
)

// wishOf returns whether there should be a copy.
func (w *secrets) wishOf(store apiserver.Store, namespace, name string) wish {
	target, source := w.namespace(store, namespace), w.secret(store, sourceNamespace, name)
	if target == nil || target.DeletionTimestamp != nil {
		return unwanted
	}
	targetSays := answerOf(target)
	switch {
	case targetSays == "no" || targetSays == none:
		return unwanted
	case targetSays != "yes" && (source == nil || answerOf(source) != "no"):
		return frozen
	case !isThere(source):
		return gone
	case answerOf(source) == "no":
		return unwanted
	case answerOf(source) != "yes":
		return frozen
	}
	names, hasNames := source.Annotations[secretsync.AnnotationNamespaces]
	_, hasSelector := source.Annotations[secretsync.AnnotationNamespaceSelector]
	_, isMisspelt := source.Annotations[misspelt]
	switch {
	case isMisspelt || hasNames && hasSelector:
		return frozen
	case hasSelector:
		return unwanted // No namespace has a label of that name.
	case hasNames && !slices.Contains(strings.Split(names, ","), namespace):
		return unwanted
	}
	return wanted
}

func isThere(secret *corev1.Secret) bool { return secret != nil && secret.DeletionTimestamp == nil }

func answerOf(obj metav1.Object) string {
	value, ok := obj.GetAnnotations()[secretMark]
	switch {
	case !ok:
		return none
	case value == "" || value == "true":
		return "yes"
	}
	return value
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
	known := w.Since(min(x.Process.Knew("secrets", x.Decided), x.Process.Knew("namespaces", x.Decided)))
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
	switch {
	case x.Key.Resource.Resource != "secrets" || !slices.Contains(targetNamespaces, x.Key.Namespace):
		w.Fail("permissions", "%s", what)
	case before != nil && !isCopy(before):
		w.Fail("ownership", "%s, which is no copy", what)
	case x.Verb == "delete" && w.refusing && !w.since.After(x.Decided) && !in(w.SinceTime(x.Decided.Add(-time.Minute)), wishIs(unwanted, gone)):
		w.Fail("deletion", "%s, although no other can be created", what)
	case x.Verb == "delete" && before.Immutable != nil &&
		in(read, func(s apiserver.Store) bool { return wishIs(wanted)(s) && !isOfSource(before.Data)(s) }):
		// It is replaced.
	case x.Verb == "delete" && (!isMade(before) || !in(read, wishIs(unwanted, gone))):
		w.Fail("deletion", "%s, which somebody wants, or may want", what)
	case x.Verb == "delete":
		if !in(read, wishIs(unwanted)) && in(w.SinceTime(time.Now().Add(-time.Minute)), func(s apiserver.Store) bool { return isThere(w.secret(s, sourceNamespace, x.Key.Name)) }) {
			w.Fail("deletion", "%s, whose source has just gone", what)
		}
	case (before == nil || !equality.Semantic.DeepEqual(before.Data, after.Data)) && (!in(read, wishIs(wanted)) || !in(read, isOfSource(after.Data))):
		w.Fail("disclosure", "%s, which has not been wanted so since it was decided on", what)
	case x.Verb != "create" && (!in(known, wishIs(wanted)) && !in(read, wishIs(wanted)) || !in(known, isOfSource(after.Data))):
		w.Fail("copy", "%s, which has not been wanted so", what)
	}
}

// CheckEnd implements World.
func (w *secrets) CheckEnd() {
	hasHeld := slices.ContainsFunc(w.Said, func(event []byte) bool { return bytes.Contains(event, []byte("DeletionsHeld")) })
	for _, namespace := range targetNamespaces {
		for _, name := range secretNames {
			found, source := w.secret(w.Store, namespace, name), w.secret(w.Store, sourceNamespace, name)
			switch is := w.wishOf(w.Store, namespace, name); {
			case is == wanted && found == nil:
				w.Fail("end", "there is no copy of %s in %s", name, namespace)
			case is == wanted && isCopy(found) && !equality.Semantic.DeepEqual(found.Data, source.Data):
				w.Fail("end", "the copy of %s in %s is not as its source", name, namespace)
			case (is == unwanted || is == gone) && isMade(found) && !hasHeld:
				w.Fail("end", "there is a copy of %s in %s, which is %s", name, namespace, is)
			}
		}
	}
	w.checkBudget()
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
