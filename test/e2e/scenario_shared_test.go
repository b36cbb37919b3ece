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

// aMoment is long against everything that a controller does of its own accord in
// a cluster in which nothing happens.
const aMoment = 2 * time.Second

// flavour is the manifest of an Icecream with these fields in its spec.
func flavour(name string, fields ...string) string {
	return fmt.Sprintf("apiVersion: controller.nicoleh.io/v1alpha1\nkind: Icecream\nmetadata: {name: %s}\nspec: {%s}\n", name, strings.Join(fields, ", "))
}

// edit is what kubectl edit would do to an Icecream: the fields of its spec, as
// JSON, are merged in.
func edit(t *testing.T, n *lab.Namespace, name, fields string) {
	t.Helper()
	n.Kubectl(t, "patch", "icecream", name, "--type=merge", "-p", `{"spec":{`+fields+`}}`)
}

// patchDeployment changes a Deployment as somebody else, by a JSON patch.
func patchDeployment(t *testing.T, n *lab.Namespace, name, operations string) {
	t.Helper()
	n.Kubectl(t, "patch", "deployment", name, "--type=json", "-p", operations)
}

// kubectlMakes runs a Deployment that no Icecream has to do with, and returns it
// when nothing changes about it any more.
func kubectlMakes(t *testing.T, n *lab.Namespace, name string) *appsv1.Deployment {
	t.Helper()
	n.Kubectl(t, "create", "deployment", name, "--image=registry.example/foreign:1")
	return atRest(t, n, name)
}

// atRest waits until a Deployment's controller has nothing more to say about it.
func atRest(t *testing.T, n *lab.Namespace, name string) *appsv1.Deployment {
	t.Helper()
	var got *appsv1.Deployment
	n.Eventually(t, fmt.Sprintf("Deployment %q is at rest", name), func(ctx context.Context) (err error) {
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

func isRolledOut(d *appsv1.Deployment) bool {
	wanted := *d.Spec.Replicas
	return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == wanted &&
		d.Status.UpdatedReplicas == wanted && d.Status.AvailableReplicas == wanted
}

// requireUntouched requires that a Deployment is the very object that it was, and
// that the controller has not even tried to write it.
func requireUntouched(t *testing.T, n *lab.Namespace, before *appsv1.Deployment) {
	t.Helper()
	now := n.Deployment(t, before.Name)
	if now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("Deployment %q was UID %s at version %s, and is UID %s at version %s", before.Name, before.UID, before.ResourceVersion, now.UID, now.ResourceVersion)
	}
	if written := deploymentWrites(t, n, time.Time{}, before.Name); len(written) > 0 {
		t.Errorf("the controller has tried to write a Deployment that is not its own: %s", written)
	}
}

// requestsOf are the controller's requests in the namespace.
func requestsOf(t *testing.T, n *lab.Namespace) lab.Requests {
	t.Helper()
	return n.Requests(t).By(n.Controller.User)
}

// deploymentWrites are the controller's attempts, from that time on, to write
// Deployments of those names, or of any if there are none. (The name of a
// Deployment that is created is known from the answer, if it is not refused.)
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

// isAccepted says whether a request was not answered with an error.
func isAccepted(e cluster.AuditEvent) bool { return e.Code < 400 }

// isNotEvent says whether a request is about anything but an event. Events are sent
// behind everything else, and nothing waits for them.
func isNotEvent(e cluster.AuditEvent) bool { return e.Resource != "events" }

// steps are requests in the order in which they arrived: "create new", "delete old".
func steps(requests lab.Requests) []string {
	slices.SortStableFunc(requests, func(a, b cluster.AuditEvent) int { return a.Received.Compare(b.Received) })
	var words []string
	for _, e := range requests {
		words = append(words, e.Verb+" "+e.Name)
	}
	return words
}

// statusWrites are the controller's writes to the status of an Icecream.
func statusWrites(t *testing.T, n *lab.Namespace, name string, since time.Time) lab.Requests {
	t.Helper()
	return requestsOf(t, n).Since(since).Resource("icecreams/status").Writes().Where(func(e cluster.AuditEvent) bool { return e.Name == name })
}

// notes are what the events of a reason say about an Icecream, each as often as it
// was said.
func notes(t *testing.T, n *lab.Namespace, name, reason string) []string {
	t.Helper()
	var found []string
	for _, event := range n.Events(t, name) {
		if event.Reason == reason {
			found = append(found, slices.Repeat([]string{event.Note}, lab.Occurrences(event))...)
		}
	}
	return found
}

// eventuallyTold waits until an event of that reason says those words about an
// Icecream: events are sent behind the status.
func eventuallyTold(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("people are told %s: %s", reason, words), func(context.Context) error {
		told := notes(t, n, name, reason)
		if !slices.ContainsFunc(told, func(note string) bool { return strings.Contains(note, words) }) {
			return fmt.Errorf("they are told %q", told)
		}
		return nil
	})
}

// requireOneWarning waits until people have been warned about an Icecream, and
// requires that it was for that reason, and once.
func requireOneWarning(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	eventuallyTold(t, n, name, reason, words)
	var warnings []string
	for _, event := range n.Events(t, name) {
		if event.Type != corev1.EventTypeWarning {
			continue
		}
		if event.Series != nil {
			t.Errorf("the warning %q came %d times", event.Note, event.Series.Count)
		}
		warnings = append(warnings, event.Reason+": "+event.Note)
	}
	if len(warnings) != 1 {
		t.Errorf("people were warned %d times: %q", len(warnings), warnings)
	}
}

// kstatusOf is what deployment tools make of an Icecream.
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

// requireNothingLeft waits until the namespace has no Deployment, ReplicaSet or Pod.
func requireNothingLeft(t *testing.T, n *lab.Namespace) {
	t.Helper()
	n.Eventually(t, "nothing is left", func(ctx context.Context) error {
		left, err := n.TryKubectl(ctx, "", "get", "icecreams,deployments,replicasets,pods", "-o", "name")
		if err != nil {
			return err
		}
		if left != "" {
			return fmt.Errorf("there is %q", strings.Fields(left))
		}
		return nil
	})
}

// identities are the names and UIDs of Pods: what changes when one is replaced.
func identities(pods []corev1.Pod) map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range pods {
		found[pod.Name] = pod.UID
	}
	return found
}

