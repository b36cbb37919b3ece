package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	vault   = "secretsync"
	share   = "controller.nicoleh.io/secretsync"
	copied  = "controller.nicoleh.io/secretsync-source-namespace=secretsync"
	unspoke = "correct-horse-" // is part of every value, and must not be disclosed
)

// secrets is a cluster with namespaces that want copies.
type secrets struct {
	*testing.T
	n       *lab.Namespace // for its helpers
	targets []string
}

func newSecrets(t *testing.T, namespaces int) *secrets {
	l := NewLab(t, lab.Options{Nodes: -1})
	s := &secrets{T: t, n: l.NewNamespace(t)}
	if _, err := l.TryKubectl(t.Context(), "", "apply", "-f", l.Path("artifacts/rbac-secretsync.yaml")); err != nil {
		t.Fatal(err)
	}
	var makers sync.WaitGroup
	names := make(chan string)
	for range 10 {
		makers.Go(func() {
			for name := range names {
				s.namespace(name)
			}
		})
	}
	for i := range namespaces {
		s.targets = append(s.targets, fmt.Sprintf("team-%03d", i))
		names <- s.targets[i]
	}
	close(names)
	makers.Wait()
	return s
}

// namespace creates a marked namespace.
func (s *secrets) namespace(name string) {
	s.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{share: ""}}}
	if _, err := s.n.Lab.Kube.CoreV1().Namespaces().Create(s.Context(), made, metav1.CreateOptions{}); err != nil {
		s.Error(err)
	}
}

