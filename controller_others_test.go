package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// These tests are about everyone else: servers whose messages vary, policies that
// change what is written, managers that write the same fields, and caches that trail.
// docs/guarantees.md lists them.

// webhookError is what an API server answers that cannot reach a webhook. No two
// are the same.
func webhookError(n int) error {
	return apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "w": read tcp 10.0.0.1:%d->10.0.0.9:443: read: connection reset by peer`, 40000+n))
}

// requireFew requires that something was done at most so often.
func requireFew(t *testing.T, c *cluster, what string, most int) {
	t.Helper()
	if got := c.writes()[what]; got > most {
		t.Errorf("%s: %d, want at most %d", what, got, most)
	}
}

func TestARefusalInEverNewWordsIsNoStorm(t *testing.T) {
	requests := 0
	refuse := func(verb string) func(string) error {
		return func(request string) error {
			if request != verb+" deployments" {
				return nil
			}
			requests++
			return webhookError(requests)
		}
	}
	t.Run("of a creation", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.deny = refuse("create")
			c.run(usual)
			c.has(newIcecream())
			kittest.Pass(time.Minute)
			requireFew(t, c, "create deployments", 7)
			requireFew(t, c, "update icecreams status", 7)
			equal(t, "warnings", 1, strings.Count(strings.Join(c.events(), "\n"), "DeploymentRefused"))
			c.clear()
			kittest.Pass(time.Hour)
			requireFew(t, c, "create deployments", 61)
			requireFew(t, c, "update icecreams status", 61)
			if writes := c.writes()["create deployments"]; writes < 50 {
				t.Errorf("only %d attempts in an hour", writes)
			}
			equal(t, "events of an hour", nil, c.events())
		})
	})
	t.Run("of a repair, while Pods change", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			ready(t, c)
			c.deny = refuse("patch")
			edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
			for i := range 300 {
				edit(c, "sundae-1", func(p *corev1.Pod) { p.Status.Message = fmt.Sprint(i) })
				kittest.Pass(200 * time.Millisecond)
			}
			requireFew(t, c, "patch deployments", 7)
			requireFew(t, c, "update icecreams status", 8)
		})
	})
	t.Run("of everything, for a thousand Icecreams", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.deny = refuse("create")
			c.run(usual)
			const n = 1000
			for i := range n {
				c.has(newIcecream(func(ice *v1alpha1.Icecream) {
					ice.Name = fmt.Sprintf("sundae-%d", i)
					ice.UID = types.UID("uid-of-" + ice.Name)
				}))
				kittest.Pass(time.Millisecond)
			}
			kittest.Pass(time.Minute)
			c.clear()
			kittest.Pass(10 * time.Minute)
			requireFew(t, c, "create deployments", 2*600+20)
			requireFew(t, c, "update icecreams status", 2*600+20)

			c.mu.Lock()
			c.deny = nil
			c.mu.Unlock()
			kittest.Pass(3 * time.Minute)
			equal(t, "Deployments after it was mended", n, len(c.deployments()))
		})
	})
}

// A spec that changes has the write tried at once, whatever was refused before.
func TestAnEditEndsThePatience(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		c.deny = func(request string) error {
			if request == "patch deployments" {
				return apierrors.NewForbidden(deploymentsGVR.GroupResource(), "sundae", errors.New("no chocolate"))
			}
			return nil
		}
		edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
		kittest.Pass(10 * time.Minute)
		c.mu.Lock()
		c.deny = nil
		c.mu.Unlock()
		edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/strawberry:1" })
		kittest.Pass(time.Second)
		equal(t, "image", "registry.example/strawberry:1", c.deployment("sundae").Spec.Template.Spec.Containers[0].Image)
	})
}

// fight has somebody put a field back whenever the controller has repaired it.
func fight(c *cluster, d time.Duration) {
	const pause = 50 * time.Millisecond
	for range d / pause {
		if *c.deployment("sundae").Spec.Replicas == 2 {
			c.mu.Lock()
			before, err := c.trackers[deploymentsGVR].Get(deploymentsGVR, namespace, "sundae")
			if err != nil {
				c.t.Error(err)
			}
			after := before.DeepCopyObject().(*appsv1.Deployment)
			after.Spec.Replicas = ptr.To[int32](9)
			c.update(deploymentsGVR, before, after)
			c.mu.Unlock()
		}
		kittest.Pass(pause)
	}
}

func TestAFightIsSlowAndNamesTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		fight(c, time.Minute)
		requireFew(t, c, "patch deployments", 8)
		requireFew(t, c, "update icecreams status", 4)
		equal(t, "status", "Reconciling (DeploymentContested), 2 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		says := `What the controller writes keeps being undone, last by "cluster" in spec.replicas of Deployment "sundae"; it waits longer each time before it repairs that`
		equal(t, "message", says, c.icecream("sundae").Status.Conditions[0].Message)
		var warnings []string
		for _, event := range c.events() {
			if strings.HasPrefix(event, "Warning") {
				warnings = append(warnings, event)
			}
		}
		equal(t, "warnings", []string{"Warning DeploymentContested: " + says}, warnings)

		c.clear()
		fight(c, 20*time.Minute)
		requireFew(t, c, "patch deployments", 8)
		equal(t, "status writes", 0, c.writes()["update icecreams status"])

		kittest.Pass(15 * time.Minute)
		d := c.deployment("sundae")
		equal(t, "replicas when it is over", 2, *d.Spec.Replicas)
		d.Status = rolledOut(d)
		c.has(d)
		kittest.Pass(time.Minute)
		equal(t, "status when it is over", isReady, saying(c.icecream("sundae")))
	})
}

// Somebody who deletes the Deployment again and again gets it back later and later.
func TestADeploymentThatIsDeletedAgainAndAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		for i := range 2 {
			c.lacks(podsGVR, fmt.Sprintf("sundae-%d", i))
		}
		for range 6000 {
			if _, exists := c.deployments()["sundae"]; exists {
				c.lacks(deploymentsGVR, "sundae")
			}
			kittest.Pass(10 * time.Millisecond)
		}
		requireFew(t, c, "create deployments", 8)
		equal(t, "status", "Reconciling (DeploymentContested), 0 available, on ", saying(c.icecream("sundae")))
		kittest.Pass(15 * time.Minute)
		equal(t, "Deployments when it is over", map[string]string{"sundae": "uid-of-sundae"}, c.deployments())
	})
}

// A policy that changes what is written has the last word: it is told once, and not
// fought.
func TestAPolicyThatChangesWhatIsWritten(t *testing.T) {
	mirror := func(d *appsv1.Deployment) {
		container := &d.Spec.Template.Spec.Containers[0]
		container.Image = strings.Replace(container.Image, "registry.example", "mirror.local", 1)
	}
	t.Run("from the beginning", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.policy = mirror
			ready(t, c)
			kittest.Pass(24 * time.Hour)
			equal(t, "writes of a day", map[string]int{}, c.writes())

			c.clear()
			edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
			kittest.Pass(time.Hour)
			equal(t, "patches for an edit", 1, c.writes()["patch deployments"])
			equal(t, "image", "mirror.local/chocolate:1", c.deployment("sundae").Spec.Template.Spec.Containers[0].Image)
		})
	})
	t.Run("after a restart", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.policy = mirror
			_, stop := c.run(usual)
			c.has(newIcecream())
			kittest.Pass(time.Second)
			c.rollOut("sundae", "node-1", "node-2")
			kittest.Pass(time.Minute)
			stop()
			c.clear()
			c.run(usual)
			kittest.Pass(24 * time.Hour)
			equal(t, "writes", map[string]int{"patch deployments": 1}, c.writes())
			equal(t, "events", nil, c.events())
			equal(t, "status", isReady, saying(c.icecream("sundae")))
		})
	})
}

// What does not reach the API server, or it has no time for, is nobody's refusal.
func TestFailuresThatAreNoRefusals(t *testing.T) {
	busy := apierrors.NewTooManyRequests("slow down", 1)
	tests := map[string]error{
		"no connection":       errors.New(`Post "https://10.96.0.1:443/apis/apps/v1/namespaces/parlor/deployments": EOF`),
		"too many requests":   busy,
		"an overloaded etcd":  &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}},
		"a timeout":           apierrors.NewTimeoutError("too slow", 1),
		"expired credentials": apierrors.NewUnauthorized("who is it?"),
	}
	for name, err := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.refuse("create deployments", err, err, err)
				c.run(usual)
				c.has(newIcecream())
				kittest.Pass(time.Minute)
				equal(t, "events", []string{saysCreated}, c.events())
				equal(t, "status writes", 1, c.writes()["update icecreams status"])
				equal(t, "reports", 3, len(c.reports()))
			})
		})
	}
}

// A webhook may deny with any code. One that stands for a cache that is behind, if
// the API server says it of an object, is a denial all the same.
func TestADenialWithTheCodeOfAConflict(t *testing.T) {
	for _, code := range []int32{http.StatusNotFound, http.StatusConflict} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				denied := &apierrors.StatusError{ErrStatus: metav1.Status{
					Status: metav1.StatusFailure, Code: code, Message: `admission webhook "w" denied the request: not today`,
				}}
				c.refuse("create deployments", denied, denied, denied)
				c.run(usual)
				c.has(newIcecream())
				kittest.Pass(time.Second)
				equal(t, "status", "Reconciling (DeploymentRefused), 0 available, on ", saying(c.icecream("sundae")))
				kittest.Pass(time.Minute)
				equal(t, "events", []string{`Warning DeploymentRefused: creating Deployment "sundae": admission webhook "w" denied the request: not today`, saysCreated}, c.events())
			})
		})
	}
}

func TestAReplicaSetThatCannotBeCreated(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Second)
		edit(c, "sundae", func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ReplicaSetCreateError",
				Message: "Failed to create new replica set: forbidden: exceeded quota",
			}}
		})
		kittest.Pass(time.Second)
		equal(t, "status", "Reconciling (ReplicaFailure), 0 available, on ", saying(c.icecream("sundae")))
		kittest.Pass(time.Minute)
		equal(t, "status after a while", "Stalled (ReplicaFailure), 0 available, on ", saying(c.icecream("sundae")))
		equal(t, "events", []string{saysCreated, "Warning ReplicaFailure: Failed to create new replica set: forbidden: exceeded quota"}, c.events())
	})
}

// Whoever wrote the status before, after one write it is what the controller says.
func TestAStatusThatSomebodyElseHasWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		edit(c, "sundae", func(ice *v1alpha1.Icecream) {
			ice.Status.Nodes = append(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: "phantom", Pods: 7})
			ice.Status.Placement = "everywhere"
		})
		for i := range 600 {
			edit(c, "sundae-1", func(p *corev1.Pod) { p.Status.Message = fmt.Sprint(i) })
			kittest.Pass(time.Second)
		}
		equal(t, "writes", map[string]int{"update icecreams status": 1}, c.writes())
		equal(t, "status", isReady, saying(c.icecream("sundae")))
		equal(t, "nodes", 2, len(c.icecream("sundae").Status.Nodes))
	})
}

// A Pod that was taken from its ReplicaSet keeps the labels of its Icecream.
func TestAPodThatIsKeptForDebugging(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		pod := podOf(c.deployment("sundae"), "sundae-debug", "node-3")
		pod.OwnerReferences = nil
		c.has(pod)
		kittest.Pass(time.Hour)
		equal(t, "writes", map[string]int{}, c.writes())
		equal(t, "status", isReady, saying(c.icecream("sundae")))
	})
}

// An Icecream that was replaced by another of its name meets the Deployment of the
// former, until the garbage collector does.
func TestTheDeploymentOfAFormerIcecream(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		c.lacks(icecreamsGVR, "sundae")
		c.has(newIcecream(func(ice *v1alpha1.Icecream) { ice.UID = "uid-of-the-next" }))
		kittest.Pass(time.Second)
		equal(t, "status", "Reconciling (DeploymentTerminating), 0 available, on ", saying(c.icecream("sundae")))
		c.lacks(podsGVR, "sundae-0")
		c.lacks(podsGVR, "sundae-1")
		kittest.Pass(time.Second)
		c.lacks(deploymentsGVR, "sundae")
		kittest.Pass(time.Second)
		equal(t, "Deployments", map[string]string{"sundae": "uid-of-the-next"}, c.deployments())
		equal(t, "events", []string{saysCreated}, c.events())
	})
}

func TestSomebodyElsesDeploymentThatIsBeingDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		held := foreign("sundae")
		held.Finalizers, held.DeletionTimestamp = []string{"example.com/hold"}, ptr.To(metav1.Now())
		c.has(held)
		c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Hour)
		equal(t, "status", "Reconciling (DeploymentTerminating), 0 available, on ", saying(c.icecream("sundae")))
		equal(t, "events", nil, c.events())
		c.lacks(deploymentsGVR, "sundae")
		kittest.Pass(time.Second)
		equal(t, "Deployments", map[string]string{"sundae": "uid-of-sundae"}, c.deployments())
	})
}

// stumble has one Pod of two be not ready, and back again.
func stumble(c *cluster, isReady bool, edits ...func(*corev1.Pod)) {
	edit(c, "sundae-1", func(pod *corev1.Pod) {
		status := corev1.ConditionFalse
		if isReady {
			status = corev1.ConditionTrue
		}
		pod.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now().Rfc3339Copy()}
		for _, edit := range edits {
			edit(pod)
		}
	})
	edit(c, "sundae", func(d *appsv1.Deployment) {
		d.Status = rolledOut(d)
		if !isReady {
			d.Status.ReadyReplicas, d.Status.AvailableReplicas = 1, 1
		}
	})
}

func TestADeploymentThatIsPausedAtRest(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		edit(c, "sundae", func(d *appsv1.Deployment) { d.Spec.Paused = true })
		stumble(c, false)
		kittest.Pass(usual.StatusWindow + time.Second)
		equal(t, "status", "Reconciling (Progressing), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		stumble(c, true)
		kittest.Pass(time.Second)
		equal(t, "status", isReady, saying(c.icecream("sundae")))
	})
}

// container has the Pod's only container be in a state, after it has ended.
func container(state corev1.ContainerState, restarts int32, ended time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "icecream", RestartCount: restarts, State: state,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.NewTime(ended)}},
		}}
	}
}

func TestAnOldCrashIsNoNews(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		weeksAgo := time.Now().Add(-21 * 24 * time.Hour)
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(weeksAgo)}}
		stumble(c, false, container(running, 1, weeksAgo))
		kittest.Pass(2 * time.Minute)
		equal(t, "status", "Reconciling (Progressing), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		equal(t, "events", nil, c.events())
	})
}

// A container without a readiness probe is ready for a moment in each round of its
// crash loop.
func TestACrashLoopIsToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
		for round := range int32(10) {
			stumble(c, false, container(waiting, round+1, time.Now()))
			kittest.Pass(time.Duration(round+1) * 10 * time.Second)
			stumble(c, true, container(running, round+1, time.Now()))
			kittest.Pass(20 * time.Second)
		}
		equal(t, "status", "Stalled (CrashLoopBackOff), 2 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		equal(t, "events", []string{`Warning CrashLoopBackOff: Pod "sundae-1", container "icecream": has ended with exit code 137 (OOMKilled)`}, c.events())
		kittest.Pass(time.Minute)
		equal(t, "status when it has run for a while", isReady, saying(c.icecream("sundae")))
	})
}

// The clock of a node may be ahead or behind.
func TestNodeClocksShiftNothing(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				ready(t, c)
				pull := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}}
				stumble(c, false, container(pull, 0, time.Now()), func(pod *corev1.Pod) {
					pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(skew))
				})
				kittest.Pass(50 * time.Second)
				equal(t, "status", "Reconciling (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
				kittest.Pass(11 * time.Second)
				equal(t, "status after a minute", "Stalled (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
			})
		})
	}
}

// A process that begins anew leaves what is Stalled Stalled.
func TestARestartWritesNothingAboutWhatIsStalled(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		_, stop := c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Second)
		c.rollOut("sundae", "node-1", "node-2")
		pull := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}}
		stumble(c, false, container(pull, 0, time.Now()))
		kittest.Pass(10 * time.Minute)
		equal(t, "status", "Stalled (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		stop()
		c.clear()
		c.run(usual)
		kittest.Pass(time.Hour)
		equal(t, "writes", map[string]int{}, c.writes())
	})
}

// Somebody who edits the spec, or has Pods come and go, all the time causes a few
// writes a minute and no more.
func TestNobodyCausesManyWrites(t *testing.T) {
	t.Run("by flapping", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			ready(t, c)
			for i := range 1200 {
				stumble(c, i%2 == 1)
				kittest.Pass(500 * time.Millisecond)
			}
			requireFew(t, c, "update icecreams status", 30+60)
		})
	})
	t.Run("by editing", func(t *testing.T) {
		inBubble(t, func(t *testing.T, c *cluster) {
			ready(t, c)
			for i := range int32(1200) {
				edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(2 + i%7) })
				kittest.Pass(500 * time.Millisecond)
			}
			writes := c.writes()
			if all := writes["patch deployments"] + writes["update icecreams status"]; all > 30+61 {
				t.Errorf("%v, want a few a minute", writes)
			}
			kittest.Pass(time.Minute)
			equal(t, "replicas in the end", 2+1199%7, *c.deployment("sundae").Spec.Replicas)
		})
	})
}

// A namespace that is being deleted refuses what would be created in it, for as long as that
// takes. Nobody is at fault, so it is waited for.
func TestANamespaceThatIsBeingDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		terminating := apierrors.NewForbidden(deploymentsGVR.GroupResource(), "sundae", errors.New("because it is being terminated"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		c.deny = func(request string) error {
			if request == "create deployments" {
				return terminating
			}
			return nil
		}
		c.lacks(deploymentsGVR, "sundae")
		for i := range 300 {
			edit(c, "sundae-1", func(p *corev1.Pod) { p.Status.Message = fmt.Sprint(i) })
			kittest.Pass(200 * time.Millisecond)
		}
		requireFew(t, c, "create deployments", 7)
		requireFew(t, c, "update icecreams status", 3)
		reads := 0
		for _, action := range c.client.Actions() {
			if action.GetVerb() == "get" {
				reads++
			}
		}
		if reads > 7 {
			t.Errorf("the Icecream was read %d times", reads)
		}
		equal(t, "status", "Reconciling (DeploymentTerminating), 0 available, on ", saying(c.icecream("sundae")))
		equal(t, "events", nil, c.events())
		equal(t, "reports", nil, c.reports())
	})
}
