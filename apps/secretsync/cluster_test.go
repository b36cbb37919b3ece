package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ref "k8s.io/client-go/tools/reference"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
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

// vault is the source namespace.
const vault = "vault"

// cluster is a scripted cluster that knows which Secrets the controller writes, and fails the
// test if one is not a copy.
type cluster struct {
	*script.Cluster
	record.EventRecorder // of which only Event and Eventf are used
	t                    *testing.T
	controller           *Controller // the one that was started last

	mu       sync.Mutex                         // of what follows
	refuse   func(verb, namespace string) error // the answer to a write
	isCutOff bool                               // The cache of sources is cut off, but not that of copies.
	recorded []string                           // events
	wrote    []string                           // what the controller wrote, "create team-a/db"
	logged   bytes.Buffer
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, Cluster: script.New(t, apiserver.Secrets(), apiserver.Namespaces())}
	c.put(newNamespace(vault), newNamespace(metav1.NamespaceSystem), newNamespace(metav1.NamespacePublic))
	return c
}

var (
	secretPath = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/secrets/?([^/]*)$`)
	verbs      = map[string]string{http.MethodPost: "create", http.MethodPatch: "update", http.MethodDelete: "delete"}
)

// RoundTrip implements http.RoundTripper for the controller's clients.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		if c.cutsOff(r) {
			return nil, errors.New("EOF")
		}
		return c.Cluster.RoundTrip(r)
	}
	request, err := apiserver.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(request.Body))
	verb, path := verbs[r.Method], secretPath.FindStringSubmatch(request.Path)
	if verb == "" || path == nil || isReserved(path[1], vault) {
		c.t.Errorf("secretsync asked for %s %s", r.Method, r.URL.Path)
		return nil, errors.New("no")
	}
	namespace, name := path[1], path[2]
	if verb == "create" {
		var sent corev1.Secret
		if err := json.Unmarshal(request.Body, &sent); err != nil {
			return nil, err
		}
		name = sent.Name
	} else if is := c.secret(namespace, name); is != nil && is.Labels[LabelSourceNamespace] != vault {
		c.t.Errorf("secretsync sent %s %s/%s, which is not a copy", verb, namespace, name)
	}
	if request.Query.Has("dryRun") {
		verb = "try"
	}
	switch err := c.answer(verb, namespace, name); {
	case err == nil:
		return c.Cluster.RoundTrip(r)
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown: // one of the connection
		return nil, err
	default:
		return apiserver.Refuse(err).HTTP(r), nil
	}
}

// cutsOff reports whether a request is one of the cache of sources, and that is cut off.
func (c *cluster) cutsOff(r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isCutOff && strings.HasSuffix(r.URL.Path, "/namespaces/vault/secrets")
}

// answer notes a write, and returns how it fails, if it does.
func (c *cluster) answer(verb, namespace, name string) error {
	c.mu.Lock()
	c.wrote = append(c.wrote, fmt.Sprintf("%s %s/%s", verb, namespace, name))
	refuse := c.refuse
	c.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(verb, namespace)
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

// put has somebody create objects, or change them to be so, if need be by deleting them before. One
// that is being deleted gets a finalizer.
func (c *cluster) put(objects ...apiserver.Object) {
	c.t.Helper()
	for _, obj := range objects {
		obj = obj.DeepCopyObject().(apiserver.Object)
		obj.SetUID("")
		obj.SetResourceVersion("")
		ends := obj.GetDeletionTimestamp() != nil
		obj.SetDeletionTimestamp(nil)
		switch obj := obj.(type) {
		case *corev1.Secret:
			if before := c.secret(obj.Namespace, obj.Name); before != nil && (isImmutable(before) || before.Type != obj.Type) {
				c.lacks(obj.Namespace, obj.Name)
			}
			c.Set(obj)
		case *corev1.Namespace:
			c.Set(obj)
			if ends {
				script.Delete[corev1.Namespace](c.Cluster, "", obj.Name, metav1.DeletePropagationBackground)
			}
		}
	}
}

// lacks deletes a Secret, if there is one, at once, and in one step: the controller may be about to
// do the same.
func (c *cluster) lacks(namespace, name string) {
	c.t.Helper()
	c.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
		key := apiserver.Key{Resource: secretResource.GroupResource(), Namespace: namespace, Name: name}
		secret := store.Objects[key]
		if secret == nil {
			return store, nil
		}
		secret = secret.DeepCopy()
		secret.SetFinalizers(nil)
		store, err := server.Put(store, now, secret)
		if err != nil {
			return store, err
		}
		return server.Delete(store, now, key, metav1.DeleteOptions{})
	})
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
	about, err := ref.GetReference(scheme.Scheme, regarding)
	if err != nil || about.Kind != "Namespace" && about.Namespace != vault {
		c.t.Errorf("an event about %v: %v", about, err)
		return
	}
	text := fmt.Sprintf("%s %s: %s: %s", about.Name, kind, reason, fmt.Sprintf(note, args...))
	requireNoSecret(c.t, "an event", text)
	c.recorded = append(c.recorded, text)
}

// Write implements io.Writer for the controller's log.
func (c *cluster) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.logged.Write(line)
}

// begin runs a controller until there is a copy of the source db in the namespace team-a.
func (c *cluster) begin() (stop func()) {
	c.t.Helper()
	c.put(newSource("db", "1"), newNamespace("team-a", marked))
	stop = c.run()
	kittest.Pass(time.Minute)
	if made := c.writes(); !slices.Contains(made, "create team-a/db") {
		c.t.Errorf("at first there were the writes %v", made)
	}
	return stop
}

// run runs a controller until stop is called, or the test ends.
func (c *cluster) run() (stop func()) {
	c.t.Helper()
	client := &rest.Config{Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	d := &manager.Dependencies{Kube: kubernetes.NewForConfigOrDie(client), Recorder: c}
	controller, err := newController(vault, d)
	if err != nil {
		c.t.Fatal(err)
	}
	c.controller = controller.(*Controller)
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(c), textlogger.Verbosity(6)))
	ctx, cancel := context.WithCancel(klog.NewContext(c.t.Context(), logger))
	var running sync.WaitGroup
	running.Go(d.StartCaches(ctx, controller))
	running.Go(func() {
		if err := controller.Run(ctx, 3); err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	c.t.Cleanup(stop)
	kittest.Pass(time.Second)
	return stop
}

// inBubble runs a test with its own cluster in its own synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		test(t, c)
		synctest.Wait()
		requireNoSecret(t, "the log", c.logged.String())
	})
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// requireProblems requires that the metrics count these problems, by reason.
func requireProblems(t *testing.T, want map[string]int64) {
	t.Helper()
	equal(t, "problems according to the metrics", want, gauge(t, "secretsync_troubles"))
}

// gauge returns the values of a gauge that are not zero, by reason if it has that label.
func gauge(t *testing.T, name string) map[string]int64 {
	t.Helper()
	found := scrape(t, name, "reason")
	maps.DeleteFunc(found, func(_ string, n int64) bool { return n == 0 })
	return found
}

// scrape returns the values of a metric by a label.
func scrape(t *testing.T, name, label string) map[string]int64 {
	t.Helper()
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	scraped := testutil.NewMetrics()
	if err := testutil.ParseMetrics(answer.Body.String(), &scraped); err != nil {
		t.Fatal(err)
	}
	return testutil.GetMetricValuesForLabel(scraped, name, label)
}

// requireNoSecret requires that no text contains a value of a source.
func requireNoSecret(t *testing.T, what, text string) {
	t.Helper()
	if before, _, isTold := strings.Cut(text, marker); isTold {
		t.Errorf("%s holds a secret behind %q", what, before[max(0, len(before)-200):])
	}
}

// newNamespace returns a namespace, after some edits.
func newNamespace(name string, edits ...func(metav1.Object)) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, edit := range edits {
		edit(namespace)
	}
	return namespace
}

// newSource returns a Secret in the source namespace that is for all namespaces, after some edits.
func newSource(name, value string, edits ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vault, Name: name,
			Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{
				Annotation: "*", corev1.LastAppliedConfigAnnotation: `{"data":"` + marker + value + `"}`,
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

// annotate sets an annotation.
func annotate(obj metav1.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

func marked(obj metav1.Object) { annotate(obj, Annotation, "yes") }

// saying returns an edit that sets the annotation of a namespace.
func saying(value string) func(metav1.Object) {
	return func(obj metav1.Object) { annotate(obj, Annotation, value) }
}

// listing returns an edit that sets the annotation of a source.
func listing(value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[Annotation] = value }
}

func labeled(key, value string) func(metav1.Object) {
	return func(obj metav1.Object) { obj.SetLabels(map[string]string{key: value}) }
}

func unmarked(secret *corev1.Secret) { delete(secret.Annotations, Annotation) }

func ending(obj metav1.Object) { obj.SetDeletionTimestamp(ptr.To(metav1.Now())) }

func immutable(secret *corev1.Secret) { secret.Immutable = ptr.To(true) }

func ofType(kind corev1.SecretType) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Type = kind }
}

// foreign returns a Secret that is not a copy.
func foreign(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"mine": []byte("all mine")}}
}

// onlyLabeled returns a Secret of somebody's that has the label of a copy.
func onlyLabeled(namespace, name string) *corev1.Secret {
	secret := foreign(namespace, name)
	secret.Labels = map[string]string{LabelSourceNamespace: vault}
	return secret
}

// planted returns a Secret that somebody has made to look like a copy.
func planted(namespace, name string) *corev1.Secret {
	secret := onlyLabeled(namespace, name)
	secret.Annotations = map[string]string{AnnotationMadeFor: namespace + "/" + name}
	return secret
}
