package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// settleTime is long compared with anything that the controller does on its own while
// nothing happens in the cluster.
const settleTime = 2 * time.Second

// icecreamYAML returns the manifest of an Icecream with these fields in its spec.
func icecreamYAML(name string, fields ...string) string {
	return fmt.Sprintf("apiVersion: controller.nicoleh.io/v1alpha1\nkind: Icecream\nmetadata: {name: %s}\nspec: {%s}\n", name, strings.Join(fields, ", "))
}

// edit merges fields, given as JSON, into the spec of an Icecream, as kubectl edit would.
func edit(t *testing.T, n *lab.Namespace, name, fields string) {
	t.Helper()
	n.Kubectl(t, "patch", "icecream", name, "--type=merge", "-p", `{"spec":{`+fields+`}}`)
}

// patchDeployment applies a JSON patch to a Deployment, as a user would.
func patchDeployment(t *testing.T, n *lab.Namespace, name, operations string) {
	t.Helper()
	n.Kubectl(t, "patch", "deployment", name, "--type=json", "-p", operations)
}

// createForeignDeployment creates a Deployment that belongs to no Icecream, and returns
// it once it no longer changes.
func createForeignDeployment(t *testing.T, n *lab.Namespace, name string) *appsv1.Deployment {
	t.Helper()
	n.Kubectl(t, "create", "deployment", name, "--image=registry.example/foreign:1")
	return eventuallySettled(t, n, name)
}

// eventuallySettled waits until a Deployment has been rolled out and no longer changes,
// and returns it.
func eventuallySettled(t *testing.T, n *lab.Namespace, name string) *appsv1.Deployment {
	t.Helper()
	var got *appsv1.Deployment
	n.Eventually(t, fmt.Sprintf("Deployment %q no longer changes", name), func(ctx context.Context) (err error) {
		if got, err = n.Deployments().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		progress := slices.IndexFunc(got.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
		})
		if progress < 0 || !isRolledOut(got) {
			return fmt.Errorf("its status is %+v", got.Status)
		}
		return nil
	})
	return got
}

// eventuallyHasDeployment waits until there is a Deployment of that name, in whatever
// state.
func eventuallyHasDeployment(t *testing.T, n *lab.Namespace, name string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("there is a Deployment %q", name), func(ctx context.Context) error {
		_, err := n.Deployments().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// isRolledOut reports whether all Pods of a Deployment are up to date and available.
func isRolledOut(d *appsv1.Deployment) bool {
	wanted := *d.Spec.Replicas
	return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == wanted &&
		d.Status.UpdatedReplicas == wanted && d.Status.AvailableReplicas == wanted
}

// requireUntouched requires that a Deployment has not changed since before was read, and
// that the controller has not even tried to write it.
func requireUntouched(t *testing.T, n *lab.Namespace, before *appsv1.Deployment) {
	t.Helper()
	now := n.Deployment(t, before.Name)
	if now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("Deployment %q had UID %s and resource version %s, and now has UID %s and resource version %s", before.Name, before.UID, before.ResourceVersion, now.UID, now.ResourceVersion)
	}
	if written := deploymentWrites(t, n, time.Time{}, before.Name); len(written) > 0 {
		t.Errorf("the controller tried to write a Deployment that is not its own: %s", written)
	}
}

// requestsOf returns the controller's requests in the namespace.
func requestsOf(t *testing.T, n *lab.Namespace) lab.Requests {
	t.Helper()
	return n.Requests(t).By(n.Controller.User)
}

// deploymentWrites returns the requests since that time by which the controller wrote, or
// tried to write, Deployments with these names, or any Deployments if no names are given.
// (For a creation, the name is known only from the response, so it is missing if the
// creation was refused.)
func deploymentWrites(t *testing.T, n *lab.Namespace, since time.Time, names ...string) lab.Requests {
	t.Helper()
	var found lab.Requests
	for _, e := range requestsOf(t, n).Since(since).Resource("deployments").Writes() {
		if len(names) == 0 || slices.Contains(names, e.Name) {
			found = append(found, e)
		}
	}
	return found
}

// isAccepted reports whether a request succeeded.
func isAccepted(e *cluster.AuditEvent) bool { return e.Code < 400 }

// isNotEvent reports whether a request is about anything other than events, which are
// sent in the background.
func isNotEvent(e *cluster.AuditEvent) bool { return e.Resource != "events" }

// steps returns the verb and the name of each request, such as "create new" or "delete
// old", in the order in which the requests arrived.
func steps(requests lab.Requests) []string {
	slices.SortStableFunc(requests, func(a, b *cluster.AuditEvent) int { return a.Received.Compare(b.Received) })
	var words []string
	for _, e := range requests {
		words = append(words, e.Verb+" "+e.Name)
	}
	return words
}

// statusWrites returns the requests since that time by which the controller wrote the
// status of an Icecream.
func statusWrites(t *testing.T, n *lab.Namespace, name string, since time.Time) lab.Requests {
	t.Helper()
	return requestsOf(t, n).Since(since).Resource("icecreams/status").Writes().Where(func(e *cluster.AuditEvent) bool { return e.Name == name })
}

// eventNotes returns the messages of an Icecream's events of that reason. A message that
// was reported several times is repeated as often.
func eventNotes(t *testing.T, n *lab.Namespace, name, reason string) []string {
	t.Helper()
	var found []string
	for _, event := range n.Events(t, name) {
		if event.Reason == reason {
			found = append(found, slices.Repeat([]string{event.Note}, lab.Occurrences(event))...)
		}
	}
	return found
}

// eventuallyTold waits until an Icecream has exactly so many normal events (at least one, if
// times is 0) whose message contains these words.
func eventuallyTold(t *testing.T, n *lab.Namespace, name, words string, times int) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("%q was told %d times", words, times), func(context.Context) error {
		told, all := 0, n.Events(t, name)
		for _, event := range all {
			if event.Type == corev1.EventTypeNormal && strings.Contains(event.Note, words) {
				told += lab.Occurrences(event)
			}
		}
		if told != times && (times > 0 || told == 0) {
			return fmt.Errorf("it was told %d times: %+v", told, all)
		}
		return nil
	})
}

