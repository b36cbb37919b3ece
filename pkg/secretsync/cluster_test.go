package secretsync

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(ctx context.Context, err error, msg string, _ ...any) {
		klog.FromContext(ctx).Error(err, msg)
	}}
	goleak.VerifyTestMain(m)
}

// marker is part of every value of every source, and must not be disclosed.
const marker = "hunter2-"

var (
	namespacesGVR = corev1.SchemeGroupVersion.WithResource("namespaces")
	usual         = Config{SourceNamespace: "vault", Annotation: "example.com/share"}
)

// cluster is an API server for the generated fake clients that knows of conflicts,
// preconditions, immutability and namespaces, whose watches can be held up, and
// which can refuse what it is asked.
type cluster struct {
	*kittest.Cluster
	record.EventRecorder // of which only Event and Eventf are used
	t                    *testing.T
	kube                 kubefake.Clientset
	metadata             *metadatafake.FakeMetadataClient

	mu     sync.Mutex                         // of what follows
	refuse func(verb, namespace string) error // the answer to a write
	alter  func(copied *corev1.Secret)        // what admission makes of a copy that is written

	recorded []string // events
	wrote    []string // what the controller wrote, "create team-a/db"
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
	scheme := metadatafake.NewTestScheme()
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	c := &cluster{
		Cluster:  kittest.NewCluster(),
		t:        t,
		metadata: metadatafake.NewSimpleMetadataClient(scheme),
		refuse:   func(string, string) error { return nil },
		alter:    func(*corev1.Secret) {},
	}
	react := func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		obj, err := c.answer(action)
		return true, obj, err
	}
	c.kube.PrependReactor("*", "*", react)
	c.kube.PrependWatchReactor("*", c.React)
	c.metadata.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		name, _ := action.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch(metav1.ObjectNameField)
		list := &metav1.List{}
		if secret := c.secret(action.GetNamespace(), name); secret != nil {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: secret.ObjectMeta}})
		}
		return true, list, nil
	})
	for _, name := range []string{usual.SourceNamespace, metav1.NamespaceSystem, metav1.NamespacePublic} {
		c.put(newNamespace(name))
	}
	return c
}

// answer answers a request of the controller.
func (c *cluster) answer(action clienttesting.Action) (runtime.Object, error) {
	gvr, verb := action.GetResource(), action.GetVerb()
	switch action := action.(type) {
	case clienttesting.ListActionImpl:
		return c.list(gvr, action.GetNamespace(), action.GetListRestrictions().Labels), nil
	case clienttesting.GetActionImpl:
		if gvr == secretResource && c.isGoing(usual.SourceNamespace) {
			return nil, apierrors.NewForbidden(gvr.GroupResource(), action.GetName(), errors.New("the Role has gone with its namespace"))
		}
		return c.get(gvr, cache.NewObjectName(action.GetNamespace(), action.GetName()))
	}
	if err := c.refuse(verb, action.GetNamespace()); err != nil {
		return nil, err
	}
	return c.write(action)
}

// isGoing reports whether a namespace does not exist or is being deleted.
func (c *cluster) isGoing(namespace string) bool {
	obj, exists := c.Get(namespacesGVR, cache.NewObjectName("", namespace))
	return !exists || obj.GetDeletionTimestamp() != nil
}

func (c *cluster) write(action clienttesting.Action) (runtime.Object, error) {
	gvr := action.GetResource()
	if gvr != secretResource {
		c.t.Errorf("secretsync asked for %s of %s", action.GetVerb(), gvr.Resource)
	}
	switch action := action.(type) {
	case clienttesting.UpdateAction: // also a CreateAction by its methods
		obj := action.GetObject().(*corev1.Secret).DeepCopy()
		obj.Namespace = action.GetNamespace()
		name := cache.MetaObjectToName(obj)
		if name.Namespace != usual.SourceNamespace {
			if obj.Labels[LabelSourceNamespace] != usual.SourceNamespace {
				c.t.Errorf("secretsync wrote %s with labels %v", name, obj.Labels)
			}
			c.alter(obj)
		}
		c.wrote = append(c.wrote, action.GetVerb()+" "+name.String())
		if action.GetVerb() == "create" {
			return c.create(name, obj)
		}
		return c.update(name, obj)
	case clienttesting.DeleteActionImpl:
		name := cache.NewObjectName(action.GetNamespace(), action.GetName())
		c.wrote = append(c.wrote, "delete "+name.String())
		return nil, c.delete(name, action.DeleteOptions.Preconditions)
	}
	return nil, fmt.Errorf("%s is not something that secretsync does", action.GetVerb())
}

