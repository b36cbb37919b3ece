package podproblem

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// now is when everything in these tests happens.
var now = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

// newPod is a Pod that has been ready for an hour, or has not been for a minute.
func newPod(isReady bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sundae-1", CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status:     kittest.ReadyStatus("main", "vanilla:1", now.Add(-time.Hour)),
	}
	if !isReady {
		kittest.NotReady(now.Add(-time.Minute))(pod)
	}
	return pod
}

// read calls f with the Pods of each command in testdata/problems.txt. The command container has documents that are each
// a status of the Pod's container, the command pod some that are merged over the Pod. Unless the command has the
// argument ready, the Pod has not been ready for a minute.
func read(t *testing.T, f func(d *datadriven.TestData, pods []*corev1.Pod) string) {
	t.Helper()
	datadriven.RunTest(t, "testdata/problems.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		var pods []*corev1.Pod
		for document := range strings.SplitSeq(d.Input, "\n---\n") {
			pod := newPod(d.HasArg("ready"))
			if d.Cmd == "container" {
				status := &pod.Status.ContainerStatuses[0]
				status.State = corev1.ContainerState{}
				requireNil(t, yaml.UnmarshalStrict(withTimes(document), status))
			} else {
				merge(t, pod, withTimes(document))
			}
			pods = append(pods, pod)
		}
		return f(d, pods)
	})
}

// withTimes replaces "1m ago" and "in 1m" by times.
func withTimes(document string) []byte {
	return times.ReplaceAllFunc([]byte(document), func(match []byte) []byte {
		word, isFuture := strings.CutPrefix(strings.TrimSuffix(string(match[2:]), " ago"), "in ")
		d, err := time.ParseDuration(word)
		if err != nil {
			return match
		}
		if !isFuture {
			d = -d
		}
		return fmt.Appendf(nil, ": %q", now.Add(d).Format(time.RFC3339))
	})
}

var times = regexp.MustCompile(`: (in \w+|\w+ ago)`)

func merge(t *testing.T, pod *corev1.Pod, part []byte) {
	t.Helper()
	original, err := json.Marshal(pod)
	requireNil(t, err)
	patch, err := yaml.YAMLToJSON(part)
	requireNil(t, err)
	raw, err := strategicpatch.StrategicMergePatch(original, patch, pod)
	requireNil(t, err)
	*pod = corev1.Pod{}
	requireNil(t, yaml.UnmarshalStrict(raw, pod))
}

func requireNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOf shows whether a Pod is ready, and its problem. Pods of one command that have the same one follow each other.
func TestOf(t *testing.T) {
	read(t, func(_ *datadriven.TestData, pods []*corev1.Pod) string {
		var lines []string
		for _, pod := range pods {
			said := []string{"not ready"}
			if IsReady(pod) {
				said = []string{"ready"}
			}
			p := Of(pod, now)
			if p.Reason != "" {
				said = append(said, fmt.Sprintf("%s since %v", p.Reason, now.Sub(p.Since)))
			}
			if p.RecheckAfter > 0 {
				said = append(said, fmt.Sprintf("look again in %v", p.RecheckAfter))
			}
			lines = append(lines, strings.TrimSuffix(strings.Join(said, ", ")+": "+p.Message, ": "))
		}
		return strings.Join(slices.Compact(lines), "\n")
	})
}

func strip(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: pod.ObjectMeta}
	Strip(pod, kept)
	return kept
}

// requireConsistent requires that a Pod has either no problem or a complete one, and that a Pod from a cache has the
// same problem as the whole Pod, now and later.
func requireConsistent(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	stripped := strip(pod)
	if IsReady(stripped) != IsReady(pod) {
		t.Errorf("ready: %t", IsReady(stripped))
	}
	for _, later := range []time.Duration{0, 30 * time.Second, 2 * time.Minute} {
		p := Of(pod, now.Add(later))
		if diff := cmp.Diff(p, Of(stripped, now.Add(later))); diff != "" {
			t.Errorf("after %v (-whole +stripped):\n%s", later, diff)
		}
		switch {
		case p.Reason == "" && (p.Message != "" || !p.Since.IsZero()):
			t.Errorf("no reason, but %+v", p)
		case p.Reason != "" && (!slices.Contains(Reasons(), p.Reason) || !strings.HasPrefix(p.Message, `Pod "`) || len(p.Message) > 1024 || !utf8.ValidString(p.Message)):
			t.Errorf("problem %+v", p)
		}
	}
}

