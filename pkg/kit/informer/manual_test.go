package informer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// handled is an event handler that notes its calls.
type handled []string

func (h *handled) OnAdd(obj any, isInitial bool) { h.note("add", isInitial, show(obj)) }
func (h *handled) OnUpdate(old, obj any)         { h.note("update", show(old), show(obj)) }
func (h *handled) OnDelete(obj any)              { h.note("delete", show(obj)) }
func (h *handled) note(call ...any)              { *h = append(*h, fmt.Sprintln(call...)) }

func show(obj any) string {
	switch obj := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		return "unknown: " + show(obj.Obj)
	case *corev1.Pod:
		return obj.Name + " at " + obj.ResourceVersion + " " + labels.FormatLabels(obj.Annotations)
	default:
		return fmt.Sprintf("%T", obj)
	}
}

// newPods returns a cache of Pods that notes what is handled, and annotates what it stores.
func newPods(t *testing.T, caches *informer.Caches, client informer.Client[*corev1.PodList]) (informer.Cache[*corev1.Pod], *handled) {
	pods := informer.NewCache[*corev1.Pod](caches, preflight.Resource{GroupVersionResource: pods.GroupVersionResource}, client, &corev1.Pod{}, 0)
	if err := pods.SetTransform(informer.Stripped(func(pod *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "transformed", pod.Annotations["transformed"]+"once")
	})); err != nil {
		t.Fatal(err)
	}
	h := &handled{}
	if _, err := pods.AddEventHandler(h); err != nil {
		t.Fatal(err)
	}
	return pods, h
}

func podAt(name string, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: fmt.Sprint(version)}}
}

// contents returns what is in a cache, by name.
func contents(pods informer.Cache[*corev1.Pod]) map[string]string {
	all := map[string]string{"": pods.GetStore().LastStoreSyncResourceVersion()}
	for pod := range pods.All() {
		all[pod.Name] = show(pod)
	}
	return all
}

// lists is an API server that answers each list with the next of these, and then has a
// watch.
type lists struct {
	next   []corev1.PodList
	events *watch.FakeWatcher
}

func (l *lists) IsWatchListSemanticsUnSupported() bool { return true }

func (l *lists) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	list := l.next[0].DeepCopy()
	l.next = l.next[1:]
	return list, nil
}

func (l *lists) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	l.events = watch.NewFake()
	return l.events, nil
}

// drawEvent returns an event that a server may send at a version, and updates what it has.
func drawEvent(t *rapid.T, has map[string]*corev1.Pod, version int) watch.Event {
	name := rapid.SampledFrom([]string{"cone", "cup", "waffle"}).Draw(t, "name")
	event := watch.Event{Type: watch.Added, Object: podAt(name, version)}
	switch what := rapid.SampledFrom([]watch.EventType{watch.Modified, watch.Deleted, watch.Bookmark}).Draw(t, "what"); {
	case what == watch.Bookmark:
		return watch.Event{Type: watch.Bookmark, Object: podAt("", version)}
	case has[name] == nil:
	case what == watch.Deleted:
		delete(has, name)
		return watch.Event{Type: watch.Deleted, Object: podAt(name, version)}
	default:
		event.Type = watch.Modified
	}
	has[name] = event.Object.(*corev1.Pod)
	return event
}

func listOf(has map[string]*corev1.Pod, version int) (objects []runtime.Object, list corev1.PodList) {
	list.ResourceVersion = fmt.Sprint(version)
	for _, name := range slices.Sorted(maps.Keys(has)) {
		objects, list.Items = append(objects, has[name]), append(list.Items, *has[name])
	}
	return objects, list
}

func TestManualCallsHandlersLikeClientGo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			server := &lists{}
			automatic := informer.New(func(string, string, time.Time) {}, clock.RealClock{})
			pods, want := newPods(t, automatic, server)
			manual := informer.NewManual(clock.RealClock{})
			byHand, got := newPods(t, manual, server)
			m := manual.Manual()[0]

			version, has := 1, map[string]*corev1.Pod{}
			replace := func() {
				objects, list := listOf(has, version)
				server.next = append(server.next, list)
				if err := m.Replace(objects, list.ResourceVersion); err != nil {
					t.Error(err)
				}
			}
			for range rapid.IntRange(0, 5).Draw(rt, "before") {
				version++
				drawEvent(rt, has, version)
			}
			replace()
			automatic.StartWithContext(t.Context())
			kittest.Pass(time.Second)
			for range rapid.IntRange(0, 20).Draw(rt, "events") {
				version++
				event := drawEvent(rt, has, version)
				if rapid.IntRange(0, 5).Draw(rt, "is lost") == 0 {
					replace()
					server.events.Error(&expired.ErrStatus)
					kittest.Pass(time.Minute)
				} else {
					server.events.Action(event.Type, event.Object.DeepCopyObject())
					if err := m.Receive(event); err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				// client-go handles deletions that it missed in any order.
				if diff := cmp.Diff(sorted(*want), sorted(*got)); diff != "" {
					rt.Fatalf("handled (-informer +manual):\n%s", diff)
				}
				if diff := cmp.Diff(contents(pods), contents(byHand)); diff != "" {
					rt.Fatalf("contents (-informer +manual):\n%s", diff)
				}
				*want, *got = nil, nil
			}
		})
	})
}

func sorted(calls handled) handled {
	slices.Sort(calls)
	return calls
}

func TestFill(t *testing.T) {
	caches := informer.NewManual(clock.RealClock{})
	pods, handled := newPods(t, caches, &lists{})
	m := caches.Manual()[0]
	cone := podAt("cone", 3)
	if pods.HasSynced() {
		t.Error("it has synced before it was filled")
	}
	for range 2 {
		if err := m.Fill([]runtime.Object{cone, podAt("cup", 4)}, "7"); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"": "7", "cone": "cone at 3 transformed=once", "cup": "cup at 4 transformed=once"}
	if diff := cmp.Diff(want, contents(pods)); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
	if len(*handled) > 0 {
		t.Errorf("handlers were called: %v", *handled)
	}
	if !pods.HasSynced() {
		t.Error("it has not synced after it was filled")
	}
	if len(cone.Annotations) > 0 {
		t.Error("the object itself was transformed")
	}
	if err := m.Fill([]runtime.Object{&corev1.Node{}}, "8"); err == nil {
		t.Error("a cache of Pods stores a Node")
	}
	if err := m.Receive(watch.Event{Type: watch.Error, Object: cone}); err == nil {
		t.Error("a cache receives an error")
	}
}

func TestMatches(t *testing.T) {
	labeled := func(namespace, name, flavor string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"flavor": flavor}}}
	}
	caches := informer.NewManual(clock.RealClock{})
	informer.NewCache[*corev1.Pod](caches, pods, &lists{}, &corev1.Pod{}, 0)
	m := caches.Manual()[0]
	if m.Resource() != pods {
		t.Errorf("resource %v, want %v", m.Resource(), pods)
	}
	for _, tt := range []struct {
		pod  *corev1.Pod
		want bool
	}{
		{labeled("shop", "cone", "vanilla"), true},
		{labeled("shop", "cone", "chocolate"), false},
		{labeled("shop", "cup", "vanilla"), false},
		{labeled("other", "cone", "vanilla"), false},
	} {
		if got := m.Matches(tt.pod); got != tt.want {
			t.Errorf("Matches(%s/%s, %v) = %t, want %t", tt.pod.Namespace, tt.pod.Name, tt.pod.Labels, got, tt.want)
		}
	}
}
