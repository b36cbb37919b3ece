//go:debug randseednop=0

package secretsync_test

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

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
	"nicoleh.io/k8s-controller/pkg/secretsync"
)

// secrets is the world of secretsync: Secrets in a source namespace, namespaces that ask for
// copies, and people who meddle with both.
type secrets struct {
	*simulation.History
	made      int
	edits     int
	writes    int
	refusing  bool
	isOpposed bool // Somebody has refused writes.
}

const (
	sourceNamespace = "secretsync"
	secretMark      = "controller.nicoleh.io/secretsync"
	otherInstance   = "another"
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
		Run:      simulation.Program(secretsync.NewDescriptor),
		Kinds:    []apiserver.Kind{apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases(), apiserver.EventObjects()},
		NewWorld: newWorld,
	}.Test(t)
}

// Begin implements World.
func (w *secrets) Begin() {
	draw := w.Draw("begin")
	w.newNamespace(metav1.NamespaceSystem, false)
	w.newNamespace(sourceNamespace, false)
	for _, name := range targetNamespaces {
		w.newNamespace(name, draw.IntN(2) == 0)
	}
	w.newSecret(sourceNamespace, secretNames[0], true)
}

func (w *secrets) newNamespace(name string, isMarked bool) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setMark(namespace, isMarked)
	w.Create(namespace)
}

func setMark(obj metav1.Object, isMarked bool) {
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, secretMark)
	if isMarked {
		annotations[secretMark] = ""
	}
	obj.SetAnnotations(annotations)
}

func isMarked(obj metav1.Object) bool {
	_, ok := obj.GetAnnotations()[secretMark]
	return ok
}

// newValue returns bytes that must not appear anywhere else.
func (w *secrets) newValue() []byte {
	w.made++
	value := fmt.Appendf(nil, "hush-%d-%x", w.made, w.Draw("secret", fmt.Sprint(w.made)).Uint64())
	w.Hide(value)
	return value
}

func (w *secrets) newSecret(namespace, name string, isMarked bool) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"key": w.newValue()}, Type: corev1.SecretTypeOpaque,
	}
	setMark(secret, isMarked)
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
		w.newSecret(sourceNamespace, name, draw.IntN(4) > 0)
		return "a new source " + name
	}
	target := simulation.Pick(draw, targetNamespaces)
	namespace := w.namespace(w.Store, target)
	switch draw.IntN(6) {
	case 0:
		w.refusing, w.isOpposed = !w.refusing, true
		return fmt.Sprintf("a quota refuses new Secrets: %t", w.refusing)
	case 1:
		if namespace == nil {
			w.newNamespace(target, true)
			return "a new namespace " + target
		}
		w.Delete(namespaceKey(target), metav1.DeletePropagationBackground)
		return "namespace " + target + " is deleted"
	case 2:
		if secret := w.secret(w.Store, target, name); secret != nil {
			return w.disturb(draw, secret)
		}
		w.newSecret(target, name, false)
		return fmt.Sprintf("somebody's Secret %s in %s", name, target)
	default:
		if namespace == nil {
			return ""
		}
		changed := namespace.DeepCopy()
		setMark(changed, !isMarked(changed))
		w.Put(changed)
		return fmt.Sprintf("namespace %s asks for copies: %t", target, isMarked(changed))
	}
}

// disturb has somebody change or delete a Secret.
func (w *secrets) disturb(draw *rand.Rand, secret *corev1.Secret) string {
	changed := secret.DeepCopy()
	where := secret.Namespace + "/" + secret.Name
	switch draw.IntN(5) {
	case 0:
		w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		return "Secret " + where + " is deleted"
	case 1:
		if secret.Namespace != sourceNamespace {
			if changed.Labels = nil; draw.IntN(2) == 0 {
				changed.Labels = secret.Labels
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, secretsync.AnnotationInstance, otherInstance)
			}
			w.Put(changed)
			return "somebody makes " + where + " theirs"
		}
		setMark(changed, !isMarked(changed))
		w.Put(changed)
		return fmt.Sprintf("Secret %s is a source: %t", where, isMarked(changed))
	case 2:
		w.DeleteNow(secretKey(secret.Namespace, secret.Name))
		w.newSecret(secret.Namespace, secret.Name, secret.Namespace == sourceNamespace)
		return "another Secret takes the place of " + where
	default:
		changed.Data = map[string][]byte{"key": w.newValue()}
		w.Put(changed)
		return "Secret " + where + " has other data"
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
	return 6 * time.Minute
}

