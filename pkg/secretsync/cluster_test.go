package secretsync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(ctx context.Context, err error, msg string, _ ...any) {
		klog.FromContext(ctx).Error(err, msg)
	}}
	goleak.VerifyTestMain(m)
}

// marker is part of every value of every source, and must not be disclosed.
const marker = "hunter2-"

var usual = Config{SourceNamespace: "vault", Annotation: "example.com/share"}

// cluster is a scripted cluster that knows which Secrets the controller writes, and fails the
// test if one is not a copy.
type cluster struct {
	*script.Cluster
	record.EventRecorder // of which only Event and Eventf are used
	t                    *testing.T

	mu       sync.Mutex                         // of what follows
	refuse   func(verb, namespace string) error // the answer to a write
	recorded []string                           // events
	wrote    []string                           // what the controller wrote, "create team-a/db"
	logged   safeBuffer
}

type safeBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, Cluster: script.New(t, apiserver.Secrets(), apiserver.Namespaces())}
	for _, name := range []string{usual.SourceNamespace, metav1.NamespaceSystem, metav1.NamespacePublic} {
		c.put(newNamespace(name))
	}
	return c
}

// RoundTrip implements http.RoundTripper for the controller's clients.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return c.Cluster.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "update", http.MethodDelete: "delete"}[r.Method]
	if r.URL.Query().Has("dryRun") {
		verb = "try"
	}
	var sent corev1.Secret
	if err := json.Unmarshal(body, &sent); err != nil && verb != "update" {
		c.t.Error(err)
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	if len(parts) < 2 || parts[1] != "secrets" || verb == "" {
		c.t.Errorf("secretsync asked for %s %s", r.Method, r.URL.Path)
		return nil, errors.New("no")
	}
	namespace, name := parts[0], parts[len(parts)-1]
	if len(parts) == 2 {
		name = sent.Name
	}
	if before := c.secret(namespace, name); usual.isReserved(namespace) || before != nil && verb != "create" && verb != "try" && before.Labels[LabelSourceNamespace] != usual.SourceNamespace {
		c.t.Errorf("secretsync sent %s %s/%s, which is not a copy", verb, namespace, name)
	}
	c.mu.Lock()
	c.wrote = append(c.wrote, fmt.Sprintf("%s %s/%s", verb, namespace, name))
	err = nil
	if c.refuse != nil {
		err = c.refuse(verb, namespace)
	}
	c.mu.Unlock()
	if err != nil {
		if status := interface{ Status() metav1.Status }(nil); errors.As(err, &status) {
			return apiserver.Refuse(err).HTTP(r), nil
		}
		return nil, err
	}
	return c.Cluster.RoundTrip(r)
}

// answers sets how writes are answered from now on: with an error, or as usual.
func (c *cluster) answers(refuse func(verb, namespace string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

// alters sets how admission changes Secrets in team-a from now on.
func (c *cluster) alters(alter func(copied *corev1.Secret)) {
	c.Mutate(func(a apiserver.Admission) {
		if secret, ok := a.Object.(*corev1.Secret); ok && secret.Namespace == "team-a" {
			alter(secret)
		}
	})
}

// put has somebody create an object, or change it to be so, if need be by deleting it before. One
// that is being deleted gets a finalizer.
func (c *cluster) put(obj apiserver.Object) {
	c.t.Helper()
	obj = obj.DeepCopyObject().(apiserver.Object)
	obj.SetUID("")
	obj.SetResourceVersion("")
	ends := obj.GetDeletionTimestamp() != nil
	obj.SetDeletionTimestamp(nil)
	secret, isSecret := obj.(*corev1.Secret)
	if isSecret {
		if ends && len(secret.Finalizers) == 0 {
			secret.Finalizers = []string{"example.com/wait"}
		}
		if before := c.secret(secret.Namespace, secret.Name); before != nil && (isImmutable(before) || before.Type != secret.Type) {
			c.lacks(secret.Namespace, secret.Name)
		}
	}
	c.Set(obj)
	switch {
	case ends && isSecret:
		script.Delete[corev1.Secret](c.Cluster, obj.GetNamespace(), obj.GetName(), metav1.DeletePropagationBackground)
	case ends:
		script.Delete[corev1.Namespace](c.Cluster, "", obj.GetName(), metav1.DeletePropagationBackground)
	}
}

// lacks deletes a Secret, if there is one, at once.
func (c *cluster) lacks(namespace, name string) {
	c.t.Helper()
	secret := c.secret(namespace, name)
	if secret == nil {
		return
	}
	if len(secret.Finalizers) > 0 {
		script.Edit(c.Cluster, namespace, name, func(s *corev1.Secret) { s.Finalizers = nil })
	}
	if c.secret(namespace, name) != nil {
		script.Delete[corev1.Secret](c.Cluster, namespace, name, metav1.DeletePropagationBackground)
	}
}

// lacksSoon deletes a Secret, which finalizers may hold.
func (c *cluster) lacksSoon(namespace, name string) {
	c.t.Helper()
	script.Delete[corev1.Secret](c.Cluster, namespace, name, metav1.DeletePropagationBackground)
}

// vanishes deletes a namespace with all that is in it.
func (c *cluster) vanishes(name string) {
	c.t.Helper()
	if script.Get[corev1.Namespace](c.Cluster, "", name).DeletionTimestamp == nil {
		script.Delete[corev1.Namespace](c.Cluster, "", name, metav1.DeletePropagationBackground)
	}
	for isDone := false; !isDone; {
		c.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
			after, _, ok := server.Collect(store, now)
			isDone = !ok
			return after, nil
		})
	}
}