// eventuallyEvent waits until an Icecream has an event of that reason whose message
// contains these words. Events are sent after the status.
func eventuallyEvent(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("there is an event %s: %s", reason, words), func(context.Context) error {
		found := eventNotes(t, n, name, reason)
		if !slices.ContainsFunc(found, func(note string) bool { return strings.Contains(note, words) }) {
			return fmt.Errorf("the events of that reason say %q", found)
		}
		return nil
	})
}

// requireOneWarning waits until an Icecream has an event of that reason whose message
// contains these words, and requires that it is the Icecream's only Warning and was
// reported once.
func requireOneWarning(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	eventuallyEvent(t, n, name, reason, words)
	var warnings []string
	for _, event := range n.Events(t, name) {
		if event.Type != corev1.EventTypeWarning {
			continue
		}
		if times := lab.Occurrences(event); times != 1 {
			t.Errorf("the Warning %q was reported %d times", event.Note, times)
		}
		warnings = append(warnings, event.Reason+": "+event.Note)
	}
	if len(warnings) != 1 {
		t.Errorf("there are %d Warnings, want one: %q", len(warnings), warnings)
	}
}

// requireNoWarnings requires that an Icecream has no Warnings.
func requireNoWarnings(t *testing.T, n *lab.Namespace, name string) {
	t.Helper()
	for _, event := range n.Events(t, name) {
		if event.Type == corev1.EventTypeWarning {
			t.Errorf("there is a Warning %s: %s", event.Reason, event.Note)
		}
	}
}

// kstatusOf returns the status of an Icecream as deployment tools see it.
func kstatusOf(t *testing.T, n *lab.Namespace, name string) status.Status {
	t.Helper()
	object, err := n.Lab.Dynamic.Resource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)).Namespace(n.Name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := status.Compute(object)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// requireNothingLeft waits until the namespace has no Icecream, Deployment, ReplicaSet or
// Pod.
func requireNothingLeft(t *testing.T, n *lab.Namespace) {
	t.Helper()
	n.Eventually(t, "the namespace is empty", func(ctx context.Context) error {
		left, err := n.TryKubectl(ctx, "", "get", "icecreams,deployments,replicasets,pods", "-o", "name")
		if err != nil {
			return err
		}
		if left != "" {
			return fmt.Errorf("it still has %q", strings.Fields(left))
		}
		return nil
	})
}

// podUIDs returns the UIDs of Pods by name. A Pod that has been replaced has another
// name or UID.
func podUIDs(pods []corev1.Pod) map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range pods {
		found[pod.Name] = pod.UID
	}
	return found
}

