package secretsync

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// These tests look at every order in which things can happen: see pkg/kit/explore.

// explored is the controller with one source and one namespace that gets a copy. The key of
// content hashes exists, because a random one would be different each time.
func explored() explore.Setup {
	key := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: usual.SourceNamespace, Name: HashKey},
		Data:       map[string][]byte{keyField: []byte("the key of content hashes")},
	}
	return explore.Setup{
		Kinds: []apiserver.Kind{apiserver.Namespaces(), apiserver.Secrets()},
		Objects: []explore.Object{
			{Manager: "people", Object: newNamespace(usual.SourceNamespace)},
			{Manager: "people", Object: newNamespace("shop", marked)},
			{Manager: "people", Object: key},
			{Manager: "people", Object: exploredSource(corev1.SecretTypeOpaque)},
		},
		Programs: []explore.Program{{Name: "the controller", Elected: true, New: newExplored}},
		World:    []explore.Actor{explore.Collector()},
		Edits:    []explore.Actor{{Name: "somebody", Moves: editsOfPeople}},
		Checks:   explore.Checks{Sent: checkSent, Stored: checkStored, Rest: checkRest},
		Settles:  10 * time.Second,
		Horizon:  backoff.ForgetAfter,
	}
}

func exploredSource(kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: usual.SourceNamespace, Name: "db", Annotations: map[string]string{usual.Annotation: "yes"}},
		Type:       kind,
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}
}

// newExplored makes the controller as a process does, with a way to all that it remembers,
// except for the brake, which does not hold the deletion of a single copy.
func newExplored(d manager.Dependencies) (explore.Instance, error) {
	c, err := newFor(usual, d)
	if err != nil {
		return explore.Instance{}, err
	}
	return explore.Instance{Loop: c.Loop, Memory: map[string]explore.Memory{
		"writes":    explore.MemoryOf(c.writes.State, c.writes.SetState),
		"keyWrites": explore.MemoryOf(c.keyWrites.State, c.keyWrites.SetState),
		"memories":  explore.MemoryOf(c.memories.state, c.memories.setState),
		"retries":   explore.MemoryOf(c.retries.State, c.retries.SetState),
		"isHolding": explore.MemoryOf(c.isHolding.Load, c.isHolding.Store),
	}}, nil
}

func (m *memories) state() map[string]Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return snapshot.Save(m.byName, snapshot.Same)
}

func (m *memories) setState(state map[string]Memory) {
	m.mu.Lock()
	m.byName = nil
	m.mu.Unlock()
	for name, memory := range state {
		m.set(snapshot.Name(name), memory)
	}
}

// editsOfPeople are a few changes that people make.
func editsOfPeople(w explore.World) (moves []explore.Move) {
	add := func(did string, after explore.World) { moves = append(moves, explore.Move{Did: did, After: after}) }
	edit := func(did, namespace string, change func(*corev1.Secret)) {
		add(did, explore.Update(w, "people", secretResource, namespace, "db", "", change))
	}
	remove := func(w explore.World, namespace string) explore.World {
		return w.Delete(secretResource, namespace, "db", metav1.DeleteOptions{})
	}
	source, target := exploredNamespace(w, usual.SourceNamespace), exploredNamespace(w, "shop")
	if exploredSecret(w, usual.SourceNamespace) != nil && source.DeletionTimestamp == nil {
		edit("changes the source", usual.SourceNamespace, func(s *corev1.Secret) { s.Data["password"] = []byte("correct horse") })
		edit("removes the mark of the source", usual.SourceNamespace, func(s *corev1.Secret) { s.Annotations = nil })
		add("deletes the source", remove(w, usual.SourceNamespace))
		add("makes the source again with another type", remove(w, usual.SourceNamespace).Create(explore.Object{Manager: "people", Object: exploredSource("example.com/other")}))
	}
	if needsCopy(w) {
		add("deletes the source namespace", w.Delete(namespacesGVR.GroupResource(), "", usual.SourceNamespace, metav1.DeleteOptions{}))
	}
	if target == nil || target.DeletionTimestamp != nil {
		return moves
	}
	add("deletes the target namespace", w.Delete(namespacesGVR.GroupResource(), "", "shop", metav1.DeleteOptions{}))
	if exploredSecret(w, "shop") == nil {
		add("creates a Secret of that name", w.Create(explore.Object{Manager: "people", Object: foreign("shop", "db")}))
		return moves
	}
	edit("changes the copy", "shop", func(s *corev1.Secret) { s.Data = nil })
	edit("makes the copy a Secret of somebody else", "shop", func(s *corev1.Secret) { s.Labels = nil })
	add("deletes the copy", remove(w, "shop"))
	return moves
}

