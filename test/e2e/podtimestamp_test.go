package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

// timestamp is the annotation that a Pod gets.
const timestamp = "timestamp"

// newStampingLab boots a cluster in which the controllers' service account may do what
// podtimestamp needs, and nothing that is only needed for Icecreams.
func newStampingLab(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	l := NewLab(t, o)
	for _, args := range [][]string{
		{"apply", "-f", l.Path("artifacts/rbac-podtimestamp.yaml")},
		{"delete", "clusterrolebinding/" + lab.IcecreamRole, "clusterrole/" + lab.IcecreamRole},
	} {
		if _, err := l.TryKubectl(t.Context(), "", args...); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// Half of the Pods exist before the start, the others are created later, and in between
// the leader is killed.
func TestPodtimestampOnceWhoeverLeads(t *testing.T) {
	t.Parallel()
	const half = 300
	l := newStampingLab(t, lab.Options{})
	n := l.NewNamespace(t)
	seen := followTimestamps(t, n)
	createPods(t, n, "early", half, asking)

	flags := append([]string{"-controllers=podtimestamp", "-kube-api-qps=50", "-leader-elect-resource-namespace=" + lab.SystemNamespace}, elect...)
	first := l.StartController(t, flags...)
	n.Controller = first
	n.Eventually(t, "the first leads", func(context.Context) error { return seen.atLeast(1) })
	second := l.StartController(t, flags...)
	var users sync.WaitGroup
	users.Go(func() { createPods(t, n, "late", half, asking) })
	eventuallyReadyToLead(t, n, second)
	n.Eventually(t, "the first is in the middle of it", func(context.Context) error { return seen.atLeast(half / 4) })
	killed := first.Agent
	first.Kill(t)
	if seen.atLeast(2*half) == nil {
		t.Error("the leader was killed too late to show anything")
	}
	n.Controller = second
	users.Wait()
	first.Start(t) // as the kubelet would
	n.Eventually(t, "all are stamped", func(context.Context) error { return seen.atLeast(2 * half) })

	made := l.Requests(t).By(first.User).Resource("pods").Writes()
	byAgent := map[string]int{}
	for _, e := range made.Where(isAccepted) {
		byAgent[lab.AgentOf(e)]++
	}
	t.Logf("writes to Pods: %s; by process: %v", made, byAgent)
	if len(byAgent) != 2 {
		t.Errorf("%d processes wrote, want the leader and the one after it", len(byAgent))
	}
	// A request that the kill cut off may have been carried out nevertheless.
	cutOff := made.Code(http.StatusGatewayTimeout).Where(func(e *cluster.AuditEvent) bool { return lab.AgentOf(e) == killed }).ByObject()
	stamped := made.Where(isAccepted).ByObject()
	for pod := range seen.all() {
		if stamped[pod] != 1 && (stamped[pod] != 0 || cutOff[pod] != 1) {
			t.Errorf("Pod %q was written to %d times", pod, stamped[pod])
		}
	}
	seen.requireOneEach(t)
}

func TestPodtimestamp(t *testing.T) {
	t.Parallel()
	l := newStampingLab(t, lab.Options{})
	other := l.NewNamespace(t)
	t.Run("in one namespace with no more than a Role there", func(t *testing.T) {
		n := l.NewNamespace(t)
		n.Kubectl(t, "create", "rolebinding", "stamping", "--clusterrole=k8s-controller-podtimestamp", "--serviceaccount="+n.Name+":default")
		c, err := l.NewController(t.Context(), n.Name, "default", "-controllers=podtimestamp", "-namespace="+n.Name)
		if err != nil {
			t.Fatal(err)
		}
		n.Controller = c
		c.StartForTest(t)
		createPods(t, n, "here", 1, asking)
		createPods(t, other, "elsewhere", 1, asking)
		eventuallyStamped(t, n, "here-0")
		if found := timestampOf(t, other, "elsewhere-0"); found != "" {
			t.Errorf("the Pod in another namespace has %q", found)
		}
		if refused := l.Requests(t).By(c.User).Refused(); len(refused) > 0 {
			t.Errorf("requests were refused: %s", refused)
		}
	})

	c := l.StartController(t, "-controllers=podtimestamp", "-insecure-bind-address=127.0.0.1:0")
	eventuallyStamped(t, other, "elsewhere-0")
	share := func(t *testing.T) *lab.Namespace {
		n := l.NewNamespace(t)
		n.Controller = c
		return n
	}
	t.Run("the right Pods and no others", func(t *testing.T) {
		n := share(t)
		begin := time.Now().Truncate(time.Second)
		before := metric(t, c, "podtimestamp_stamps_total")
		createPods(t, n, "asking", 1, asking)
		createPods(t, n, "silent", 1)
		createPods(t, n, "late", 1)
		createPods(t, n, "others", 1, asking, annotated(timestamp, "tomorrow"))
		createPods(t, n, "empty", 1, asking, annotated(timestamp, ""))
		createPods(t, n, "mirror", 1, asking, annotated(corev1.MirrorPodAnnotationKey, "hash"), func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" })
		createPods(t, n, "ending", 1, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/wait"} })
		n.Kubectl(t, "delete", "pod/ending-0", "--wait=false")
		n.Kubectl(t, "annotate", "pod/ending-0", "pod/late-0", "addtime=true")

		for _, name := range []string{"asking-0", "late-0"} {
			stamp := eventuallyStamped(t, n, name)
			if at, err := time.Parse("2006-01-02T15:04:05Z", stamp); err != nil || at.Before(begin) || at.After(time.Now()) {
				t.Errorf("%s has timestamp %q", name, stamp)
			}
			eventuallyToldOf(t, n, name, "Normal Stamped 1: Set annotation timestamp to "+stamp)
		}
		n.Steadily(t, "the others are left alone", 2*time.Second, func(context.Context) error {
			for name, want := range map[string]string{"silent-0": "", "others-0": "tomorrow", "empty-0": "", "mirror-0": "", "ending-0": ""} {
				if found := timestampOf(t, n, name); found != want {
					return fmt.Errorf("%s has timestamp %q", name, found)
				}
			}
			return nil
		})
		if made := n.Requests(t).By(c.User).Resource("pods").Writes(); len(made) != 2 {
			t.Errorf("it took %s", made)
		}
		if got := metric(t, c, "podtimestamp_stamps_total"); got != before+2 {
			t.Errorf("podtimestamp_stamps_total went from %v to %v", before, got)
		}
		n.Kubectl(t, "patch", "pod/ending-0", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	})

	t.Run("what is not stored is not reported", func(t *testing.T) {
		n := share(t)
		createPods(t, n, "probe", 1)
		const drop = `has(object.metadata.annotations) && "timestamp" in object.metadata.annotations ? [JSONPatch{op: "remove", path: "/metadata/annotations/timestamp"}] : []`
		n.ApplyPolicy(t, n.Name, "pods", "UPDATE", drop, func(ctx context.Context) error {
			patch := []byte(`{"metadata":{"annotations":{"timestamp":"x"}}}`)
			pod, err := n.Pods().Patch(ctx, "probe-0", types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && pod.Annotations[timestamp] != "" {
				err = errors.New("the annotation stays")
			}
			return err
		})
		before := metric(t, c, "podtimestamp_stamps_total")
		createPods(t, n, "asking", 1, asking)
		eventuallyToldOf(t, n, "asking-0", "Warning StampDropped 1: Retrying: the API server accepted the annotation timestamp but an admission policy or webhook kept it from being stored")
		if got := metric(t, c, "podtimestamp_stamps_total"); got != before {
			t.Errorf("podtimestamp_stamps_total went from %v to %v", before, got)
		}
	})

	t.Run("what happens while the controller stands still", func(t *testing.T) {
		n := share(t)
		createPods(t, n, "anew", 1, asking)
		eventuallyStamped(t, n, "anew-0")
		c.Freeze(t)
		createPods(t, n, "fickle", 1, asking)
		n.Kubectl(t, "annotate", "pod/fickle-0", "addtime-")
		n.Kubectl(t, "delete", "pod/anew-0", "--grace-period=0", "--force")
		createPods(t, n, "anew", 1, asking)
		createPods(t, n, "last", 1, asking)
		c.Thaw(t)
		eventuallyStamped(t, n, "anew-0")
		eventuallyStamped(t, n, "last-0")
		if found := timestampOf(t, n, "fickle-0"); found != "" {
			t.Errorf("the Pod that does not ask any longer has timestamp %q", found)
		}
		if stamped := n.Requests(t).By(c.User).Resource("pods").Writes().Where(isAccepted); len(stamped) != 3 {
			t.Errorf("it took %s, want one for each Pod that asked", stamped)
		}
	})

	t.Run("refused by an admission policy", func(t *testing.T) {
		n := share(t)
		freezeLabeled(t, n, c.User)
		createPods(t, n, "frozen", 1, asking, func(pod *corev1.Pod) { pod.Labels = map[string]string{"frozen": "true"} })
		createPods(t, n, "free", 1, asking)
		eventuallyStamped(t, n, "free-0")
		var waits []time.Duration
		n.Eventually(t, "it is tried five times", func(context.Context) error {
			if waits = backOff(t, c, n.Name+"/frozen-0"); len(waits) < 5 {
				return fmt.Errorf("the delays are %s", waits)
			}
			return nil
		})
		if !slices.IsSorted(waits) || waits[0] == waits[4] {
			t.Errorf("the delays between tries are %s, want growing ones", waits)
		}
		const denied = "Warning StampRefused %d: Retrying: setting annotation timestamp"
		eventuallyToldOf(t, n, "frozen-0", fmt.Sprintf(denied, 1))

		n.Kubectl(t, "label", "pod/frozen-0", "frozen-")
		eventuallyStamped(t, n, "frozen-0")
		eventuallyToldOf(t, n, "frozen-0", fmt.Sprintf(denied, 1), "Normal Stamped 1")

		// Removing the timestamp requests another one.
		n.Kubectl(t, "patch", "pod/frozen-0", "--type=merge", "-p", `{"metadata":{"labels":{"frozen":"true"},"annotations":{"timestamp":null}}}`)
		eventuallyToldOf(t, n, "frozen-0", fmt.Sprintf(denied, 2), "Normal Stamped 1")
	})

	t.Run("in a namespace that is being deleted", func(t *testing.T) {
		n := share(t)
		before := c.Errors()
		createPods(t, n, "stuck", 10, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/wait"} })
		n.Kubectl(t, "delete", "namespace", n.Name, "--wait=false")
		n.Kubectl(t, "annotate", "pods", "--all", "addtime=true")
		n.Eventually(t, "the Pods are being deleted", func(ctx context.Context) error {
			list, err := n.Pods().List(ctx, metav1.ListOptions{})
			for _, pod := range list.Items {
				if pod.DeletionTimestamp == nil {
					return fmt.Errorf("%s is not", pod.Name)
				}
			}
			return err
		})
		marked := timestampsOf(t, n)
		n.Kubectl(t, "annotate", "pods", "--all", "--overwrite", "addtime=again")
		n.Steadily(t, "none of them is stamped any more", 2*time.Second, func(context.Context) error {
			if now := timestampsOf(t, n); len(now) > len(marked) {
				return fmt.Errorf("before %v, now %v", marked, now)
			}
			return nil
		})
		for i := range 10 {
			n.Kubectl(t, "patch", fmt.Sprintf("pod/stuck-%d", i), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
		n.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
			if _, err := l.Kube.CoreV1().Namespaces().Get(ctx, n.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("not yet: %w", err)
			}
			return nil
		})
		if errs := c.Errors()[len(before):]; strings.Contains(strings.Join(errs, "\n"), n.Name) {
			t.Errorf("errors were reported: %q", errs)
		}
	})

	if t.Failed() {
		return
	}
	made := l.Requests(t).By(c.User)
	if forbidden := made.Where(func(e *cluster.AuditEvent) bool { return e.Decision != "allow" }); len(forbidden) > 0 {
		t.Errorf("the role does not allow %s", forbidden)
	}
	role, err := l.Kube.RbacV1().ClusterRoles().Get(t.Context(), "k8s-controller-podtimestamp", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			if used := made.Resource(rule.Resources[0]).Where(func(e *cluster.AuditEvent) bool { return e.Verb == verb }); len(used) == 0 {
				t.Errorf("the role allows to %s %s, which is not used", verb, rule.Resources[0])
			}
		}
	}
}

// The controller's patch, as pkg/kit/patch makes it, is refused by the API server if the
// Pod has changed since it was observed.
func TestPodtimestampPatchIsForOneState(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	client, err := metadata.NewForConfig(n.Lab.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(n.Name)
	for name, meanwhile := range map[string]func(pod string){
		"nothing":                      nil,
		"it was stamped by this patch": func(pod string) { n.Kubectl(t, "annotate", "pod/"+pod, "timestamp=this") },
		"someone has stamped it":       func(pod string) { n.Kubectl(t, "annotate", "pod/"+pod, "timestamp=mine") },
		"it does not ask any longer":   func(pod string) { n.Kubectl(t, "annotate", "pod/"+pod, "addtime-") },
		"it is another of that name": func(pod string) {
			n.Kubectl(t, "delete", "pod/"+pod, "--grace-period=0", "--force")
			createPods(t, n, strings.TrimSuffix(pod, "-0"), 1)
		},
		"it is gone": func(pod string) { n.Kubectl(t, "delete", "pod/"+pod, "--grace-period=0", "--force") },
	} {
		t.Run(name, func(t *testing.T) {
			pod := strings.ReplaceAll(name, " ", "-")
			createPods(t, n, pod, 1, asking)
			pod += "-0"
			seen, err := pods.Get(t.Context(), pod, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"timestamp":"now"},"resourceVersion":%q,"uid":%q}}`, seen.ResourceVersion, seen.UID))
			if meanwhile == nil {
				if _, err := pods.Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				if found := timestampOf(t, n, pod); found != "now" {
					t.Errorf("timestamp %q, want %q", found, "now")
				}
			} else {
				meanwhile(pod)
			}
			before := timestampsOf(t, n)[pod]
			_, err = pods.Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{})
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Errorf("the patch was answered with %v, want a conflict", err)
			}
			if after := timestampsOf(t, n)[pod]; after != before {
				t.Errorf("timestamp %q became %q", before, after)
			}
		})
	}
}

// Filling its cache with Pods of 20 KB costs the controller no more memory than with
// small Pods: it does not even allocate more.
func TestPodtimestampMemory(t *testing.T) {
	t.Parallel()
	const pods = 2000
	l := newStampingLab(t, lab.Options{Nodes: -1})
	cost := func(name string, edits ...func(*corev1.Pod)) float64 {
		n := l.NewNamespace(t)
		createPods(t, n, name, pods, edits...)
		n.Kubectl(t, "create", "rolebinding", "stamping", "--clusterrole=k8s-controller-podtimestamp", "--serviceaccount="+n.Name+":default")
		c, err := l.NewController(t.Context(), n.Name, "default", "-controllers=podtimestamp", "-namespace="+n.Name, "-insecure-bind-address=127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.Controller = c
		c.StartForTest(t)
		n.Eventually(t, "the cache is filled", func(context.Context) error {
			if log := c.Log(); !strings.Contains(log, `"Started"`) {
				return fmt.Errorf("its log:\n%s", log)
			}
			return nil
		})
		allocated := metric(t, c, "go_memstats_alloc_bytes_total")
		t.Logf("for %d %s Pods %.1f MB were allocated; %.1f MB are in use", pods, name, allocated/1e6, metric(t, c, "go_memstats_heap_alloc_bytes")/1e6)
		return allocated
	}
	thin := cost("thin")
	fat := cost("fat", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 10_000)}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "FAT", Value: strings.Repeat("y", 10_000)}}
	})
	// All Pods together are 40 MB, and 4 MB would be noticed.
	if fat > thin+4e6 {
		t.Errorf("for thin Pods %.1f MB were allocated, for fat ones %.1f MB", thin/1e6, fat/1e6)
	}
}

// createPods creates so many Pods, which no scheduler looks at.
func createPods(t *testing.T, n *lab.Namespace, name string, count int, edits ...func(*corev1.Pod)) {
	t.Helper()
	var users sync.WaitGroup
	const atATime = 8
	for user := range atATime {
		users.Go(func() {
			for i := user; i < count; i += atATime {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)},
					Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "registry.example/c"}}, AutomountServiceAccountToken: new(bool)},
				}
				for _, edit := range edits {
					edit(pod)
				}
				if _, err := n.Pods().Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
}

func asking(pod *corev1.Pod) { annotated("addtime", "")(pod) }

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

// timestampsOf returns the timestamps of all Pods that have one, by Pod name.
func timestampsOf(t *testing.T, n *lab.Namespace) map[string]string {
	t.Helper()
	list, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, pod := range list.Items {
		if stamp, isStamped := pod.Annotations[timestamp]; isStamped {
			found[pod.Name] = stamp
		}
	}
	return found
}

func timestampOf(t *testing.T, n *lab.Namespace, name string) string {
	t.Helper()
	return timestampsOf(t, n)[name]
}

func eventuallyStamped(t *testing.T, n *lab.Namespace, name string) (stamp string) {
	t.Helper()
	n.Eventually(t, name+" is stamped", func(context.Context) error {
		if stamp = timestampOf(t, n, name); stamp == "" {
			return fmt.Errorf("the timestamps are %v", timestampsOf(t, n))
		}
		return nil
	})
	return stamp
}

// eventuallyToldOf waits until there are exactly these events about a Pod. Each is given
// by the beginning of its type, reason, count and note.
func eventuallyToldOf(t *testing.T, n *lab.Namespace, pod string, want ...string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("the events about %s are %q", pod, want), func(ctx context.Context) error {
		list, err := n.Lab.Kube.EventsV1().Events(n.Name).List(ctx, metav1.ListOptions{FieldSelector: "regarding.kind=Pod,regarding.name=" + pod + ",reportingController=podtimestamp-controller"})
		if err != nil {
			return err
		}
		told := map[string]bool{}
		for _, event := range list.Items {
			told[sayingOf(event)] = true
		}
		for _, beginning := range want {
			for event := range told {
				if strings.HasPrefix(event, beginning) {
					delete(told, event)
				}
			}
		}
		if len(list.Items) != len(want) || len(told) > 0 {
			return fmt.Errorf("there are %d, among them %v", len(list.Items), told)
		}
		return nil
	})
}

func sayingOf(event eventsv1.Event) string {
	return fmt.Sprintf("%s %s %d: %s", event.Type, event.Reason, lab.Occurrences(event), event.Note)
}

// freezeLabeled creates an admission policy that keeps that user from changing Pods in
// the namespace with the label frozen, and returns when it is in force.
func freezeLabeled(t *testing.T, n *lab.Namespace, user string) {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  matchConditions: [{name: user, expression: "request.userInfo.username in ['%[2]s', 'probe']"}]
  validations: [{expression: "object.metadata.?labels.frozen.orValue('') != 'true'", message: it is frozen}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, n.Name, user))
	createPods(t, n, "probe", 1, func(pod *corev1.Pod) { pod.Labels = map[string]string{"frozen": "true"} })
	config := rest.CopyConfig(n.Lab.RESTConfig())
	// That user's own policy would refuse a change that the controller does not make.
	config.Impersonate = rest.ImpersonationConfig{UserName: "probe", Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(n.Name).Patch(ctx, "probe-0", types.MergePatchType, []byte(`{"metadata":{"annotations":{"timestamp":"x"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "it is frozen") {
			return fmt.Errorf("the API server says %w", err)
		}
		return nil
	})
}

// backOff returns the delays after each failed sync of an object, according to the log.
func backOff(t *testing.T, c *lab.Controller, object string) (waits []time.Duration) {
	t.Helper()
	for _, line := range c.Errors() {
		next := regexp.MustCompile(`object="` + object + `" next="([^"]*)"`).FindStringSubmatch(line)
		if next == nil {
			continue
		}
		wait, err := time.ParseDuration(next[1])
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, wait)
	}
	return waits
}

// timestamps collects all timestamps that the Pods of a namespace ever had, as a watch
// shows them.
type timestamps struct {
	mu    sync.Mutex
	ever  map[string][]string // by Pod
	ended bool
}

func followTimestamps(t *testing.T, n *lab.Namespace) *timestamps {
	t.Helper()
	list, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Fatalf("there are %d Pods, want none: %v", len(list.Items), err)
	}
	// The API server ends a watch whose client is too slow for it. This one goes on where the
	// last has ended.
	watcher, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: n.Pods().Watch})
	if err != nil {
		t.Fatal(err)
	}
	s := &timestamps{ever: map[string][]string{}}
	go func() {
		for event := range watcher.ResultChan() {
			if pod, isPod := event.Object.(*corev1.Pod); isPod && event.Type != watch.Bookmark {
				s.see(pod)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = true
	}()
	return s
}

func (s *timestamps) see(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ever := s.ever[pod.Name]
	stamp, isStamped := pod.Annotations[timestamp]
	if !isStamped {
		stamp = "none"
	}
	if len(ever) == 0 || ever[len(ever)-1] != stamp {
		s.ever[pod.Name] = append(ever, stamp)
	}
}

// atLeast returns nil if so many Pods have a timestamp.
func (s *timestamps) atLeast(count int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamped := 0
	for _, ever := range s.ever {
		if len(ever) > 1 {
			stamped++
		}
	}
	if stamped < count {
		return fmt.Errorf("%d of %d Pods are stamped; the watch has ended: %t", stamped, len(s.ever), s.ended)
	}
	return nil
}

// all returns the timestamps of all Pods.
func (s *timestamps) all() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ever)
}

// requireOneEach requires that each Pod had no timestamp at first, and then always the
// same one.
func (s *timestamps) requireOneEach(t *testing.T) {
	t.Helper()
	for pod, ever := range s.all() {
		if len(ever) != 2 || ever[0] != "none" || ever[1] == "none" {
			t.Errorf("Pod %q had these timestamps: %q", pod, ever)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		t.Error("the watch ended too early")
	}
}

// metric returns the value of a series without labels.
func metric(t *testing.T, c *lab.Controller, name string) float64 {
	t.Helper()
	all := c.Metrics(t)
	found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(all)
	if found == nil {
		t.Fatalf("there is no %s in\n%s", name, all)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
