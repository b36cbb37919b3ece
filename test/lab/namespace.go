package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	icecreamclient "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

// pollEvery is the shortest interval between two checks of a condition. It is short
// compared with what tests wait for, and long compared with a request.
const pollEvery = 100 * time.Millisecond

// pause returns how long to wait before the next check of a condition. took is the duration
// of the last one. If checks are slow, the pause is longer, which leaves the machine time to
// bring the condition about.
func pause(took time.Duration) time.Duration {
	return min(max(pollEvery, 2*took), time.Second)
}

// Namespace is a namespace of a Lab that belongs to one test.
type Namespace struct {
	Name string
	Lab  *Lab

	// Controller is the controller whose log is shown if a wait in the namespace times
	// out. StartController sets it.
	Controller *Controller
}

// Icecreams returns a client for the Icecreams of the namespace, with an administrator's
// permissions.
func (n *Namespace) Icecreams() icecreamclient.IcecreamInterface {
	return n.Lab.Icecreams.SamplecontrollerV1alpha1().Icecreams(n.Name)
}

// Deployments returns a client for the Deployments of the namespace, with an administrator's
// permissions.
func (n *Namespace) Deployments() appsclient.DeploymentInterface {
	return n.Lab.Kube.AppsV1().Deployments(n.Name)
}

// Pods returns a client for the Pods of the namespace, with an administrator's
// permissions.
func (n *Namespace) Pods() coreclient.PodInterface { return n.Lab.Kube.CoreV1().Pods(n.Name) }

// Create creates an Icecream.
func (n *Namespace) Create(t testing.TB, name string, spec v1alpha1.IcecreamSpec) *v1alpha1.Icecream {
	t.Helper()
	created, err := n.Icecreams().Create(t.Context(), &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating Icecream %q: %v", name, err)
	}
	return created
}

// Icecream returns the current state of an Icecream.
func (n *Namespace) Icecream(t testing.TB, name string) *v1alpha1.Icecream {
	t.Helper()
	got, err := n.Icecreams().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Deployment returns the current state of a Deployment.
func (n *Namespace) Deployment(t testing.TB, name string) *appsv1.Deployment {
	t.Helper()
	got, err := n.Deployments().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// AllDeployments returns the Deployments of the namespace, sorted by name.
func (n *Namespace) AllDeployments(t testing.TB) []appsv1.Deployment {
	t.Helper()
	list, err := n.Deployments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// LivePods returns the Pods of the namespace that are not being deleted, sorted by name.
func (n *Namespace) LivePods(t testing.TB) []corev1.Pod {
	t.Helper()
	list, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// Events returns the events about an Icecream.
func (n *Namespace) Events(t testing.TB, name string) []eventsv1.Event {
	t.Helper()
	list, err := n.Lab.Kube.EventsV1().Events(n.Name).List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=Icecream,regarding.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// Eventually waits until check returns nil. If it does not within Timeout, the test fails
// with the last error of check and a description of the namespace. The argument what is a
// clause that states the condition, such as "the Pod is ready".
func (n *Namespace) Eventually(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	eventually(t, what, check, func() string { return Clip(n.Describe()) })
}

// Eventually is [Namespace.Eventually] for what is in no namespace, or in several.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	eventually(t, what, func(context.Context) error { return check() }, func() string { return "" })
}

func eventually(t testing.TB, what string, check func(ctx context.Context) error, describe func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	var last error // but that of a check that was cut short
	for ctx.Err() == nil {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-time.After(pause(time.Since(began))):
		case <-ctx.Done():
		}
	}
	t.Fatalf("timed out after %s waiting until %s: %v\n%s", Timeout, what, last, describe())
}

// Consistently requires that check keeps returning nil for a while. It is for events that must
// not happen; it does not notice an event that would happen later. The argument what is a
// clause that states the condition, as in [Namespace.Eventually].
func (n *Namespace) Consistently(t testing.TB, what string, while time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); {
		began := time.Now()
		if err := check(t.Context()); err != nil {
			t.Fatalf("it is no longer true that %s: %v\n%s", what, err, Clip(n.Describe()))
		}
		time.Sleep(pause(time.Since(began)))
	}
}

// EventuallyIcecream waits until check returns nil for the Icecream, and returns the
// Icecream.
func (n *Namespace) EventuallyIcecream(t testing.TB, name, what string, check func(*v1alpha1.Icecream) error) *v1alpha1.Icecream {
	t.Helper()
	var got *v1alpha1.Icecream
	n.Eventually(t, fmt.Sprintf("Icecream %q %s", name, what), func(ctx context.Context) (err error) {
		if got, err = n.Icecreams().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(got)
	})
	return got
}

// EventuallyReady waits until the Icecream is Ready with its current spec.
func (n *Namespace) EventuallyReady(t testing.TB, name string) *v1alpha1.Icecream {
	t.Helper()
	return n.EventuallyIcecream(t, name, "is Ready", IsReady)
}

// EventuallyStalled waits until the Icecream is Stalled with its current spec, for the given
// reason.
func (n *Namespace) EventuallyStalled(t testing.TB, name, reason string) *v1alpha1.Icecream {
	t.Helper()
	return n.EventuallyIcecream(t, name, "is Stalled because of "+reason, IsStalled(reason))
}

// IsReady returns nil if the Icecream is Ready with its current spec. Otherwise it returns
// an error that says why not.
func IsReady(ice *v1alpha1.Icecream) error {
	ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return errors.New("it has no condition Ready")
	case ice.Status.ObservedGeneration != ice.Generation:
		return fmt.Errorf("its status describes generation %d, but its generation is %d", ice.Status.ObservedGeneration, ice.Generation)
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("condition Ready is %s: %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	return nil
}

// IsStalled returns a check that the Icecream is Stalled with its current spec, for the
// given reason.
func IsStalled(reason string) func(*v1alpha1.Icecream) error {
	return func(ice *v1alpha1.Icecream) error {
		stalled := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionStalled)
		switch {
		case stalled == nil:
			return errors.New("it has no condition Stalled")
		case ice.Status.ObservedGeneration != ice.Generation:
			return fmt.Errorf("its status describes generation %d, but its generation is %d", ice.Status.ObservedGeneration, ice.Generation)
		case stalled.Status != metav1.ConditionTrue || stalled.Reason != reason:
			return fmt.Errorf("condition Stalled is %s: %s: %s", stalled.Status, stalled.Reason, stalled.Message)
		}
		return nil
	}
}