// isCopy reports whether a Secret carries the label of copies, and is not another instance's.
func isCopy(secret *corev1.Secret) bool {
	return secret != nil && secret.Labels[secretsync.LabelSourceNamespace] == sourceNamespace && secret.Annotations[secretsync.AnnotationInstance] != otherInstance
}

// isWanted reports whether there should be a copy.
func (w *secrets) isWanted(store apiserver.Store, namespace, name string) bool {
	return isSource(w.secret(store, sourceNamespace, name)) && isTarget(w.namespace(store, namespace))
}

func isSource(secret *corev1.Secret) bool {
	return secret != nil && secret.DeletionTimestamp == nil && isMarked(secret)
}

func isTarget(namespace *corev1.Namespace) bool {
	return namespace != nil && namespace.DeletionTimestamp == nil && isMarked(namespace)
}

// Check implements World.
func (w *secrets) Check(x simulation.Exchange) {
	if x.Key.Resource.Resource == "secrets" && x.Request.Method != http.MethodGet && (x.IsWrite() || w.isOpposed) {
		w.writes++
	}
	if !x.IsWrite() || x.Key.Resource.Resource == "events" || x.Key.Resource.Resource == "leases" {
		return
	}
	before, after := w.secret(x.Before, x.Key.Namespace, x.Key.Name), w.secret(x.After, x.Key.Namespace, x.Key.Name)
	states := w.Since(min(x.Process.Knew("secrets", x.Decided), x.Process.Knew("namespaces", x.Decided)))
	switch {
	case x.Key.Resource.Resource != "secrets" || !slices.Contains(targetNamespaces, x.Key.Namespace):
		w.Fail("permissions", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	case before != nil && !isCopy(before):
		w.Fail("ownership", "%s: %s %s, which is no copy", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	case x.Verb == "delete":
		if !slices.ContainsFunc(states, func(s apiserver.Store) bool { return !w.isWanted(s, x.Key.Namespace, x.Key.Name) }) {
			w.Fail("deletion", "%s deletes %s, which has been wanted for long", x.Process.Name, simulation.Describe(x.Key))
		}
	case !slices.ContainsFunc(states, func(s apiserver.Store) bool {
		source := w.secret(s, sourceNamespace, x.Key.Name)
		return isSource(source) && equality.Semantic.DeepEqual(source.Data, after.Data)
	}), !slices.ContainsFunc(states, func(s apiserver.Store) bool { return isTarget(w.namespace(s, x.Key.Namespace)) }): // There are two caches.
		w.Fail("copy", "%s: %s %s, which has not been wanted so", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	}
}

// CheckEnd implements World.
func (w *secrets) CheckEnd() {
	hasHeld := slices.ContainsFunc(w.Said, func(event []byte) bool { return bytes.Contains(event, []byte("DeletionsHeld")) })
	for _, namespace := range targetNamespaces {
		for _, name := range secretNames {
			found := w.secret(w.Store, namespace, name)
			switch isWanted := w.isWanted(w.Store, namespace, name); {
			case isWanted && found == nil:
				w.Fail("end", "there is no copy of %s in %s", name, namespace)
			case isWanted && isCopy(found) && !equality.Semantic.DeepEqual(found.Data, w.secret(w.Store, sourceNamespace, name).Data):
				w.Fail("end", "the copy of %s in %s is not as its source", name, namespace)
			case !isWanted && isCopy(found) && !hasHeld:
				w.Fail("end", "there is a copy of %s in %s, which is not wanted", name, namespace)
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