// A recording holds every change to the Deployments and Pods of a namespace.
type recording struct {
	begin uint64 // replay shows the changes after this resource version

	mu      sync.Mutex
	changes []change
}

// A change is a new state of an object, or its deletion.
type change struct {
	version    uint64
	deployment *appsv1.Deployment // exactly one of deployment and pod is set
	pod        *corev1.Pod
	isGone     bool
}

// A snapshot holds the objects that exist at one moment, by name.
type snapshot struct {
	deployments map[string]*appsv1.Deployment
	pods        map[string]*corev1.Pod
}

// record records the changes in a namespace from now on, until the test ends.
func record(t *testing.T, n *lab.Namespace) *recording {
	t.Helper()
	r := &recording{}
	deployments, err := n.Deployments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range deployments.Items {
		r.add(t, watch.Event{Type: watch.Added, Object: &deployments.Items[i]})
	}
	for i := range pods.Items {
		r.add(t, watch.Event{Type: watch.Added, Object: &pods.Items[i]})
	}
	r.begin = versionOf(t, pods)
	r.follow(t, n.Deployments().Watch, deployments.ResourceVersion)
	r.follow(t, n.Pods().Watch, pods.ResourceVersion)
	return r
}

// follow records the changes that a watch reports after that resource version, until the
// test ends.
func (r *recording) follow(t *testing.T, watchFrom func(context.Context, metav1.ListOptions) (watch.Interface, error), version string) {
	t.Helper()
	watcher, err := watchFrom(context.WithoutCancel(t.Context()), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		for event := range watcher.ResultChan() {
			r.add(t, event)
		}
	})
	t.Cleanup(func() {
		watcher.Stop()
		following.Wait()
	})
}

func (r *recording) add(t *testing.T, event watch.Event) {
	c := change{isGone: event.Type == watch.Deleted}
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		c.version, c.deployment = versionOf(t, object), object
	case *corev1.Pod:
		c.version, c.pod = versionOf(t, object), object
	default:
		return // the watch was stopped or has failed; if changes are missing, replay notices
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// replay waits until the recording is complete. Then it calls visit for each change so far,
// together with the snapshot after that change, in the order in which the API server made
// the changes.
func (r *recording) replay(t *testing.T, n *lab.Namespace, visit func(now snapshot, c change)) {
	t.Helper()
	n.Eventually(t, "the recording is complete", func(ctx context.Context) error {
		end := r.forEach(func(snapshot, change) {})
		for _, d := range n.AllDeployments(t) {
			if seen := end.deployments[d.Name]; seen == nil || seen.ResourceVersion != d.ResourceVersion {
				return fmt.Errorf("the last change of Deployment %q is missing", d.Name)
			}
			delete(end.deployments, d.Name)
		}
		list, err := n.Pods().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if seen := end.pods[pod.Name]; seen == nil || seen.ResourceVersion != pod.ResourceVersion {
				return fmt.Errorf("the last change of Pod %q is missing", pod.Name)
			}
			delete(end.pods, pod.Name)
		}
		if len(end.deployments)+len(end.pods) > 0 {
			return errors.New("the deletion of an object is missing")
		}
		return nil
	})
	r.forEach(visit)
}

// forEach calls visit for each change recorded so far, and returns the snapshot at the end.
func (r *recording) forEach(visit func(now snapshot, c change)) snapshot {
	r.mu.Lock()
	changes := slices.Clone(r.changes)
	r.mu.Unlock()
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })

	now := snapshot{deployments: map[string]*appsv1.Deployment{}, pods: map[string]*corev1.Pod{}}
	for _, c := range changes {
		switch {
		case c.deployment != nil && c.isGone:
			delete(now.deployments, c.deployment.Name)
		case c.deployment != nil:
			now.deployments[c.deployment.Name] = c.deployment
		case c.isGone:
			delete(now.pods, c.pod.Name)
		default:
			now.pods[c.pod.Name] = c.pod
		}
		if c.version > r.begin {
			visit(now, c)
		}
	}
	return now
}

// versionOf returns the resource version of an object as a number.
func versionOf(t *testing.T, of interface{ GetResourceVersion() string }) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(of.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("a resource version is not a number: %v", err)
	}
	return version
}

// readyPods returns the number of ready Pods.
func (s snapshot) readyPods() int {
	ready := 0
	for _, pod := range s.pods {
		if isReadyPod(pod) {
			ready++
		}
	}
	return ready
}

// isReadyPod reports whether a Pod is ready and not being deleted.
func isReadyPod(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