func (c *cluster) create(name cache.ObjectName, secret *corev1.Secret) (runtime.Object, error) {
	if usual.isReserved(name.Namespace) {
		c.t.Errorf("secretsync created %s", name)
	}
	if _, exists := c.Get(namespacesGVR, cache.NewObjectName("", name.Namespace)); !exists {
		return nil, apierrors.NewNotFound(namespacesGVR.GroupResource(), name.Namespace)
	}
	if c.isGoing(name.Namespace) {
		err := apierrors.NewForbidden(secretResource.GroupResource(), name.Name, fmt.Errorf("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return nil, err
	}
	if c.secret(name.Parts()) != nil {
		return nil, apierrors.NewAlreadyExists(secretResource.GroupResource(), name.Name)
	}
	return c.Set(secretResource, secret), nil
}

func (c *cluster) update(name cache.ObjectName, secret *corev1.Secret) (runtime.Object, error) {
	obj, err := c.get(secretResource, name)
	if err != nil {
		return nil, err
	}
	before := obj.(*corev1.Secret)
	switch {
	case secret.UID != before.UID || secret.ResourceVersion != before.ResourceVersion || secret.UID == "" || secret.ResourceVersion == "":
		return nil, apierrors.NewConflict(secretResource.GroupResource(), name.Name, fmt.Errorf("UID %q and version %q are %q and %q", secret.UID, secret.ResourceVersion, before.UID, before.ResourceVersion))
	case secret.Type != before.Type,
		isImmutable(before) && (!isImmutable(secret) || !equality.Semantic.DeepEqual(before.Data, secret.Data)):
		c.t.Errorf("secretsync updated what is immutable in %s", name)
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, name.Name, nil)
	}
	c.requireOurs(before)
	if equality.Semantic.DeepEqual(before, secret) {
		return before, nil // without an event, as nothing has changed
	}
	return c.Set(secretResource, secret), nil
}

func (c *cluster) delete(name cache.ObjectName, only *metav1.Preconditions) error {
	obj, err := c.get(secretResource, name)
	if err != nil {
		return err
	}
	before := obj.(*corev1.Secret)
	if only == nil || *only.UID != before.UID || *only.ResourceVersion != before.ResourceVersion {
		return apierrors.NewConflict(secretResource.GroupResource(), name.Name, fmt.Errorf("a precondition failed"))
	}
	c.requireOurs(before)
	c.Remove(secretResource, name)
	return nil
}

// requireOurs requires that a Secret which the controller wants to change is a copy.
func (c *cluster) requireOurs(secret *corev1.Secret) {
	if usual.isReserved(secret.Namespace) || secret.Labels[LabelSourceNamespace] != usual.SourceNamespace {
		c.t.Errorf("secretsync wrote to %s/%s, which is not a copy", secret.Namespace, secret.Name)
	}
}

func (c *cluster) get(gvr schema.GroupVersionResource, name cache.ObjectName) (runtime.Object, error) {
	obj, exists := c.Get(gvr, name)
	if !exists {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name.Name)
	}
	return obj, nil
}

func (c *cluster) list(gvr schema.GroupVersionResource, namespace string, selector labels.Selector) runtime.Object {
	objects, version := c.List(gvr, namespace, selector)
	secrets, namespaces := &corev1.SecretList{}, &corev1.NamespaceList{}
	secrets.ResourceVersion, namespaces.ResourceVersion = version, version
	for _, obj := range objects {
		switch obj := obj.(type) {
		case *corev1.Secret:
			secrets.Items = append(secrets.Items, *obj)
		case *corev1.Namespace:
			namespaces.Items = append(namespaces.Items, *obj)
		}
	}
	if gvr == namespacesGVR {
		return namespaces
	}
	return secrets
}

// answers sets how writes are answered from now on.
func (c *cluster) answers(refuse func(verb, namespace string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

// put has somebody create an object, or change it to be so.
func (c *cluster) put(obj kittest.Object) { c.Set(gvrOf(obj), obj) }

// lacks deletes an object, if there is one, as a user would.
func (c *cluster) lacks(gvr schema.GroupVersionResource, namespace, name string) {
	c.Remove(gvr, cache.NewObjectName(namespace, name))
}

func gvrOf(obj kittest.Object) schema.GroupVersionResource {
	if _, ok := obj.(*corev1.Namespace); ok {
		return namespacesGVR
	}
	return secretResource
}

// secret returns a Secret as it is now; nil if there is none.
func (c *cluster) secret(namespace, name string) *corev1.Secret {
	obj, _ := c.Get(secretResource, cache.NewObjectName(namespace, name))
	secret, _ := obj.(*corev1.Secret)
	return secret
}

// uid returns the UID of a namespace.
func (c *cluster) uid(namespace string) string {
	obj, exists := c.Get(namespacesGVR, cache.NewObjectName("", namespace))
	if !exists {
		c.t.Fatalf("there is no namespace %s", namespace)
	}
	return string(obj.GetUID())
}

// edit changes a Secret, if there is one, as a user would.
func (c *cluster) edit(namespace, name string, change func(*corev1.Secret)) {
	if secret := c.secret(namespace, name); secret != nil {
		change(secret)
		c.put(secret)
	}
}

// names returns the names of all Secrets.
func (c *cluster) names() []string {
	var names []string
	secrets, _ := c.List(secretResource, "", labels.Everything())
	for _, secret := range secrets {
		names = append(names, cache.MetaObjectToName(secret).String())
	}
	slices.Sort(names)
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

// alters sets how admission changes copies from now on.
func (c *cluster) alters(alter func(copied *corev1.Secret)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alter = alter
}

// run runs a controller until stop is called, or the test ends.
func (c *cluster) run() (stop func()) { return c.runAs(usual) }

// runAs runs a controller with that config.
func (c *cluster) runAs(config Config) (stop func()) {
	c.t.Helper()
	parts, err := newParts(config, manager.Dependencies{Kube: &c.kube, Metadata: c.metadata, Recorder: c})
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
	kittest.Pass(time.Second)
	return stop
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

func ending(obj metav1.Object) { obj.SetDeletionTimestamp(ptr.To(metav1.Now())) }

func immutable(secret *corev1.Secret) { secret.Immutable = ptr.To(true) }

func ofType(kind corev1.SecretType) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Type = kind }
}

// foreign returns a Secret that is not a copy.
func foreign(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"mine": []byte("all mine")}}
}
