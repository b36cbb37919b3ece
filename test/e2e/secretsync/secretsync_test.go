package secretsync

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	vault   = "secretsync"
	share   = "controller.nicoleh.io/secretsync"
	copied  = "controller.nicoleh.io/secretsync-source-namespace=secretsync"
	madeFor = "controller.nicoleh.io/secretsync-made-for"
	unspoke = "correct-horse-" // is part of every value, and must not be disclosed
)

// secrets is a cluster with namespaces that want copies.
type secrets struct {
	*testing.T
	n *lab.Namespace // for its helpers
}

func newSecrets(t *testing.T, namespaces ...string) *secrets {
	l := suite.NewLab(t, lab.Options{Nodes: -1})
	s := &secrets{T: t, n: l.NewNamespace(t)}
	lab.Kubectl(t, l, "create", "namespace", vault)
	for _, name := range namespaces {
		s.namespace(name)
	}
	return s
}

// namespace creates a marked namespace.
func (s *secrets) namespace(name string) {
	s.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{share: ""}}}
	if _, err := s.n.Lab.Kube.CoreV1().Namespaces().Create(s.Context(), made, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// source creates a source.
func (s *secrets) source(name string, edits ...func(*corev1.Secret)) {
	s.Helper()
	source := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{share: "*"}},
		Data:       map[string][]byte{"username": []byte(unspoke + "user"), "password": []byte(unspoke + "1")},
		Type:       corev1.SecretTypeBasicAuth,
	}
	for _, edit := range edits {
		edit(source)
	}
	if _, err := s.n.Lab.Kube.CoreV1().Secrets(vault).Create(s.Context(), source, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// rotate gives the source db another password.
func (s *secrets) rotate(password string) {
	s.Helper()
	lab.Kubectl(s.T, s.n.Lab, "patch", "secret", "db", "--namespace="+vault, "-p", `{"stringData":{"password":"`+unspoke+password+`"}}`)
}

// eventually waits until there are copies of a source in those namespaces, and nowhere else.
func (s *secrets) eventually(source string, where ...string) {
	s.Helper()
	kube := s.n.Lab.Kube.CoreV1()
	s.n.Eventually(s.T, fmt.Sprintf("there are copies of %.20s in %v", source, where), func(ctx context.Context) error {
		list, err := kube.Secrets("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + source, LabelSelector: copied})
		if err != nil {
			return err
		}
		var is []string
		for _, secret := range list.Items {
			is = append(is, secret.Namespace)
		}
		if slices.Sort(is); !slices.Equal(is, where) {
			return fmt.Errorf("they are in %v", is)
		}
		for _, secret := range list.Items {
			want, err := kube.Secrets(vault).Get(ctx, source, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if secret.Type != want.Type || !equality.Semantic.DeepEqual(secret.Data, want.Data) {
				return fmt.Errorf("the copy in %s is not as its source", secret.Namespace)
			}
		}
		return nil
	})
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
			if lab.ContainsAll(event.Type+" "+event.Reason+" "+event.Note, words...) {
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

// As install.yaml installs it, it copies. Only those may read its metrics who have the permission.
func TestInstall(t *testing.T) {
	t.Parallel()
	l := suite.NewLab(t, lab.Options{})
	pods := l.RunPods(t)
	pods.RequireRolledOut(t)
	s := &secrets{T: t, n: l.NewNamespace(t)}
	lab.Kubectl(t, l, "create", "namespace", vault)
	s.namespace("team-0")
	s.source("db")
	s.eventually("db", "team-0")
	pods.RequireMetrics(t, "secretsync_copies 1")
}

// The copies that the sources and the namespaces ask for are there, and nothing else is
// written. One namespace refuses its copy, and one has a Secret of its own, which is taken over by its label.
func TestSecretsync(t *testing.T) {
	t.Parallel()
	const refusing, taken, echo = "refusing", "taken", "echo"
	teams := []string{"team-0", "team-1", "team-2", "team-3"}
	s := newSecrets(t, append(teams, refusing, taken)...)
	l := s.n.Lab
	lab.Kubectl(t, l, "annotate", "namespace", metav1.NamespaceSystem, metav1.NamespacePublic, vault, share+"=yes")
	lab.Kubectl(t, l, "create", "quota", "none", "--namespace="+refusing, "--hard=secrets=0")
	lab.Kubectl(t, l, "create", "secret", "generic", "db", "--namespace="+taken, "--type=kubernetes.io/basic-auth", "--from-literal=username=old", "--from-literal=password=old")

	s.source("db")
	c := l.StartController(t, "-v=4", "-insecure-bind-address=127.0.0.1:0")
	began := time.Now()
	s.eventually("db", teams...)
	s.eventuallyTold("db", "Warning CopyFailed", refusing, "exceeded quota: none")
	s.eventuallyTold("db", "Warning ErrResourceExists", taken, "already exists")
	eventuallyIdleButFor(s, c, refusing, taken)
	if made := s.accepted(c, began); len(made) != len(teams) {
		t.Errorf("%d copies took %s", len(teams), made)
	}
	lab.Kubectl(t, l, "label", "secret", "db", "--namespace="+taken, copied)
	all := append([]string{taken}, teams...)
	s.eventually("db", all...)

	// A change of the source costs one write of each copy, and a restart costs none, also while a
	// policy warns about each of them and repeats what it was shown.
	quote(s, "Warn", "object.metadata.namespace in ['team-1', 'team-2']")
	mark := time.Now()
	s.rotate("2")
	s.eventually("db", all...)
	eventuallyIdleButFor(s, c, refusing)
	c.Stop(t)
	c.Start(t)
	eventuallyIdleButFor(s, c, refusing)
	if made := s.accepted(c, mark); len(made) != len(all) {
		t.Errorf("%d copies of a new version took %s", len(all), made)
	}

	// An immutable copy is replaced when there is need.
	lab.Kubectl(t, l, "patch", "secret", "db", "--namespace=team-2", "-p", `{"immutable":true}`)
	s.rotate("3")
	s.eventually("db", all...)
	s.eventuallyTold("db", "Normal CopyReplaced", "team-2", "immutable")

	// A webhook or policy can repeat in its message what it was shown.
	quote(s, "Deny", "object.metadata.namespace == '"+echo+"'")
	s.namespace(echo)
	s.eventuallyTold("db", "Warning CopyFailed", echo, "creating the copy: ValidatingAdmissionPolicy 'indiscreet-deny' with binding 'indiscreet-deny' denied request")

	// The largest Secret is copied.
	large := strings.Repeat("l", 253)
	s.source(large, func(secret *corev1.Secret) {
		secret.Type, secret.Data = corev1.SecretTypeOpaque, map[string][]byte{"blob": []byte(strings.Repeat("x", corev1.MaxSecretSize))}
		secret.Annotations[share] = "team-*"
	})
	s.eventually(large, teams...)
	lab.Kubectl(t, l, "annotate", "--overwrite", "secret", large, "--namespace="+vault, share+"=false")
	s.eventually(large)

	// Copies outlive the source namespace, also when it is there again, until someone deletes them.
	mark = time.Now()
	lab.Kubectl(t, l, "delete", "namespace", vault, "--wait=true")
	s.eventuallyToldAbout("Namespace", vault, "SourceNamespaceGone", "kubectl delete secrets --all-namespaces")
	c.Stop(t)
	c.Start(t)
	lab.Kubectl(t, l, "create", "namespace", vault)
	byHand := s.eventuallyToldAbout("Secret", "db", "SourceNamespaceGone", "kubectl delete secrets --all-namespaces")
	eventuallyIdleButFor(s, c, echo)
	if made := s.accepted(c, mark); len(made) > 0 {
		t.Errorf("without the source namespace, the controller made %s", made)
	}
	requireUntold(s, c)
	lab.Kubectl(t, l, strings.Fields(byHand)[1:]...)
	s.eventually("db")
	s.source("db")
	s.eventually("db", all...)
}

// eventuallyToldAbout waits for a Warning about an object, and returns the command that it ends with.
func (s *secrets) eventuallyToldAbout(kind, name, reason, command string) (said string) {
	s.Helper()
	s.n.Eventually(s.T, "there is a Warning "+reason+" about "+name, func(ctx context.Context) error {
		told, err := s.n.Lab.TryKubectl(ctx, "", "get", "events", "--all-namespaces", `-o=jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`,
			"--field-selector=type=Warning,involvedObject.kind="+kind+",involvedObject.name="+name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(told) {
			if at := strings.Index(line, command); at >= 0 && strings.HasPrefix(line, reason) {
				said = line[at:]
				return nil
			}
		}
		return fmt.Errorf("the events are\n%s", told)
	})
	return said
}

// eventuallyIdleButFor waits until the controller has made no request for a while, except
// in those namespaces or about events.
func eventuallyIdleButFor(s *secrets, c *lab.Controller, namespaces ...string) {
	s.Helper()
	s.n.Eventually(s.T, "the controller is idle", func(context.Context) error {
		mark := time.Now()
		time.Sleep(2 * time.Second)
		made := s.n.Lab.Requests(s).By(c.User).Since(mark).Where(func(e *cluster.AuditEvent) bool {
			return e.Verb != "watch" && e.Resource != "events" && !slices.Contains(namespaces, e.Namespace)
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
	s.n.Eventually(s.T, "the policy says what it was shown", func(ctx context.Context) error {
		_, err := s.n.Lab.TryKubectl(ctx, "", "create", "secret", "generic", "probe", "--namespace="+name, "--from-literal=password="+unspoke, "--dry-run=server", "--warnings-as-errors")
		if err == nil || !lab.ContainsAll(err.Error(), "it contains ", base64.StdEncoding.EncodeToString([]byte(unspoke))) {
			return fmt.Errorf("it says %q", fmt.Sprint(err))
		}
		return nil
	})
}

// requireUntold requires that neither the log nor the events nor the metrics contain any
// value of a Secret.
func requireUntold(s *secrets, c *lab.Controller) {
	s.Helper()
	events := lab.Kubectl(s.T, s.n.Lab, "get", "events", "--all-namespaces", "--output=json")
	for where, text := range map[string]string{"log": c.Log(), "events": events, "metrics": c.Metrics(s.T)} {
		if len(text) < 1000 {
			s.Errorf("there is next to nothing in the %s: %d bytes", where, len(text))
		}
		for _, form := range []string{unspoke, base64.StdEncoding.EncodeToString([]byte(unspoke))[:16]} {
			if before, _, isTold := strings.Cut(text, form); isTold {
				s.Errorf("the %s holds what a Secret holds, behind %q", where, before[max(0, len(before)-200):])
			}
		}
	}
}
