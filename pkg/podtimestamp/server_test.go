package podtimestamp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// server is a small API server for Pods, with patches that have preconditions.
type server struct {
	*kittest.Cluster
	record.EventRecorder // of which only Eventf is used
	t                    *testing.T
	client               *fake.FakeMetadataClient

	mu       sync.Mutex
	answers  []error                                 // to the next patches; nil answers as a real server would
	alter    func(pod *metav1.PartialObjectMetadata) // how admission changes a Pod that is patched; nil if not at all
	patches  int                                     // requests, however they were answered
	accepted map[types.UID]int                       // patches, by Pod
	events   []string
}

func newServer(t *testing.T) *server {
	s := &server{Cluster: kittest.NewCluster(), t: t, client: fake.NewSimpleMetadataClient(fake.NewTestScheme()), accepted: map[types.UID]int{}}
	s.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		pods, version := s.List(Resource, "", nil)
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for _, pod := range pods {
			list.Items = append(list.Items, runtime.RawExtension{Object: pod})
		}
		return true, list, nil
	})
	s.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		pod, err := s.patch(patch.GetName(), patch.GetPatch())
		return true, pod, err
	})
	s.client.PrependWatchReactor("pods", s.React)
	return s
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
	for _, held := range parts.Caches {
		running.Go(func() { held.Informer.RunWithContext(ctx) })
	}
	running.Go(func() {
		if err := parts.Run(ctx, 2); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	kittest.Pass(0)
	return parts.Controller.(*Controller), stop
}

// patch answers a patch, and fails the test if no Pod should ever get it.
func (s *server) patch(name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches++
	if len(s.answers) > 0 {
		answer := s.answers[0]
		s.answers = s.answers[1:]
		return nil, answer
	}
	var wanted metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch, &wanted); err != nil {
		return nil, err
	}
	pod := s.pod(name)
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
		pod = s.Set(Resource, pod).(*metav1.PartialObjectMetadata)
	}
	return pod, nil
}

// nameOf returns the name of the Pod together with its namespace, which is the same for
// all.
func nameOf(pod string) cache.ObjectName { return cache.NewObjectName(podWith().Namespace, pod) }

// pod returns a copy of the Pod; nil if there is none.
func (s *server) pod(name string) *metav1.PartialObjectMetadata {
	obj, _ := s.Get(Resource, nameOf(name))
	pod, _ := obj.(*metav1.PartialObjectMetadata)
	return pod
}

// answer sets the errors that answer the next patches.
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
	pod := podWith(annotations...)
	pod.Name = name
	s.Set(Resource, pod)
}

// remove deletes the Pod, if there is one, at once.
func (s *server) remove(name string) { s.Remove(Resource, nameOf(name)) }

// edit changes the Pod, if there is one.
func (s *server) edit(name string, change func(*metav1.PartialObjectMetadata)) {
	s.mu.Lock() // A patch reads and writes, too.
	defer s.mu.Unlock()
	if pod := s.pod(name); pod != nil {
		change(pod)
		s.Set(Resource, pod)
	}
}

func (s *server) annotate(name, key, value string) {
	s.edit(name, func(pod *metav1.PartialObjectMetadata) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) })
}

func withdraw(pod *metav1.PartialObjectMetadata) { delete(pod.Annotations, AnnotationAddTime) }

// all returns copies of all Pods.
func (s *server) all() (pods []*metav1.PartialObjectMetadata) {
	objects, _ := s.List(Resource, "", nil)
	for _, obj := range objects {
		pods = append(pods, obj.(*metav1.PartialObjectMetadata))
	}
	return pods
}

// timestamps returns the timestamps of all Pods that have one, by Pod name.
func (s *server) timestamps() map[string]string {
	found := map[string]string{}
	for _, pod := range slices.DeleteFunc(s.all(), func(pod *metav1.PartialObjectMetadata) bool { return !isStamped(pod) }) {
		found[pod.Name] = pod.Annotations[AnnotationTimestamp]
	}
	return found
}

// Eventf implements record.EventRecorder.
func (s *server) Eventf(_ runtime.Object, eventType, reason, message string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s %s: %s", eventType, reason, fmt.Sprintf(message, args...)))
}