// requireRecheck requires that the answer changes after RecheckAfter, and not before.
func requireRecheck(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	answer := func(later time.Duration) Problem {
		p := Of(pod, now.Add(later))
		p.RecheckAfter = 0
		return p
	}
	recheck := Of(pod, now).RecheckAfter
	if recheck == 0 {
		if diff := cmp.Diff(answer(0), answer(time.Hour)); diff != "" {
			t.Errorf("nothing to recheck, but (-now +later):\n%s", diff)
		}
		return
	}
	if diff := cmp.Diff(answer(0), answer(recheck-1)); diff != "" {
		t.Errorf("before it is time to recheck (-now +later):\n%s", diff)
	}
	if answer(0) == answer(recheck) {
		t.Errorf("after %v it is still %+v", recheck, answer(0))
	}
}

// This is true of all Pods of the table, but for those with a clock that is ahead, and of Pods that have the containers
// of two of them.
func TestStrippedPodsReadTheSame(t *testing.T) {
	var all []*corev1.Pod
	read(t, func(d *datadriven.TestData, pods []*corev1.Pod) string {
		if !ahead.MatchString(d.Input) {
			all = append(all, pods...)
		}
		return d.Expected
	})
	for _, pod := range all {
		for _, other := range all {
			both, other := pod.DeepCopy(), other.DeepCopy()
			for _, statuses := range [][]corev1.ContainerStatus{other.Status.InitContainerStatuses, other.Status.ContainerStatuses} {
				for i := range statuses {
					statuses[i].Name += "-2"
				}
			}
			both.Status.InitContainerStatuses = append(both.Status.InitContainerStatuses, other.Status.InitContainerStatuses...)
			both.Status.ContainerStatuses = append(both.Status.ContainerStatuses, other.Status.ContainerStatuses...)
			requireConsistent(t, both)
			requireRecheck(t, both)
			if t.Failed() {
				t.Fatalf("%+v", both)
			}
		}
	}
}

var ahead = regexp.MustCompile(`(lastTransitionTime|startedAt): in `)

func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"state":{"waiting":{"reason":"ErrImagePull","message":"a\nb"}}}]}`))
	f.Add([]byte(`{"containerStatuses":[{"ready":true,"state":{"running":{"startedAt":"2026-07-01T12:00:00Z"}},"lastState":{"terminated":{"exitCode":1,"reason":"StartError"}}}]}`))
	f.Add([]byte(`{"reason":"Evicted","message":"\ud800","phase":"Failed","initContainerStatuses":[{"state":{"terminated":{"exitCode":2}}}]}`))
	f.Fuzz(func(t *testing.T, status []byte) {
		pod := newPod(false)
		if json.Unmarshal(status, &pod.Status) == nil {
			requireConsistent(t, pod)
		}
	})
}

func TestStripIsBounded(t *testing.T) {
	long := strings.Repeat("melted ", 10_000)
	end := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: long, Message: long}}
	restarted := corev1.ContainerStatus{Name: "restarted", Image: long, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: end}
	fails := corev1.ContainerStatus{Name: "fails", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: long, Message: long}}, LastTerminationState: end}
	pod := newPod(false)
	pod.Status.Reason, pod.Status.Message = long, long
	for range 1000 {
		for _, kind := range []corev1.PodConditionType{"Ready", "PodScheduled", "PodReadyToStartContainers", "Gate", "Other"} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: "False", Reason: long, Message: long})
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: kind})
		}
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, restarted)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, fails)
	}
	raw, err := json.Marshal(strip(pod))
	if err != nil || len(raw) > 16<<10 {
		t.Errorf("%d bytes are kept: %v", len(raw), err)
	}
	if got := Of(pod, now); !strings.HasPrefix(got.Message, `Pod "sundae-1", container "fails": melted`) {
		t.Errorf("problem %+v", got)
	}
	healthy := strip(newPod(true)).Status
	if len(healthy.Conditions) != 1 || healthy.ContainerStatuses != nil {
		t.Errorf("of a Pod that is well, it keeps %+v", healthy)
	}
}