// secret returns a Secret as it is now; nil if there is none.
func (c *cluster) secret(namespace, name string) *corev1.Secret {
	for _, secret := range script.All[corev1.Secret](c.Cluster) {
		if secret.Namespace == namespace && secret.Name == name {
			return secret
		}
	}
	return nil
}

// edit changes a Secret as a user would.
func (c *cluster) edit(namespace, name string, change func(*corev1.Secret)) {
	c.t.Helper()
	script.Edit(c.Cluster, namespace, name, change)
}

// names returns the names of all Secrets.
func (c *cluster) names() (names []string) {
	for _, secret := range script.All[corev1.Secret](c.Cluster) {
		names = append(names, secret.Namespace+"/"+secret.Name)
	}
	return names
}

// writes returns what the controller has written since the last call.
func (c *cluster) writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrote := c.wrote
	c.wrote = nil
	slices.Sort(wrote)
	return wrote
}

// events returns the events since the last call.
func (c *cluster) events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	recorded := c.recorded
	c.recorded = nil
	slices.Sort(recorded)
	return recorded
}

// warnings returns the warnings since the last call.
func (c *cluster) warnings() []string {
	return slices.DeleteFunc(c.events(), func(event string) bool { return !strings.Contains(event, " Warning: ") })
}

// Event implements record.EventRecorder.
func (c *cluster) Event(about runtime.Object, kind, reason, message string) {
	c.Eventf(about, kind, reason, "%s", message)
}

// Eventf implements record.EventRecorder.
func (c *cluster) Eventf(regarding runtime.Object, kind, reason, note string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	about := regarding.(metav1.Object)
	if _, isNamespace := about.(*corev1.Namespace); !isNamespace && about.GetNamespace() != usual.SourceNamespace && reason != ReasonNotMade {
		c.t.Errorf("an event about %s/%s", about.GetNamespace(), about.GetName())
	}
	text := fmt.Sprintf("%s %s: %s: %s", about.GetName(), kind, reason, fmt.Sprintf(note, args...))
	if strings.Contains(text, marker) {
		text = before(text)
		c.t.Errorf("an event holds a secret behind %q", text)
	}
	c.recorded = append(c.recorded, text)
}

// run runs a controller until stop is called, or the test ends.
func (c *cluster) run() (stop func()) { return c.runAs(usual) }

// runAs runs a controller with that config.
func (c *cluster) runAs(config Config) (stop func()) {
	c.t.Helper()
	_, stop = c.start(config)
	return stop
}

// start runs a controller with that config, and returns it.
func (c *cluster) start(config Config) (controller *Controller, stop func()) {
	c.t.Helper()
	client := &rest.Config{Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	kube, err := kubernetes.NewForConfig(client)
	if err != nil {
		c.t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(client)
	if err != nil {
		c.t.Fatal(err)
	}
	parts, err := newParts(config, manager.Dependencies{Kube: kube, Metadata: meta, Recorder: c})
	if err != nil {
		c.t.Fatal(err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&c.logged), textlogger.Verbosity(6)))
	ctx, cancel := context.WithCancel(klog.NewContext(c.t.Context(), logger))
	var running sync.WaitGroup
	for _, held := range parts.Caches {
		running.Go(func() { held.Informer.RunWithContext(ctx) })
	}
	running.Go(func() {
		if err := parts.Run(ctx, 3); err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	c.t.Cleanup(stop)
	kittest.Pass(time.Second)
	return parts.Controller.(*Controller), stop
}

// inBubble runs a test with its own cluster in its own synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		test(t, c)
		if log := c.logged.String(); strings.Contains(log, marker) {
			t.Errorf("the log holds a secret behind %q", before(log))
		}
	})
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// before returns the last part of a text before something secret.
func before(text string) string {
	clean, _, _ := strings.Cut(text, marker)
	return clean[max(0, len(clean)-200):]
}

// newNamespace returns a namespace, after some edits.
func newNamespace(name string, edits ...func(metav1.Object)) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, edit := range edits {
		edit(namespace)
	}
	return namespace
}

// newSource returns a marked Secret in the source namespace, after some edits.
func newSource(name, value string, edits ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: usual.SourceNamespace, Name: name,
			Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{
				usual.Annotation: "", corev1.LastAppliedConfigAnnotation: `{"data":"` + marker + value + `"}`,
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "o"}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"password": []byte(marker + value), "user": []byte(marker + "admin")},
	}
	for _, edit := range edits {
		edit(secret)
	}
	return secret
}

func marked(obj metav1.Object) { obj.SetAnnotations(map[string]string{usual.Annotation: "yes"}) }

func unmarked(secret *corev1.Secret) { delete(secret.Annotations, usual.Annotation) }

// saying returns an edit that sets an annotation of a source.
func saying(key, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[key] = value }
}

func ending(obj metav1.Object) { obj.SetDeletionTimestamp(ptr.To(metav1.Now())) }

func immutable(secret *corev1.Secret) { secret.Immutable = ptr.To(true) }

func ofType(kind corev1.SecretType) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Type = kind }
}

// foreign returns a Secret that is not a copy.
func foreign(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"mine": []byte("all mine")}}
}

// planted returns a Secret that somebody has made to look like a copy.
func planted(namespace, name string) *corev1.Secret {
	secret := foreign(namespace, name)
	secret.Labels = map[string]string{LabelSourceNamespace: usual.SourceNamespace}
	secret.Annotations = map[string]string{AnnotationSourceName: name, AnnotationMadeFor: namespace, AnnotationSourceNamespaceUID: "u"}
	return secret
}