// mark sets or removes (null) the annotation of a namespace.
func (s *secrets) mark(namespace, annotation, value string) {
	s.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, annotation, value)
	if _, err := s.n.Lab.Kube.CoreV1().Namespaces().Patch(s.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// source creates a source, or replaces the one of that name.
func (s *secrets) source(name, value string, edits ...func(*corev1.Secret)) {
	s.Helper()
	source := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vault, Name: name, Annotations: map[string]string{share: "", "example.com/foreign": "x"},
			Labels: map[string]string{"app": name},
		},
		Data: map[string][]byte{"username": []byte(unspoke + "user"), "password": []byte(unspoke + value)},
		Type: corev1.SecretTypeBasicAuth,
	}
	for _, edit := range edits {
		edit(source)
	}
	client := s.n.Lab.Kube.CoreV1().Secrets(vault)
	if err := client.Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	if _, err := client.Create(s.Context(), source, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// patch changes a Secret.
func (s *secrets) patch(namespace, name, patch string) {
	s.Helper()
	if _, err := s.n.Lab.Kube.CoreV1().Secrets(namespace).Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// check compares the copies of that name with where they should be, and with their
// source.
func (s *secrets) check(ctx context.Context, name string, where []string) error {
	list, err := s.n.Lab.Kube.CoreV1().Secrets("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, LabelSelector: copied})
	if err != nil {
		return err
	}
	var is []string
	for _, secret := range list.Items {
		is = append(is, secret.Namespace)
	}
	slices.Sort(is)
	if !slices.Equal(is, where) {
		return fmt.Errorf("there are %d copies, want %d: %s", len(is), len(where), cmp.Diff(where, is))
	}
	if len(where) == 0 {
		return nil
	}
	source, err := s.n.Lab.Kube.CoreV1().Secrets(vault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	home, err := s.n.Lab.Kube.CoreV1().Namespaces().Get(ctx, vault, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, secret := range list.Items {
		if secret.Type != source.Type || ptr.Deref(secret.Immutable, false) != ptr.Deref(source.Immutable, false) {
			return fmt.Errorf("the copy in %s is of type %s, immutable: %v", secret.Namespace, secret.Type, ptr.Deref(secret.Immutable, false))
		}
		if diff := cmp.Diff(source.Data, secret.Data); diff != "" {
			return fmt.Errorf("data of the copy in %s (-want +got):\n%s", secret.Namespace, diff)
		}
		if diff := cmp.Diff(map[string]string{
			"controller.nicoleh.io/secretsync-source-name": name, "controller.nicoleh.io/secretsync-source-uid": string(source.UID),
			"controller.nicoleh.io/secretsync-instance": share, "controller.nicoleh.io/secretsync-namespace": secret.Namespace, "controller.nicoleh.io/secretsync-source-namespace-uid": string(home.UID),
		}, secret.Annotations); diff != "" {
			return fmt.Errorf("annotations of the copy in %s (-want +got):\n%s", secret.Namespace, diff)
		}
		if len(secret.Labels) != 1 || len(secret.OwnerReferences) != 0 {
			return fmt.Errorf("the copy in %s has labels %v and owners %v", secret.Namespace, secret.Labels, secret.OwnerReferences)
		}
	}
	return nil
}

// eventually waits until there are correct copies in those namespaces and nowhere else.
func (s *secrets) eventually(what, name string, where []string) {
	s.Helper()
	s.n.Eventually(s.T, what, func(ctx context.Context) error { return s.check(ctx, name, where) })
}

// eventuallyTold waits for an event about a source.
func (s *secrets) eventuallyTold(source string, words ...string) {
	s.Helper()
	s.n.Eventually(s.T, "there is an event "+strings.Join(words, " "), func(ctx context.Context) error {
		list, err := s.n.Lab.Kube.EventsV1().Events(vault).List(ctx, metav1.ListOptions{FieldSelector: "regarding.kind=Secret,regarding.name=" + source})
		if err != nil {
			return err
		}
		for _, event := range list.Items {
			if containsAll(event.Type+" "+event.Reason+" "+event.Note, words...) {
				return nil
			}
		}
		return fmt.Errorf("it is not among %d events", len(list.Items))
	})
}

// eventuallyToldAbout waits for an event about a namespace.
func (s *secrets) eventuallyToldAbout(namespace string, words ...string) {
	s.Helper()
	s.n.Eventually(s.T, "there is an event "+strings.Join(words, " "), func(ctx context.Context) error {
		list, err := s.n.Lab.Kube.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "regarding.kind=Namespace,regarding.name=" + namespace})
		if err != nil {
			return err
		}
		for _, event := range list.Items {
			if containsAll(event.Type+" "+event.Reason+" "+event.Note, words...) {
				return nil
			}
		}
		return fmt.Errorf("it is not among %d events", len(list.Items))
	})
}

// confirm confirms the deletion of copies for an hour.
func (s *secrets) confirm() {
	s.Helper()
	s.mark(vault, "controller.nicoleh.io/secretsync-confirm-deletions-until", time.Now().Add(time.Hour).UTC().Format(`"`+time.RFC3339+`"`))
}

// eventuallyTroubled waits until the metrics count so many copies whose name is taken,
// and so many that failed.
func (s *secrets) eventuallyTroubled(c *lab.Controller, taken, failed int) {
	s.Helper()
	s.eventuallyCounted(c, map[string]int{"ErrResourceExists": taken, "CopyFailed": failed})
}

// eventuallyCounted waits until the metrics count so many problems, by reason.
func (s *secrets) eventuallyCounted(c *lab.Controller, troubles map[string]int) {
	s.Helper()
	s.n.Eventually(s.T, "the metrics tell of the troubles", func(context.Context) error {
		metrics := c.Metrics(s.T)
		for reason, want := range troubles {
			if !strings.Contains(metrics, fmt.Sprintf("secretsync_troubles{reason=%q} %d\n", reason, want)) {
				return fmt.Errorf("they are:\n%s", metrics)
			}
		}
		return nil
	})
}

// writes returns the controller's writes of Secrets since then.
func (s *secrets) writes(c *lab.Controller, mark time.Time) lab.Requests {
	return s.n.Lab.Requests(s).By(c.User).Since(mark).Resource("secrets").Writes()
}

// syncs returns how many syncs of each object the log has, from that line on.
func syncs(log string) map[string]int {
	counts := map[string]int{}
	for _, found := range regexp.MustCompile(`\] "(?:Synced|Not yet|Sync failed|Gave up[^"]*)".* object="([^"]+)"`).FindAllStringSubmatch(log, -1) {
		counts[found[1]]++
	}
	return counts
}

func (s *secrets) without(namespaces ...string) []string {
	return slices.DeleteFunc(slices.Clone(s.targets), func(name string) bool { return slices.Contains(namespaces, name) })
}

// What 300 namespaces cost, one of which refuses its copy and one of which has a Secret
// of its own.
func TestSecretsync(t *testing.T) {
	t.Parallel()
	const refusing, taken, plain = "team-007", "taken", "plain"
	s := newSecrets(t, 300)
	for _, reserved := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, vault} {
		s.mark(reserved, share, `"yes"`)
	}
	s.namespace(taken)
	s.namespace(plain)
	s.mark(plain, share, `"false"`)
	kube := s.n.Lab.Kube.CoreV1()
	if _, err := kube.ResourceQuotas(refusing).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("0")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unmanaged, err := kube.Secrets(taken).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "db"}, Data: map[string][]byte{"mine": []byte("x")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	s.source("db", "1")
	c := s.n.Lab.StartController(t, "-controllers=secretsync", "-v=4", "-insecure-bind-address=127.0.0.1:0")
	began := time.Now()
	s.eventually("299 of 300 namespaces have their copy", "db", s.without(refusing))
	t.Logf("299 copies were there after %s", time.Since(began).Round(time.Millisecond))
	s.eventuallyTold("db", "Warning CopyFailed", refusing, "quota")
	s.eventuallyTold("db", "Warning ErrResourceExists", taken, "not managed by secretsync")

	// Nothing is written besides copies.
	eventuallyIdleButFor(s, c, refusing, taken)
	made := s.writes(c, began).Where(func(e *cluster.AuditEvent) bool { return e.Code < 300 })
	if len(made) != 299 {
		t.Errorf("299 copies took %s", made)
	}

	// A change of the source costs one write of each copy, and at most one more sync.
	before, mark := len(c.Log()), time.Now()
	s.patch(vault, "db", `{"stringData":{"password":"`+unspoke+`2","more":"`+unspoke+`more"}}`)
	s.eventually("a rotation has come to all", "db", s.without(refusing))
	eventuallyIdleButFor(s, c, refusing, taken)
	looks := syncs(c.Log()[before:])
	made = s.writes(c, mark)
	for _, namespace := range s.without(refusing) {
		if n := looks[namespace+"/db"]; n > 2 || n < 1 {
			t.Errorf("%s took %d syncs", namespace, n)
		}
	}
	if updates := made.ByObject()["db"] - len(made.Refused()); updates != 299 {
		t.Errorf("299 copies were written %d times", updates)
	}

	// A restart writes nothing when all is well.
	c.Stop(t)
	mark = time.Now()
	c.Start(t)
	eventuallyIdleButFor(s, c, refusing, taken)
	if accepted := s.writes(c, mark).Where(func(e *cluster.AuditEvent) bool { return e.Code < 300 }); len(accepted) > 0 {
		t.Errorf("a restart led to %s", accepted)
	}

	// The namespace that refused was retried all the time, at growing intervals.
	attempts := s.n.Lab.Requests(t).By(c.User).Where(func(e *cluster.AuditEvent) bool { return e.Namespace == refusing && e.Verb == "create" })
	if len(attempts) < 5 || len(attempts) > 200 {
		t.Errorf("%s took %d attempts", refusing, len(attempts))
	}
	s.eventuallyTroubled(c, 1, 1)
	if err := kube.ResourceQuotas(refusing).Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the one that refused has its copy", "db", s.targets)

	now, err := kube.Secrets(taken).Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil || now.ResourceVersion != unmanaged.ResourceVersion {
		t.Errorf("what was not managed has version %s, had %s (%v)", now.ResourceVersion, unmanaged.ResourceVersion, err)
	}
	requireUntold(s, c)
}

// Whatever happens to copies, sources, namespaces and the controller, there are the
// copies that the sources and the marks ask for.
func TestSecretsyncFollows(t *testing.T) {
	t.Parallel()
	const echo = "echo"
	s := newSecrets(t, 30)
	kube := s.n.Lab.Kube.CoreV1()
	s.source("db", "1")
	c := s.n.Lab.StartController(t, "-controllers=secretsync", "-v=4", "-insecure-bind-address=127.0.0.1:0")
	s.eventually("all have their copy", "db", s.targets)

	// Changes of copies are repaired.
	s.patch("team-001", "db", `{"stringData":{"password":"edited"},"data":{"username":null}}`)
	s.patch("team-002", "db", `{"stringData":{"extra":"edited"},"metadata":{"annotations":{"controller.nicoleh.io/secretsync-source-uid":"x"}}}`)
	s.patch("team-003", "db", `{"immutable":true}`)
	if err := kube.Secrets("team-004").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("what was done by hand is undone", "db", s.targets)
	s.eventuallyTold("db", "Normal CopyReplaced", "team-003", "immutable")

	// Some changes need a new copy. The controller sees the source being deleted and
	// re-created.
	for _, remade := range []struct {
		value, told string
		edit        func(*corev1.Secret)
	}{
		{"3", "its type has changed", func(secret *corev1.Secret) { secret.Type = corev1.SecretTypeOpaque }},
		{"4", "its type has changed", func(secret *corev1.Secret) { secret.Immutable = ptr.To(true) }},
		{"5", "it is immutable", func(secret *corev1.Secret) { secret.Immutable = ptr.To(true) }},
		{"6", "it is immutable", func(*corev1.Secret) {}},
	} {
		c.Freeze(t)
		s.source("db", remade.value, remade.edit)
		c.Thaw(t)
		s.eventually("all have a copy of the re-created source", "db", s.targets)
		s.eventuallyTold("db", "Normal CopyReplaced", remade.told)
	}

	// Marks come and go.
	s.mark("team-005", share, "null")
	s.eventually("a namespace without its mark has no copy", "db", s.without("team-005"))
	s.mark("team-005", share, `""`)
	s.eventually("it has one again", "db", s.targets)
	s.patch(vault, "db", `{"metadata":{"annotations":{"`+share+`":null}}}`)
	s.eventually("a source without its mark has no copies", "db", nil)
	s.patch(vault, "db", `{"metadata":{"annotations":{"`+share+`":""}}}`)
	s.eventually("it has them again", "db", s.targets)

	// Namespaces are deleted and created.
	s.n.Kubectl(t, "delete", "namespace", "team-006", "--wait=true")
	s.namespace("later")
	s.targets = append([]string{"later"}, s.without("team-006")...)
	s.eventually("namespaces that have come are served", "db", s.targets)

	// A webhook or policy may repeat in its message what it was shown.
	forbid(s, echo)
	s.namespace(echo)
	s.eventuallyTold("db", "Warning CopyFailed", echo, "withheld")
	s.eventuallyTroubled(c, 0, 1)

	// Changes while no controller is running.
	for _, other := range []string{"tls", "gone", "stays", "stays-too"} {
		s.source(other, "a")
	}
	s.eventually("other sources are served", "tls", s.targets)
	s.eventually("other sources are served", "gone", s.targets)
	s.eventually("other sources are served", "stays-too", s.targets)
	eventuallyIdleButFor(s, c, echo)
	c.Stop(t)
	if err := kube.Secrets(vault).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.mark("team-010", share, "null")
	s.patch(vault, "tls", `{"metadata":{"annotations":{"`+share+`":null}}}`)
	s.patch("team-011", "db", `{"stringData":{"password":"edited while nothing was running"}}`)
	c.Start(t)
	s.eventually("a source that was deleted meanwhile has no copies", "gone", nil)
	s.eventually("what lost its mark has no copies", "tls", nil)
	s.targets = s.without("team-010")
	s.eventually("what was edited is repaired", "db", s.targets)
	requireUntold(s, c)

	// Another annotation selects other sources and namespaces.
	c.Stop(t)
	const other = "eightypercent.net/secretsync"
	s.mark("team-020", other, `""`)
	s.patch(vault, "db", `{"metadata":{"annotations":{"`+other+`":""}}}`)
	c = s.n.Lab.StartController(t, "-controllers=secretsync", "-secretsync-annotation="+other, "-secretsync-instance="+share, "-v=4")
	s.eventuallyToldAbout(vault, "Warning DeletionsHeld", "copies would be deleted")
	eventuallyIdleButFor(s, c)
	if err := s.check(t.Context(), "db", s.targets); err != nil {
		t.Errorf("before anybody has confirmed it: %v", err)
	}
	s.confirm()
	s.eventually("another annotation has another set", "db", []string{"team-020"})
}

// What others do to copies is reported, and repaired at growing intervals.
func TestSecretsyncCounterparts(t *testing.T) {
	t.Parallel()
	const altered, contested, held = "team-000", "team-001", "team-002"
	s := newSecrets(t, 6)
	alterCopies(s, altered)
	s.source("db", "1")
	began := time.Now()
	c := s.n.Lab.StartController(t, "-controllers=secretsync", "-v=4", "-insecure-bind-address=127.0.0.1:0")
	// Someone reverts the copy whenever it has changed, as GitOps tools do.
	ctx, stop := context.WithCancel(t.Context())
	var fighting sync.WaitGroup
	fighting.Go(func() {
		copies := s.n.Lab.Kube.CoreV1().Secrets(contested)
		for ctx.Err() == nil {
			if secret, err := copies.Get(ctx, "db", metav1.GetOptions{}); err == nil && string(secret.Data["password"]) != "mine" {
				_, _ = copies.Patch(ctx, "db", types.MergePatchType, []byte(`{"stringData":{"password":"mine"}}`), metav1.PatchOptions{FieldManager: "gitops"})
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	defer fighting.Wait()
	defer stop()

	s.eventuallyTold("db", "Warning CopyAltered", altered, "its data")
	s.eventuallyTold("db", "Warning CopyContested", contested, `keeps being reverted, last by "gitops"`)
	s.eventuallyCounted(c, map[string]int{"CopyAltered": 1, "CopyContested": 1})
	time.Sleep(time.Until(began.Add(30 * time.Second))) // in which there are fewer and fewer repairs
	for _, namespace := range []string{altered, contested} {
		made := s.writes(c, began).Where(func(e *cluster.AuditEvent) bool { return e.Namespace == namespace })
		if len(made) > 8 {
			t.Errorf("%s took %d writes in half a minute", namespace, len(made))
		}
	}

	// Another instance leaves these copies alone.
	mark := time.Now()
	other := s.n.Lab.StartController(t, "-controllers=secretsync", "-secretsync-annotation=example.com/other", "-v=4")
	eventuallyIdleButFor(s, other)
	for _, e := range s.writes(c, mark) { // both instances have the same user
		if e.Namespace != altered && e.Namespace != contested {
			t.Errorf("two secretsyncs made %s of %s", e.Verb, e.Namespace)
		}
	}
	other.Stop(t)

	// A finalizer holds an old copy.
	s.patch(held, "db", `{"metadata":{"finalizers":["example.com/wait"]}}`)
	if err := s.n.Lab.Kube.CoreV1().Secrets(held).Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.source("db", "2")
	s.eventuallyTold("db", "Warning CopyTerminating", held, "example.com/wait")
	s.eventuallyCounted(c, map[string]int{"CopyTerminating": 1})
	s.patch(held, "db", `{"metadata":{"finalizers":null}}`)
	stop()
	fighting.Wait()
	s.n.Kubectl(t, "delete", "namespace", altered, contested, "--wait=true")
	s.targets = s.without(altered, contested)
	s.eventually("the others have their copy", "db", s.targets)
	s.eventuallyCounted(c, map[string]int{"CopyTerminating": 0, "CopyAltered": 0, "CopyContested": 0})
	requireUntold(s, c)
}

// Sources say which namespaces may have them, and namespaces whether they want copies.
func TestSecretsyncReceivers(t *testing.T) {
	t.Parallel()
	s := newSecrets(t, 5)
	restrict := func(annotation, value string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) {
			secret.Annotations["controller.nicoleh.io/secretsync-"+annotation] = value
		}
	}
	s.source("named", "1", restrict("namespaces", "team-001, *-003"))
	s.source("selected", "1", restrict("namespace-selector", "env=prod"))
	s.source("public", "1")
	s.source("wrong", "1", restrict("namespaces", "Team 1"))
	s.mark("team-004", share, `"nay"`)
	c := s.n.Lab.StartController(t, "-controllers=secretsync", "-v=4", "-insecure-bind-address=127.0.0.1:0")
	s.eventually("one for all", "public", s.without("team-004"))
	s.eventually("one for some by name", "named", []string{"team-001", "team-003"})
	s.eventuallyToldAbout("team-004", "Warning UnclearAnnotation", share, `"nay"`)
	s.eventuallyTold("wrong", "Warning NoReceivers", `"Team"`)
	s.eventuallyCounted(c, map[string]int{"NoReceivers": 1})
	s.n.Kubectl(t, "label", "namespace", "team-002", "env=prod")
	s.eventually("one for some by label", "selected", []string{"team-002"})
	s.n.Kubectl(t, "label", "namespace", "team-002", "env-")
	s.eventually("one for none", "selected", nil)
	for _, name := range []string{"wrong", "selected"} {
		if err := s.check(t.Context(), name, nil); err != nil {
			t.Error(err)
		}
	}

	// If all sources have to name their receivers, most copies would be deleted, so none
	// is.
	c.Stop(t)
	c = s.n.Lab.StartController(t, "-controllers=secretsync", "-secretsync-require-receivers", "-v=4", "-insecure-bind-address=127.0.0.1:0")
	s.eventuallyTold("public", "Warning NoReceivers", "must say")
	s.eventuallyToldAbout(vault, "Warning DeletionsHeld", "4 of 6 copies")
	s.eventuallyCounted(c, map[string]int{"DeletionsHeld": 4})
	if err := s.check(t.Context(), "public", s.without("team-004")); err != nil {
		t.Error(err)
	}
	s.confirm()
	s.eventually("confirmed, they go", "public", nil)
	s.eventuallyCounted(c, map[string]int{"DeletionsHeld": 0})
	s.eventually("the others stay", "named", []string{"team-001", "team-003"})
}

// Copies outlive the source namespace until someone confirms their deletion.
func TestSecretsyncSourceNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	s := newSecrets(t, 10)
	s.source("db", "1")
	s.source("tls", "1")
	c := s.n.Lab.StartController(t, "-controllers=secretsync", "-v=4", "-insecure-bind-address=127.0.0.1:0")
	for _, name := range []string{"db", "tls"} {
		s.eventually("all have their copy", name, s.targets)
	}
	if err := s.n.Lab.LearnPrivileges(); err != nil { // the Role is deleted with its namespace
		t.Fatal(err)
	}
	began := time.Now()
	s.n.Kubectl(t, "delete", "namespace", vault, "--wait=true")
	s.eventuallyToldAbout(vault, "Warning DeletionsHeld", "is being deleted", "kubectl annotate")
	s.eventuallyCounted(c, map[string]int{"DeletionsHeld": 20})
	requireKept := func(what string) {
		t.Helper()
		eventuallyIdleButFor(s, c)
		if made := s.writes(c, began); len(made) > 0 {
			t.Errorf("%s led to %s", what, made)
		}
	}
	requireKept("a source namespace that is deleted")
	c.Stop(t)
	c.Start(t)
	requireKept("a restart")
	if _, err := s.n.Lab.TryKubectl(t.Context(), "", "apply", "-f", s.n.Lab.Path("artifacts/rbac-secretsync.yaml")); err != nil {
		t.Fatal(err)
	}
	requireKept("a source namespace that is re-created")

	s.source("db", "2")
	s.eventually("what has a source again is as that is", "db", s.targets)
	s.eventuallyCounted(c, map[string]int{"DeletionsHeld": 10})
	s.confirm()
	s.n.Eventually(t, "what has none goes when that is confirmed", func(ctx context.Context) error { return s.check(ctx, "tls", nil) })
	s.eventually("what has a source stays", "db", s.targets)
}

// alterCopies creates a policy that adds a field to Secrets in a namespace.
func alterCopies(s *secrets, namespace string) {
	s.Helper()
	s.n.ApplyPolicy(s.T, namespace, "secrets", "CREATE, UPDATE", `[JSONPatch{op: "add", path: "/data/altered", value: "eA=="}]`, func(ctx context.Context) error {
		made, err := s.n.Lab.Kube.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Data: map[string][]byte{"is": []byte("there")},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Data["altered"] == nil {
			err = errors.New("it alters nothing")
		}
		return err
	})
}

// Sources that are as large as possible, that cannot be copied, or that are not marked;
// and copies after the controller was switched off.
func TestSecretsyncOddSources(t *testing.T) {
	t.Parallel()
	s := newSecrets(t, 3)
	large, token := strings.Repeat("l", 253), "token"
	kube := s.n.Lab.Kube.CoreV1()
	if _, err := kube.Secrets("team-002").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: large}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.n.Eventually(t, "there is a service account to have a token of", func(ctx context.Context) error {
		_, err := kube.ServiceAccounts(vault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	s.source(large, "1", func(secret *corev1.Secret) {
		secret.Labels, secret.Type, secret.Data = nil, corev1.SecretTypeOpaque, map[string][]byte{"blob": []byte(strings.Repeat("x", corev1.MaxSecretSize))}
	})
	s.source(token, "1", func(secret *corev1.Secret) {
		secret.Type, secret.Data = corev1.SecretTypeServiceAccountToken, nil
		secret.Annotations[corev1.ServiceAccountNameKey] = "default"
	})
	c := s.n.Lab.StartController(t, "-controllers=secretsync", "-v=4")
	s.eventually("the large one is copied", large, s.without("team-002"))
	s.eventuallyTold(large, "Warning ErrResourceExists", "team-002")
	s.eventuallyTold(token, "Warning CopyFailed", "team-000", corev1.ServiceAccountNameKey)
	s.patch(vault, large, `{"data":{"blob":"eQ=="}}`)
	s.eventually("the large one is large no more", large, s.without("team-002"))

	// Nothing is retried all the time.
	eventuallyIdleButFor(s, c)
	if err := s.check(t.Context(), token, nil); err != nil {
		t.Error(err)
	}

	// It reads only the Secrets that it needs.
	for _, e := range s.n.Lab.Requests(t).By(c.User).Resource("secrets") {
		if e.Verb != "create" && e.Verb != "update" && e.Namespace != vault && !strings.Contains(e.RequestURI, "labelSelector=controller.nicoleh.io%2Fsecretsync-source-namespace%3Dsecretsync") &&
			!strings.Contains(e.RequestURI, "fieldSelector=metadata.name%3D"+large) {
			t.Errorf("it asked for %s", e.RequestURI)
		}
	}

	// Copies outlive a controller that is switched off or gets another source namespace.
	c.Stop(t)
	if _, err := s.n.Lab.TryKubectl(t.Context(), "", "delete", "secrets", "--all-namespaces", "-l", copied); err != nil {
		t.Fatal(err)
	}
	s.eventually("the copies are gone", large, nil)
}

// eventuallyIdleButFor waits until the controller has made no request for a while, except
// in those namespaces or about events.
func eventuallyIdleButFor(s *secrets, c *lab.Controller, namespaces ...string) {
	s.Helper()
	s.n.Eventually(s.T, "the controller is idle", func(context.Context) error {
		mark := time.Now()
		time.Sleep(2 * time.Second)
		made := s.n.Lab.Requests(s).By(c.User).Since(mark).Where(func(e *cluster.AuditEvent) bool {
			return isNotWatch(e) && e.Resource != "events" && !slices.Contains(namespaces, e.Namespace)
		})
		if len(made) > 0 || strings.Count(c.Log(), `"Started" logger="secretsync"`) < c.Starts() {
			return fmt.Errorf("it made %s", made)
		}
		return nil
	})
}

// forbid creates a policy that refuses Secrets in a namespace, with their data in its
// message.
func forbid(s *secrets, namespace string) {
	s.Helper()
	s.n.Apply(s.T, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: indiscreet}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  matchConditions: [{name: there, expression: "object.metadata.namespace == '%s'"}]
  validations: [{expression: "false", messageExpression: "'denied: ' + string(object.data['password'])"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: indiscreet}
spec: {policyName: indiscreet, validationActions: [Deny]}
`, namespace))
	// The policy is in force when it refuses.
	s.n.Kubectl(s.T, "create", "namespace", namespace+"-probe")
	s.n.Apply(s.T, strings.ReplaceAll(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: indiscreet}, spec: {failurePolicy: Fail,
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]},
  matchConditions: [{name: there, expression: "object.metadata.namespace in ['NS', 'NS-probe']"}],
  validations: [{expression: "false", messageExpression: "'denied: ' + string(object.data['password'])"}]}}`, "NS", namespace))
	s.n.Eventually(s.T, "the policy is in force", func(ctx context.Context) error {
		_, err := s.n.Lab.Kube.CoreV1().Secrets(namespace+"-probe").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Data: map[string][]byte{"password": []byte(unspoke)},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errors.New("it refuses nothing")
		case !strings.Contains(err.Error(), "denied: ") || !strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte(unspoke))):
			return fmt.Errorf("it does not tell what it was shown: %s", apierrors.ReasonForError(err))
		}
		return nil
	})
}

// requireUntold requires that neither the log nor the events nor the metrics contain any
// value of a Secret.
func requireUntold(s *secrets, c *lab.Controller) {
	s.Helper()
	list, err := s.n.Lab.Kube.EventsV1().Events("").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	events, err := json.Marshal(list)
	if err != nil {
		s.Fatal(err)
	}
	for where, text := range map[string]string{"log": c.Log(), "events": string(events), "metrics": c.Metrics(s.T)} {
		if len(text) < 1000 {
			s.Errorf("there is next to nothing in the %s: %d bytes", where, len(text))
		}
		plain, encoded := strings.Index(text, unspoke), strings.Index(text, base64.StdEncoding.EncodeToString([]byte(unspoke))[:16])
		if plain < 0 && encoded < 0 {
			continue
		}
		at := max(plain, encoded) // of the first
		if plain >= 0 && encoded >= 0 {
			at = min(plain, encoded)
		}
		s.Errorf("the %s holds what a Secret holds, behind %q", where, text[max(0, at-200):at])
	}
}