// exploredNamespace returns a namespace, or nil if there is none.
func exploredNamespace(w explore.World, name string) *corev1.Namespace {
	return explore.Get[corev1.Namespace](w, namespacesGVR.GroupResource(), "", name)
}

// exploredSecret returns the Secret of the source's name in a namespace, or nil if there is
// none.
func exploredSecret(w explore.World, namespace string) *corev1.Secret {
	return explore.Get[corev1.Secret](w, secretResource, namespace, "db")
}

// needsCopy reports whether there should be a copy.
func needsCopy(w explore.World) bool {
	source, target := exploredSecret(w, usual.SourceNamespace), exploredNamespace(w, "shop")
	return source != nil && source.Annotations[usual.Annotation] != "" &&
		target != nil && target.DeletionTimestamp == nil && target.Annotations[usual.Annotation] != ""
}

// isManaged reports whether a Secret is marked as one of the controller's copies.
func isManaged(secret *corev1.Secret) bool {
	return secret != nil && secret.Labels[LabelSourceNamespace] == usual.SourceNamespace && secret.Annotations[AnnotationInstance] == usual.Annotation
}

// checkSent looks at each deletion: live reads must have shown that the copy must not stay as
// it is.
func checkSent(s explore.Sent) error {
	if s.Verb != "delete" {
		return nil
	}
	live := map[string]*unstructured.Unstructured{}
	for _, object := range s.Answers {
		live[object.GetKind()+" "+object.GetName()] = object
	}
	if namespace := live["Namespace "+usual.SourceNamespace]; namespace == nil || namespace.GetDeletionTimestamp() != nil {
		return errors.New("the controller deletes a copy although it has not seen that the source namespace exists")
	}
	target, source := live["Namespace shop"], live["Secret db"]
	if target == nil || source == nil || target.GetAnnotations()[usual.Annotation] == "" || source.GetAnnotations()[usual.Annotation] == "" {
		return nil
	}
	for _, object := range s.Caches {
		if object.GetKind() == "Secret" && object.GetNamespace() == "shop" && explore.As[corev1.Secret](object).Type != explore.As[corev1.Secret](source).Type {
			return nil // It has to be replaced.
		}
	}
	return errors.New("the controller deletes a copy that is wanted")
}

// checkStored looks at each change of what is stored: the controller must write nothing but
// its copies, and keep them when the source namespace is being deleted.
func checkStored(c explore.Change) error {
	if c.Verb == "" {
		return nil
	}
	before := explore.Get[corev1.Secret](c.Before, secretResource, c.Key.Namespace, c.Key.Name)
	after := explore.Get[corev1.Secret](c.After, secretResource, c.Key.Namespace, c.Key.Name)
	namespace := exploredNamespace(c.Before, usual.SourceNamespace)
	switch {
	case c.Key.Namespace != "shop" || c.Key.Name != "db":
		return fmt.Errorf("the controller writes Secret %s/%s", c.Key.Namespace, c.Key.Name)
	case before != nil && !isManaged(before):
		return errors.New("the controller writes somebody else's Secret")
	case after == nil && (namespace == nil || namespace.DeletionTimestamp != nil):
		return errors.New("the controller deletes a copy without a source namespace")
	case after != nil && !isManaged(after):
		return errors.New("the controller writes a Secret that is not marked as a copy")
	}
	return nil
}

