package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	kubectl(t, l, "apply", "-f", l.Path("artifacts/rbac-secretsync.yaml"))
	kubectl(t, l, "create", "namespace", vault)
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
		if secret.Type != source.Type || ptr.Deref(source.Immutable, false) && !ptr.Deref(secret.Immutable, false) {
			return fmt.Errorf("the copy in %s is of type %s, immutable: %v", secret.Namespace, secret.Type, ptr.Deref(secret.Immutable, false))
		}
		if diff := cmp.Diff(source.Data, secret.Data); diff != "" {
			return fmt.Errorf("data of the copy in %s (-want +got):\n%s", secret.Namespace, diff)
		}
		if diff := cmp.Diff(map[string]string{
			"controller.nicoleh.io/secretsync-source-name": name, "controller.nicoleh.io/secretsync-made-for": secret.Namespace,
			"controller.nicoleh.io/secretsync-source-namespace-uid": string(home.UID),
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

// accepted returns the controller's successful writes of Secrets since then.
func (s *secrets) accepted(c *lab.Controller, mark time.Time) lab.Requests {
	return s.n.Lab.Requests(s).By(c.User).Since(mark).Resource("secrets").Writes().Where(func(e *cluster.AuditEvent) bool { return e.Code < 300 })
}

func (s *secrets) without(namespaces ...string) []string {
	return slices.DeleteFunc(slices.Clone(s.targets), func(name string) bool { return slices.Contains(namespaces, name) })
}

// The copies that the sources and the namespaces ask for are there, and nothing else is
// written. One namespace refuses its copy, and one has a Secret of its own.
func TestSecretsync(t *testing.T) {
	t.Parallel()
	const refusing, taken, unmarked, echo = "team-007", "taken", "team-003", "echo"
	s := newSecrets(t, 50)
	for _, reserved := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, vault} {
		s.mark(reserved, share, `"yes"`)
	}
	s.namespace(taken)
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
	s.eventually("49 of 50 namespaces have their copy", "db", s.without(refusing))
	s.eventuallyTold("db", "Warning CopyFailed", refusing, "quota")
	s.eventuallyTold("db", "Warning ErrResourceExists", taken, "not managed by secretsync")
	eventuallyIdleButFor(s, c, refusing, taken)
	if made := s.accepted(c, began); len(made) != 49 {
		t.Errorf("49 copies took %s", made)
	}

	// A change of the source costs one write of each copy, and a restart costs none, also while a
	// policy warns about each of them and repeats what it was shown.
	quote(s, "Warn", "object.metadata.namespace in ['team-001', 'team-002']")
	mark := time.Now()
	s.patch(vault, "db", `{"stringData":{"password":"`+unspoke+`2","more":"`+unspoke+`more"}}`)
	s.eventually("a rotation has come to all", "db", s.without(refusing))
	eventuallyIdleButFor(s, c, refusing, taken)
	c.Stop(t)
	c.Start(t)
	eventuallyIdleButFor(s, c, refusing, taken)
	if made := s.accepted(c, mark); len(made) != 49 {
		t.Errorf("49 copies of a new version took %s", made)
	}
	if err := kube.ResourceQuotas(refusing).Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.patch(vault, "db", `{"stringData":{"password":"`+unspoke+`3"}}`) // A change is tried at once.
	s.eventually("the one that refused has its copy", "db", s.targets)
	now, err := kube.Secrets(taken).Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil || now.ResourceVersion != unmanaged.ResourceVersion {
		t.Errorf("what was not managed has version %s, had %s (%v)", now.ResourceVersion, unmanaged.ResourceVersion, err)
	}

	// Changes of copies are repaired, an immutable one by another copy when there is need.
	s.patch("team-001", "db", `{"stringData":{"password":"edited"},"data":{"username":null}}`)
	s.patch("team-002", "db", `{"immutable":true}`)
	s.eventually("what was done by hand is undone", "db", s.targets)
	s.patch(vault, "db", `{"stringData":{"password":"`+unspoke+`4"}}`)
	s.eventually("a rotation has come to all", "db", s.targets)
	s.eventuallyTold("db", "Normal CopyReplaced", "team-002", "immutable")
	s.mark(unmarked, share, "null")
	s.eventually("a namespace without its mark has no copy", "db", s.without(unmarked))

	// A webhook or policy can repeat in its message what it was shown.
	quote(s, "Deny", "object.metadata.namespace == '"+echo+"'")
	s.namespace(echo)
	s.eventuallyTold("db", "Warning CopyFailed", echo, "withheld")

	// The largest Secret is copied.
	large := strings.Repeat("l", 253)
	s.source(large, "1", func(secret *corev1.Secret) {
		secret.Labels, secret.Type, secret.Data = nil, corev1.SecretTypeOpaque, map[string][]byte{"blob": []byte(strings.Repeat("x", corev1.MaxSecretSize))}
		secret.Annotations["controller.nicoleh.io/secretsync-namespaces"] = "team-00*"
	})
	s.eventually("the large one is copied where its annotation says", large, []string{"team-000", "team-001", "team-002", "team-004", "team-005", "team-006", "team-007", "team-008", "team-009"})
	if err := kube.Secrets(vault).Delete(t.Context(), large, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the copies of a source that is deleted go", large, nil)

	// Copies outlive the source namespace until someone confirms their deletion.
	mark = time.Now()
	s.n.Kubectl(t, "delete", "namespace", vault, "--wait=true")
	s.howToConfirm("is being deleted")
	c.Stop(t)
	c.Start(t)
	kubectl(t, s.n.Lab, "create", "namespace", vault)
	eventuallyIdleButFor(s, c, echo)
	if made := s.accepted(c, mark); len(made) > 0 {
		t.Errorf("before anybody has confirmed it, the controller made %s", made)
	}
	requireUntold(s, c)
	kubectl(t, s.n.Lab, strings.Fields(s.howToConfirm("has been deleted and re-created"))[1:]...)
	s.eventually("what has no source goes when that is confirmed", "db", nil)
}

// howToConfirm waits for an event that says why deletions are held, and returns the command with
// which they can be confirmed.
func (s *secrets) howToConfirm(why string) (command string) {
	s.Helper()
	s.n.Eventually(s.T, "an event says that the copies are kept, because the namespace "+why, func(ctx context.Context) error {
		told, err := s.n.Lab.TryKubectl(ctx, "", "get", "events", "--namespace=default", "-o=jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}",
			"--field-selector=type=Warning,involvedObject.kind=Namespace,involvedObject.name="+vault)
		if err != nil {
			return err
		}
		for line := range strings.Lines(told) {
			if at := strings.Index(line, "kubectl annotate"); at >= 0 && containsAll(line, "DeletionsHeld", why) {
				command = line[at:]
			}
		}
		if command == "" {
			err = fmt.Errorf("the events are\n%s", told)
		}
		return err
	})
	return command
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

// quote creates a policy that denies Secrets where the expression is true, or warns about them,
// with their data in its message.
func quote(s *secrets, action, where string) {
	s.Helper()
	name := "indiscreet-" + strings.ToLower(action)
	s.n.Kubectl(s.T, "create", "namespace", name)
	s.n.Apply(s.T, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [secrets]}]
  matchConditions: [{name: there, expression: "object.metadata.namespace == '%[1]s' || %[2]s"}]
  validations: [{expression: "false", messageExpression: "'it contains ' + string(object.data['password'])"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [%[3]s]}
`, name, where, action))
	var warnings bytes.Buffer
	config, err := clientcmd.BuildConfigFromFlags("", s.n.Lab.Kubeconfig())
	if err != nil {
		s.Fatal(err)
	}
	config.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
	probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Data: map[string][]byte{"password": []byte(unspoke)}}
	s.n.Eventually(s.T, "the policy says what it was shown", func(ctx context.Context) error {
		warnings.Reset()
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets(name).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if said := fmt.Sprint(err, warnings.String()); !containsAll(said, "it contains ", base64.StdEncoding.EncodeToString([]byte(unspoke))) {
			return fmt.Errorf("it says %q", said)
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
