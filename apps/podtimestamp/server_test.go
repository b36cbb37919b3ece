package main

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// server is a scripted API server for Pods.
type server struct {
	*script.Cluster
	record.EventRecorder // of which only Eventf is used
	t                    *testing.T

	mu     sync.Mutex
	events []string
}

func newServer(t *testing.T) *server {
	return &server{Cluster: script.New(t, apiserver.Pods()), t: t}
}

// run starts the controller as the process does, and returns it with a function that stops
// it.
func (s *server) run() (_ *Controller, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	d := &manager.Dependencies{Metadata: metadata.NewForConfigOrDie(s.Config()), Recorder: s}
	c, err := NewDescriptor().New(d)
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(d.StartCaches(ctx, c))
	running.Go(func() {
		if err := c.Run(ctx, 2); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	kittest.Pass(0)
	return c.(*Controller), stop
}

// patches returns how many patches the controller has sent, however they were answered.
func (s *server) patches() int { return s.Requests("patch pods") }

// nameOf returns the name of the Pod together with its namespace, which is the same for
// all.
func nameOf(pod string) cache.ObjectName { return cache.NewObjectName(podWith().Namespace, pod) }

// alters makes admission change Pods that are patched.
func (s *server) alters(alter func(pod *corev1.Pod)) {
	s.Mutate(func(a apiserver.Admission) {
		if a.Verb == "patch" {
			alter(a.Object.(*corev1.Pod))
		}
	})
}

// create creates a Pod, after removing any Pod of that name.
func (s *server) create(name string, annotations ...string) {
	s.remove(name)
	s.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podWith().Namespace, Name: name, Annotations: podWith(annotations...).Annotations}})
}

// remove deletes the Pod, if there is one, at once.
func (s *server) remove(name string) {
	for _, pod := range script.All[corev1.Pod](s.Cluster) {
		if pod.Name == name {
			script.Delete[corev1.Pod](s.Cluster, pod.Namespace, name, metav1.DeletePropagationBackground)
		}
	}
}

// edit changes the Pod.
func (s *server) edit(name string, change func(*corev1.Pod)) {
	script.Edit(s.Cluster, podWith().Namespace, name, change)
}

func (s *server) annotate(name, key, value string) {
	s.edit(name, func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) })
}

// timestamps returns the timestamps of all Pods that have one, by Pod name.
func (s *server) timestamps() map[string]string {
	found := map[string]string{}
	for _, pod := range script.All[corev1.Pod](s.Cluster) {
		if timestamp, ok := pod.Annotations[AnnotationTimestamp]; ok {
			found[pod.Name] = timestamp
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
