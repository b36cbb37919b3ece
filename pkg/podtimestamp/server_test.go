package podtimestamp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
)

// server is a small API server: Pods, patches with preconditions, and watches that can be
// held up, so that the cache is stale for as long as a test wants.
type server struct {
	record.EventRecorder // of which only Eventf is used
	t                    *testing.T
	client               *fake.FakeMetadataClient

	mu      sync.Mutex
	version int
	pods    map[string]*metav1.PartialObjectMetadata // by name
	history []watch.Event                            // the event of each version
	watches []*watching
	isHeld  bool

	answers  []error                                 // to the next patches; nil answers as a real server would
	alter    func(pod *metav1.PartialObjectMetadata) // how admission changes a Pod that is patched; nil if not at all
	patches  int                                     // requests, however they were answered
	accepted map[types.UID]int                       // patches, by Pod
	events   []string
}

// firstVersion is the resource version of an empty server.
const firstVersion = 100

// watching is a watch that has shown the history up to a version.
type watching struct {
	*watch.FakeWatcher
	version int
}

// errLost is the answer to a patch that is carried out nevertheless.
var errLost = errors.New("connection lost")

func newServer(t *testing.T) *server {
	s := &server{
		t:        t,
		client:   fake.NewSimpleMetadataClient(fake.NewTestScheme()),
		version:  firstVersion,
		pods:     map[string]*metav1.PartialObjectMetadata{},
		accepted: map[types.UID]int{},
	}
	s.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
		for _, name := range slices.Sorted(maps.Keys(s.pods)) {
			list.Items = append(list.Items, runtime.RawExtension{Object: s.pods[name].DeepCopy()})
		}
		return true, list, nil
	})
	s.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		pod, err := s.patch(patch.GetName(), patch.GetPatch())
		return true, pod, err
	})
	s.client.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		since, err := strconv.Atoi(action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		w := &watching{FakeWatcher: watch.NewFakeWithChanSize(1000, false), version: since}
		s.watches = append(s.watches, w)
		s.flush()
		return true, w, err
	})
	return s
}

// flush shows the watches what has happened, unless they are held up. It expects s.mu held.
func (s *server) flush() {
	if s.isHeld {
		return
	}
	for _, w := range s.watches {
		for ; w.version < s.version && !w.IsStopped(); w.version++ {
			event := s.history[w.version-firstVersion]
			w.Action(event.Type, event.Object.DeepCopyObject())
		}
	}
}

// hold holds up the watches, or lets them go on.
func (s *server) hold(isHeld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isHeld = isHeld
	s.flush()
}

// set stores a Pod with a new version; isGone deletes it. It expects s.mu held.
func (s *server) set(pod *metav1.PartialObjectMetadata, isGone bool) *metav1.PartialObjectMetadata {
	s.version++
	pod.ResourceVersion = strconv.Itoa(s.version)
	kind := watch.Modified
	switch before := s.pods[pod.Name]; {
	case isGone:
		kind = watch.Deleted
	case before == nil:
		kind, pod.UID = watch.Added, types.UID("uid-"+pod.ResourceVersion)
	}
	s.pods[pod.Name] = pod.DeepCopy()
	if isGone {
		delete(s.pods, pod.Name)
	}
	s.history = append(s.history, watch.Event{Type: kind, Object: pod.DeepCopy()})
	s.flush()
	return pod
}

// run starts the controller as the process does, and returns it with a function that stops
// it.
func (s *server) run() (c *Controller, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	parts, err := NewDescriptor().New(manager.Dependencies{Metadata: s.client, Recorder: s})
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, factory := range parts.Informers {
		factory.StartWithContext(ctx)
		running.Go(factory.Shutdown)
	}
	running.Go(func() {
		if err := parts.Run(ctx, 2); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	pass(0)
	return parts.Controller.(*Controller), stop
}

// pass lets the time of a bubble pass, and waits until everything has settled.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// patch answers a patch, and fails the test if no Pod should ever get it.
func (s *server) patch(name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches++
	var answer error
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	if answer != nil && !errors.Is(answer, errLost) {
		return nil, answer
	}
	var wanted metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch, &wanted); err != nil {
		return nil, err
	}
	pod := s.pods[name].DeepCopy()
	switch {
	case pod == nil:
		return nil, apierrors.NewNotFound(Resource.GroupResource(), name)
	case wanted.ResourceVersion != "" && wanted.ResourceVersion != pod.ResourceVersion, wanted.UID != "" && wanted.UID != pod.UID:
		return nil, apierrors.NewConflict(Resource.GroupResource(), name, errors.New("a precondition failed"))
	case !isAsking(pod), isStamped(pod), isTerminating(pod), isMirror(pod):
		s.t.Errorf("Pod %+v got the patch %s", pod.ObjectMeta, patch)
	}
	s.accepted[pod.UID]++
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationTimestamp, wanted.Annotations[AnnotationTimestamp])
	if s.alter != nil {
		s.alter(pod)
	}
	if !equality.Semantic.DeepEqual(before, pod) {
		pod = s.set(pod, false)
	}
	return pod, answer
}

// nameOf returns the name of the Pod together with its namespace, which is the same for
// all.
func nameOf(pod string) cache.ObjectName {
	return cache.NewObjectName(podWith().Namespace, pod)
}

// answer sets the answers to the next patches.
func (s *server) answer(answers ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = answers
}

// alters makes admission change Pods that are patched; nil ends that.
func (s *server) alters(alter func(pod *metav1.PartialObjectMetadata)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alter = alter
}

// create creates a Pod, after removing any Pod of that name.
func (s *server) create(name string, annotations ...string) {
	s.remove(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := podWith(annotations...)
	pod.Name = name
	s.set(pod, false)
}

// remove deletes the Pod, if there is one, at once.
func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := s.pods[name]; pod != nil {
		s.set(pod.DeepCopy(), true)
	}
}

// edit changes the Pod, if there is one.
func (s *server) edit(name string, change func(*metav1.PartialObjectMetadata)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := s.pods[name].DeepCopy(); pod != nil {
		change(pod)
		s.set(pod, false)
	}
}

func (s *server) annotate(name, key, value string) {
	s.edit(name, func(pod *metav1.PartialObjectMetadata) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) })
}

// all returns copies of all Pods.
func (s *server) all() []*metav1.PartialObjectMetadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*metav1.PartialObjectMetadata
	for _, pod := range s.pods {
		pods = append(pods, pod.DeepCopy())
	}
	return pods
}

// timestamps returns the timestamps of all Pods that have one, by Pod name.
func (s *server) timestamps() map[string]string {
	found := map[string]string{}
	for _, pod := range s.all() {
		if isStamped(pod) {
			found[pod.Name] = pod.Annotations[AnnotationTimestamp]
		}
	}
	return found
}

// Eventf implements record.EventRecorder.
func (s *server) Eventf(_ runtime.Object, eventType, reason, message string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s %s: %s", eventType, reason, fmt.Sprintf(message, args...)))
}
