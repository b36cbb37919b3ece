package script_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func newCluster(t *testing.T) (*script.Cluster, kubernetes.Interface) {
	t.Helper()
	c := script.New(t, apiserver.Secrets())
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c, kube
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kitchen", Name: name}}
}

// A watch that is held up shows nothing of what happens until it is released.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kube := newCluster(t)
		changes, err := kube.CoreV1().Secrets("kitchen").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		defer changes.Stop()
		c.Hold("secrets")
		c.Set(newSecret("recipe"))
		script.Edit(c, "kitchen", "recipe", func(s *corev1.Secret) { s.Data = map[string][]byte{"a": nil} })
		script.Delete[corev1.Secret](c, "kitchen", "recipe", metav1.DeletePropagationBackground)
		synctest.Wait()
		select {
		case change := <-changes.ResultChan():
			t.Errorf("held, it shows %v", change)
		default:
		}
		c.Release("secrets")
		for _, want := range []string{"ADDED", "MODIFIED", "DELETED"} {
			if change := <-changes.ResultChan(); string(change.Type) != want {
				t.Errorf("%s, want %s", change.Type, want)
			}
		}
	})
}

// Somebody stores an object with its status in one step, so that no client acts between the two.
func TestSetIsOneStep(t *testing.T) {
	c := script.New(t, apiserver.Pods())
	c.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kitchen", Name: "cook"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	script.Edit(c, "kitchen", "cook", func(p *corev1.Pod) { p.Labels, p.Status.Phase = map[string]string{"a": "b"}, corev1.PodFailed })
	if pod := script.Get[corev1.Pod](c, "kitchen", "cook"); pod.Labels["a"] != "b" || pod.Status.Phase != corev1.PodFailed {
		t.Errorf("it is %v", pod)
	}
	kube := kubernetes.NewForConfigOrDie(c.Config())
	changes, err := kube.CoreV1().Pods("kitchen").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	for _, want := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed} {
		if change := <-changes.ResultChan(); change.Object.(*corev1.Pod).Status.Phase != want {
			t.Errorf("%s %v, want %s", change.Type, change.Object, want)
		}
	}
}

// Requests fail as the script says, and are counted whatever becomes of them.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kube := newCluster(t)
		create := func(name string) error {
			_, err := kube.CoreV1().Secrets("kitchen").Create(t.Context(), newSecret(name), metav1.CreateOptions{})
			return err
		}
		c.Fail("create secrets", apierrors.NewForbidden(corev1.Resource("secrets"), "recipe", errors.New("not today")), script.ErrLost, nil)
		if err := create("recipe"); !apierrors.IsForbidden(err) {
			t.Errorf("the first one returned %v", err)
		}
		if err := create("recipe"); !errors.Is(err, script.ErrLost) {
			t.Errorf("the lost one returned %v", err)
		}
		if err := create("recipe"); !apierrors.IsAlreadyExists(err) {
			t.Errorf("the one after returned %v", err)
		}
		c.Mutate(func(a apiserver.Admission) { a.Object.SetLabels(map[string]string{"by": a.Verb}) })
		if err := create("menu"); err != nil || script.Get[corev1.Secret](c, "kitchen", "menu").Labels["by"] != "create" {
			t.Errorf("the policy has changed nothing: %v", err)
		}
		c.Refuse(errors.New)
		if err := create("other"); err == nil || !strings.Contains(err.Error(), "create secrets") {
			t.Errorf("the refused one returned %v", err)
		}
		if c.Writes()["create secrets"] != 5 {
			t.Errorf("%v, want 5", c.Writes())
		}
	})
}
