package podtimestamp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"k8s.io/client-go/metadata/metadatainformer"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// server is a small API server: Pods with resource versions, patches with preconditions,
// and a watch that can be held up, so that the cache is stale for as long as a test wants.
type server struct {
	t      *testing.T
	client *fake.FakeMetadataClient

	mu      sync.Mutex
	version int
	pods    map[string]*metav1.PartialObjectMetadata
	watcher *watch.RaceFreeFakeWatcher
	isHeld  bool
	pending []watch.Event

	answers  []error                                 // to the next patches; nil answers as a real server would
	alter    func(pod *metav1.PartialObjectMetadata) // how admission changes a Pod that is patched; nil if not at all
	patches  int                                     // requests, however they were answered
	accepted map[types.UID]int                       // patches, by Pod
	events   []string
}

// errLost is the answer to a patch that is carried out nevertheless.
var errLost = errors.New("connection lost")

func newServer(t *testing.T) *server {
	s := &server{
		t:        t,
		client:   fake.NewSimpleMetadataClient(fake.NewTestScheme()),
		version:  100,
		pods:     map[string]*metav1.PartialObjectMetadata{},
		accepted: map[types.UID]int{},
	}
	s.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watcher, s.pending = nil, nil // a watch continues from here
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
		for _, pod := range s.pods {
			list.Items = append(list.Items, runtime.RawExtension{Object: pod.DeepCopy()})
		}
		return true, list, nil
	})
	s.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		pod, err := s.patch(patch.GetName(), patch.GetPatch())
		return true, pod, err
	})
	s.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watcher = watch.NewRaceFreeFake()
		s.flush()
		return true, s.watcher, nil
	})
	return s
}

// run starts a controller and returns it with a function that stops it.
func (s *server) run() (c *Controller, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	pods := metadatainformer.NewFilteredMetadataInformer(s.client, Resource, "", 0, cache.Indexers{}, nil)
	c, err := NewController(Config{}, s.client, pods, s, clock.RealClock{})
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { pods.Informer().RunWithContext(ctx) })
	synctest.Wait() // As in a real process, the cache is filled before workers start.
	running.Go(func() {
		if err := c.Run(ctx, 2); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return c, stop
}

// pass lets time pass.
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
	pod := s.pods[name]
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
		s.notify(watch.Modified, pod)
	}
	return pod.DeepCopy(), answer
}

// notify gives the Pod a new version and sends it to the watch.
func (s *server) notify(what watch.EventType, pod *metav1.PartialObjectMetadata) {
	s.version++
	pod.ResourceVersion = strconv.Itoa(s.version)
	s.pending = append(s.pending, watch.Event{Type: what, Object: pod.DeepCopy()})
	s.flush()
}

func (s *server) flush() {
	for ; len(s.pending) > 0 && s.watcher != nil && !s.isHeld; s.pending = s.pending[1:] {
		s.watcher.Action(s.pending[0].Type, s.pending[0].Object)
	}
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

// hold holds up the watch, or lets it continue.
func (s *server) hold(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isHeld = is
	s.flush()
}

// create creates a Pod, after removing any Pod of that name.
func (s *server) create(name string, annotations ...string) {
	s.remove(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := podWith(annotations...)
	pod.Name, pod.UID = name, types.UID(fmt.Sprintf("%s-%d", name, s.version))
	s.pods[name] = pod
	s.notify(watch.Added, pod)
}

// remove deletes the Pod, if there is one, at once.
func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := s.pods[name]; pod != nil {
		delete(s.pods, name)
		s.notify(watch.Deleted, pod)
	}
}

// edit changes the Pod, if there is one.
func (s *server) edit(name string, change func(*metav1.PartialObjectMetadata)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := s.pods[name]; pod != nil {
		change(pod)
		s.notify(watch.Modified, pod)
	}
}

func (s *server) annotate(name, key, value string) {
	s.edit(name, func(pod *metav1.PartialObjectMetadata) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) })
}

// timestamps returns the timestamps of all Pods that have one, by Pod name.
func (s *server) timestamps() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]string{}
	for name, pod := range s.pods {
		if isStamped(pod) {
			found[name] = pod.Annotations[AnnotationTimestamp]
		}
	}
	return found
}

// Eventf implements events.EventRecorder.
func (s *server) Eventf(_, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s %s: %s", eventType, reason, fmt.Sprintf(note, args...)))
}