// recording holds every change of Deployments and Pods in a namespace.
type recording struct {
	begin uint64 // the resource version from which on changes are shown

	mu      sync.Mutex
	changes []change
}

// change is that an object is as it now is, or that it is gone.
type change struct {
	version    uint64
	deployment *appsv1.Deployment // one of these two
	pod        *corev1.Pod
	isGone     bool
}

// scene is what there is at one time, by name.
type scene struct {
	deployments map[string]*appsv1.Deployment
	pods        map[string]*corev1.Pod
}

// record records what happens in a namespace from now on.
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

// follow records what a watch shows from that resource version on, until the test
// ends.
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
		return // the watch has been stopped, or has failed; play misses what it would have shown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// play shows what has happened so far, one change after the other, in the order
// in which the API server knows it. It waits until the recording is complete.
func (r *recording) play(t *testing.T, n *lab.Namespace, see func(now scene, c change)) {
	t.Helper()
	n.Eventually(t, "everything has been recorded", func(ctx context.Context) error {
		end := r.each(func(scene, change) {})
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
			return errors.New("the end of an object is missing")
		}
		return nil
	})
	r.each(see)
}

// each shows what has been recorded, and returns what there is at the end.
func (r *recording) each(see func(now scene, c change)) scene {
	r.mu.Lock()
	changes := slices.Clone(r.changes)
	r.mu.Unlock()
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })

	now := scene{deployments: map[string]*appsv1.Deployment{}, pods: map[string]*corev1.Pod{}}
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
			see(now, c)
		}
	}
	return now
}

func versionOf(t *testing.T, of interface{ GetResourceVersion() string }) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(of.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("a resource version is not a number: %v", err)
	}
	return version
}

// readyPods is how many Pods can serve.
func (s scene) readyPods() int {
	ready := 0
	for _, pod := range s.pods {
		if isReadyPod(pod) {
			ready++
		}
	}
	return ready
}

// isReadyPod says whether a Pod serves and is not about to end.
func isReadyPod(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