// checkRest looks at a state in which nothing happens any more.
func checkRest(w explore.World) error {
	source, copied := exploredSecret(w, usual.SourceNamespace), exploredSecret(w, "shop")
	isKept := exploredNamespace(w, usual.SourceNamespace) == nil
	switch {
	case needsCopy(w) && copied == nil:
		return errors.New("there is no copy")
	case copied == nil || !isManaged(copied):
		return nil
	case !needsCopy(w) && !isKept:
		return errors.New("the copy is still there")
	case !needsCopy(w):
		return nil
	case copied.Type != source.Type || !maps.EqualFunc(copied.Data, source.Data, bytes.Equal):
		return errors.New("the copy differs from its source")
	case copied.Annotations[AnnotationSourceUID] != string(source.UID):
		return errors.New("the copy has the UID of another source")
	}
	return nil
}

var exploring = explore.AddFlags(flag.CommandLine)

// TestExplore is complete within these bounds. -explore.bounds goes further.
func TestExplore(t *testing.T) {
	exploring.Test(t, "explored()", explored(),
		"losses=1,crashes=1",
		"refusals=1",
		"relists=1,delays=1",
		"processes=2,crashes=1",
		"processes=2,crashes=1,takeovers=1",
		"edits=1",
	)
}

// unseen is the same with nobody but those who delete the copy.
func unseen() explore.Setup {
	s := explored()
	s.Settles = 0 // A copy that nobody has seen to be deleted is looked for after a minute.
	s.Edits = []explore.Actor{{Name: "somebody", Moves: func(w explore.World) []explore.Move {
		if exploredSecret(w, "shop") == nil {
			return nil
		}
		return []explore.Move{{Did: "deletes the copy", After: w.Delete(secretResource, "shop", "db", metav1.DeleteOptions{})}}
	}}}
	return s
}

// A copy may be deleted before the cache has shown it, and the watch may break off at the
// same time, so that there is no event.
func TestExploreDeletionsThatNoCacheSees(t *testing.T) {
	exploring.Test(t, "unseen()", unseen(), "relists=1,edits=1", "crashes=1,edits=1", "processes=2,takeovers=1,edits=1")
}

// withCopy is the same with a copy that was made before, of another content, and with others
// who take it, or put a Secret of their own in its place. The copy has to be deleted unless it
// is wanted.
func withCopy(isWanted bool) explore.Setup {
	s := explored()
	s.Settles = 0 // A name that is taken is looked at again after a minute.
	source, copied := exploredSource(corev1.SecretTypeOpaque), exploredSource(corev1.SecretTypeOpaque)
	if !isWanted {
		source.Annotations = nil
	}
	copied.Namespace = "shop"
	copied.Labels = map[string]string{LabelSourceNamespace: usual.SourceNamespace}
	copied.Annotations = map[string]string{AnnotationInstance: usual.Annotation}
	copied.Data = nil
	s.Objects[len(s.Objects)-1].Object = source
	s.Objects = append(s.Objects, explore.Object{Manager: fieldManager, Object: copied})
	s.Edits = []explore.Actor{{Name: "somebody else", Moves: func(w explore.World) []explore.Move {
		if exploredSecret(w, "shop") == nil {
			return nil
		}
		return []explore.Move{
			{Did: "takes the copy", After: explore.Update(w, "others", secretResource, "shop", "db", "", func(s *corev1.Secret) { s.Labels = nil })},
			{Did: "puts another Secret in its place", After: w.Delete(secretResource, "shop", "db", metav1.DeleteOptions{}).Create(explore.Object{Manager: "others", Object: foreign("shop", "db")})},
		}
	}}}
	return s
}

// What the cache shows to be a copy may have become somebody else's Secret.
func TestExploreCopiesThatAreTaken(t *testing.T) {
	exploring.Test(t, "withCopy(true)", withCopy(true), "edits=1")
	exploring.Test(t, "withCopy(false)", withCopy(false), "edits=1")
}
