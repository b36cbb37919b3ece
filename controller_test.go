package main

import (
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// Here, one controller meets a scripted cluster: first what happens to an Icecream, then what
// everyone else does: servers whose messages vary, policies that change what is written, managers
// that write the same fields, and caches that trail. docs/guarantees.md lists it.

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a
	// synctest bubble's clock is decades away from the one outside.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{keepReport}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

const (
	namespace = "parlor"

	creates, patches, statusWrites = "create deployments", "patch deployments", "update icecreams status"

	isReady     = "Ready (Available), 2 available, on node-1 (1), node-2 (1)"
	isCreated   = "Reconciling (Progressing), 0 available, on "
	saysCreated = `Normal DeploymentCreated Created Deployment "sundae"`
	saysUpdated = `Normal DeploymentUpdated Updated Deployment "sundae"`
	saysSynced  = "Normal Synced 1 Pod on node-1, 1 Pod on node-2; Icecream synced successfully"
	saysTaken   = `Warning ErrResourceExists Deployment "sundae" already exists and is not owned by this Icecream; delete it, or use another spec.deploymentName`
	saysPull    = `Warning ImagePullBackOff Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": denied`
)

var usual = Config{StatusWindow: 2 * time.Second}

// --- What happens to an Icecream -----------------------------------------------

func TestFromCreationToReadyAndThenSilence(t *testing.T) {
	inBubble(t, func(c *cluster) {
		stop := c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Second)
		c.is(isCreated)
		equal(c, "Deployments", []string{"sundae of sundae"}, c.deployments())

		c.rollOut()
		kittest.Pass(time.Second)
		c.is(isReady)
		c.says(saysCreated, saysSynced)

		c.ForgetRequests()
		kittest.Pass(24 * time.Hour)
		c.wrote(nil)

		stop()
		c.run(usual)
		kittest.Pass(24 * time.Hour)
		c.wrote(nil)
		c.says()
		equal(c, "reports", nil, c.reports())
	})
}

func TestDriftIsRepairedAndTheRestLeftAlone(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.editDeployment(func(d *appsv1.Deployment) {
			d.Spec.Replicas = ptr.To[int32](9)
			d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "mesh:1"}}, d.Spec.Template.Spec.Containers...)
			d.Annotations = map[string]string{"team": "parlor"}
		})
		kittest.Pass(time.Second)
		d := c.deployment()
		equal(c, "replicas", 2, *d.Spec.Replicas)
		equal(c, "containers", 2, len(d.Spec.Template.Spec.Containers))
		equal(c, "annotations of others", map[string]string{"team": "parlor"}, d.Annotations)
		equal(c, "patches", 1, c.Requests(patches))
		c.says(saysUpdated)
	})
}

func TestANameThatIsTaken(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.Set(foreign())
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(9 * time.Minute) // Somebody may be about to delete it, Helm for example.
		c.is("Reconciling (ErrResourceExists), 0 available, on ")
		kittest.Pass(time.Hour)
		c.is("Stalled (ErrResourceExists), 0 available, on ")
		equal(c, "Deployments", []string{"sundae of nobody"}, c.deployments())
		c.wrote(map[string]int{statusWrites: 2})
		c.says(saysTaken)

		c.deleteDeployment()
		kittest.Pass(time.Second)
		equal(c, "Deployments, when it has gone", []string{"sundae of sundae"}, c.deployments())
		c.rollOut()
		kittest.Pass(10 * time.Second)
		c.is(isReady)
		c.says(saysCreated, saysSynced)
	})
}

func TestAnInvalidSpec(t *testing.T) {
	inBubble(t, func(c *cluster) {
		invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "sundae", field.ErrorList{field.Required(field.NewPath("spec"), "")})
		c.Refuse(refuseAll(creates, invalid))
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(10 * time.Minute)
		c.is("Stalled (InvalidSpec), 0 available, on ")
		c.atMost(creates, 10)
		c.says(fmt.Sprintf("Warning InvalidSpec creating Deployment %q: %v", "sundae", invalid))

		c.Refuse(nil) // A policy has been mended, which the controller does not see.
		c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
		kittest.Pass(time.Second)
		equal(c, "Deployments after an edit", []string{"sundae of sundae"}, c.deployments())
		c.is(isCreated)
	})
}

// Nothing is created for an Icecream that is being deleted, nor repaired.
func TestDeletionIsLeftToTheGarbageCollector(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		script.Delete[v1alpha1.Icecream](c.Cluster, namespace, "sundae", metav1.DeletePropagationForeground)
		kittest.Pass(time.Second)
		c.deleteDeployment()
		kittest.Pass(time.Second)
		c.edit(func(ice *v1alpha1.Icecream) { ice.Finalizers = nil })
		kittest.Pass(time.Hour)
		equal(c, "Icecreams", 0, len(script.All[v1alpha1.Icecream](c.Cluster)))
		equal(c, "Deployments", nil, c.deployments())
		c.wrote(nil)
		c.says()
	})
}

// A rollout of many steps is reported in few, and its end at once.
func TestProgressIsReportedOncePerWindow(t *testing.T) {
	inBubble(t, func(c *cluster) {
		config := usual
		config.StatusWindow = 10 * time.Second
		c.run(config)
		const replicas = 60
		c.Set(newIcecream("sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](replicas) }))
		kittest.Pass(time.Second)
		c.ForgetRequests()
		step := func(i int32) {
			d := c.deployment()
			d.Status = rolledOut(d, i)
			c.Set(d)
		}
		for i := range int32(replicas) {
			c.Set(c.pod(fmt.Sprintf("sundae-%d", i), "node-1"))
			if i < replicas-1 {
				step(i + 1)
				kittest.Pass(500 * time.Millisecond)
			}
		}
		if got := c.Requests(statusWrites); got < 2 || got > 3 {
			c.t.Errorf("%d status writes in 30 s, want one every 10 s", got)
		}
		c.ForgetRequests()
		step(replicas)
		kittest.Pass(200 * time.Millisecond)
		equal(c, "status writes at the end", 1, c.Requests(statusWrites))
		c.is("Ready (Available), 60 available, on node-1 (60)")
	})
}

// A trouble becomes a stall by the mere passing of time, on the clock of this process alone: that
// of a node may be ahead or behind. A process that begins anew leaves it at that.
func TestAStallNeedsNoEvent(t *testing.T) {
	for _, skew := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			inBubble(t, func(c *cluster) {
				stop := c.ready()
				c.stumble(false, container(cannotPull, 0, time.Now()), func(pod *corev1.Pod) {
					pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(skew))
				})
				kittest.Pass(50 * time.Second)
				c.is("Reconciling (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)")
				kittest.Pass(10 * time.Minute)
				c.is("Stalled (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)")
				c.says(saysPull)

				c.ForgetRequests()
				kittest.Pass(24 * time.Hour)
				stop()
				c.run(usual)
				kittest.Pass(time.Hour)
				c.wrote(nil)
			})
		})
	}
}

// The message of a crash can differ each time. That is no news: no event, and a status every five
// minutes.
func TestAMessageThatDiffersEachTime(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		for round := range 60 {
			crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: fmt.Sprintf("process %d has melted", round)}}
			c.stumble(false, container(crashed, int32(round), time.Now()))
			kittest.Pass(20 * time.Second)
		}
		c.is("Stalled (CrashLoopBackOff), 1 available, on node-1 (1), node-2 (1)")
		c.says(`Warning CrashLoopBackOff Pod "sundae-1", container "icecream": exited with code 1 (Error): process 0 has melted`)
		c.atMost(statusWrites, 2+20/5)
		if message := c.icecream().Status.Conditions[0].Message; strings.Contains(message, "process 0 ") || strings.Contains(message, "process 1 ") {
			t.Errorf("it still says %s", message)
		}
	})
}

func TestADeploymentThatIsPausedAtRest(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.editDeployment(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		c.stumble(false)
		kittest.Pass(usual.StatusWindow + time.Second)
		c.is("Reconciling (Progressing), 1 available, on node-1 (1), node-2 (1)")
		c.stumble(true)
		kittest.Pass(time.Second)
		c.is(isReady)
	})
}

func TestAnOldCrashIsNoNews(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		weeksAgo := time.Now().Add(-21 * 24 * time.Hour)
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(weeksAgo)}}
		c.stumble(false, container(running, 1, weeksAgo))
		kittest.Pass(50 * time.Second)
		c.is("Reconciling (Progressing), 1 available, on node-1 (1), node-2 (1)")
		kittest.Pass(time.Minute)
		c.is("Reconciling (PodNotReady), 1 available, on node-1 (1), node-2 (1)")
		c.says()
	})
}

// A container without a readiness probe is ready for a moment in each round of its
// crash loop.
func TestACrashLoopIsToldOnce(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
		for round := range int32(10) {
			c.stumble(false, container(waiting, round+1, time.Now()))
			kittest.Pass(time.Duration(round+1) * 10 * time.Second)
			c.stumble(true, container(running, round+1, time.Now()))
			kittest.Pass(20 * time.Second)
		}
		c.is("Stalled (CrashLoopBackOff), 2 available, on node-1 (1), node-2 (1)")
		c.says(`Warning CrashLoopBackOff Pod "sundae-1", container "icecream": exited with code 137 (OOMKilled)`)
		kittest.Pass(time.Minute)
		c.is(isReady)
	})
}

// Pods count whose labels and owner say so.
func TestPodsOfOthers(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		// Of an Icecream that nobody knows, or does not know yet.
		stray := c.pod("stray", "node-3")
		stray.Labels[icecream.LabelIcecream] = "split"
		c.Set(stray)
		// Taken from its ReplicaSet, with the labels of its Icecream.
		kept := c.pod("sundae-debug", "node-3")
		kept.OwnerReferences = nil
		c.Set(kept)
		kittest.Pass(time.Hour)
		c.wrote(nil)
		c.is(isReady)

		// A Pod that changes sides concerns both.
		script.Edit(c.Cluster, namespace, "sundae-1", func(pod *corev1.Pod) { pod.Labels[icecream.LabelIcecream] = "split" })
		kittest.Pass(time.Minute)
		c.is("Reconciling (Progressing), 2 available, on node-1 (1)")
		equal(c, "reports", nil, c.reports())
	})
}

// --- Caches that trail, and requests that fail ---------------------------------

// What the caches have not seen yet is not done again, however often one looks.
func TestOwnWritesAreWaitedFor(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.run(usual)
		c.Hold("deployments")
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Second)
		for i := range 5 {
			c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(int32(i)) })
			kittest.Pass(time.Second)
		}
		equal(c, "creations", 1, c.Requests(creates))
		equal(c, "reports", nil, c.reports())

		c.Release("deployments")
		kittest.Pass(9 * time.Minute) // the longest back-off is a minute, and the Deployment controller may take ten
		equal(c, "replicas", 4, *c.deployment().Spec.Replicas)
		c.wrote(map[string]int{creates: 1, patches: 1, statusWrites: 1})
		c.says(saysCreated, saysUpdated)
	})
}

// Answers that only say that the caches are behind are neither reported nor told.
func TestAnswersThatAreNoNews(t *testing.T) {
	icecreams := v1alpha1.Resource("icecreams")
	tests := []struct {
		name    string
		request string
		answer  error
	}{
		{"the Deployment exists", creates, apierrors.NewAlreadyExists(appsv1.Resource("deployments"), "sundae")},
		{"the Icecream has gone", statusWrites, apierrors.NewNotFound(icecreams, "sundae")},
		{"the Icecream is another", statusWrites, apierrors.NewConflict(icecreams, "sundae", errors.New("a precondition failed"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(c *cluster) {
				c.Fail(tt.request, tt.answer, tt.answer, tt.answer)
				c.run(usual)
				c.Set(newIcecream("sundae"))
				kittest.Pass(5 * time.Minute)
				c.rollOut()
				kittest.Pass(5 * time.Minute)
				c.is(isReady)
				c.says(saysCreated, saysSynced)
				equal(c, "reports", nil, c.reports())
			})
		})
	}
}

// A server that cannot be reached is reported and tried again; the Icecream's
// status cannot say anything then.
func TestAStatusThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.Fail(statusWrites, errors.New("no route to host"), errors.New("no route to host"))
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Minute)
		c.is(isCreated)
		equal(c, "reports", 2, len(c.reports()))
		equal(c, "creations", 1, c.Requests(creates))
	})
}

// The API server refuses each status of an Icecream in which a field that a rule of the schema
// reads has another type. That is told, and not tried all the time.
func TestAStatusThatIsRefused(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.Refuse(refuseAll(statusWrites, apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.GroupName, Kind: "Icecream"}, "sundae", nil)))
		c.Set(foreign())
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Hour)
		c.atMost(statusWrites, 20)
		equal(c, "reports", true, len(c.reports()) > 0)
		equal(c, "event", saysTaken, c.events()[0])
	})
}

func TestAStatusWhoseAnswerIsLostIsNotWrittenAgain(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.Fail(statusWrites, script.ErrLost)
		c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](1) })
		kittest.Pass(100 * time.Millisecond)
		c.Hold("icecreams") // the cache is told later than the retry comes
		kittest.Pass(10 * time.Second)
		version := c.icecream().ResourceVersion
		// Further attempts were refused, as they were made from the status before.
		c.atMost(statusWrites, 10)
		c.Release("icecreams")
		kittest.Pass(10 * time.Second)
		c.atMost(statusWrites, 10)
		equal(c, "version", version, c.icecream().ResourceVersion)
	})
}

// The cache may still show an Icecream that is no longer what it was. Then
// nothing is created or adopted for it.
func TestNothingIsDoneForIcecreamsOfThePast(t *testing.T) {
	changes := map[string]func(*cluster){
		"has gone": (*cluster).deleteIcecream,
		"has been made anew": func(c *cluster) {
			c.deleteIcecream()
			c.Set(newIcecream("sundae"))
		},
		"is being deleted": func(c *cluster) {
			script.Delete[v1alpha1.Icecream](c.Cluster, namespace, "sundae", metav1.DeletePropagationForeground)
		},
		"has been edited": func(c *cluster) {
			c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](5) })
		},
	}
	occasions := map[string]struct {
		happens func(*cluster)
		want    []string
	}{
		"to create again": {(*cluster).deleteDeployment, nil},
		"to adopt": {func(c *cluster) {
			c.editDeployment(func(d *appsv1.Deployment) { d.OwnerReferences = nil })
		}, []string{"sundae of nobody"}},
	}
	for change, happens := range changes {
		for occasion, tt := range occasions {
			t.Run(change+", "+occasion, func(t *testing.T) {
				inBubble(t, func(c *cluster) {
					c.ready()
					c.Hold("icecreams")
					happens(c)
					tt.happens(c)
					kittest.Pass(time.Hour)
					equal(c, "Deployments", tt.want, c.deployments())
					equal(c, "reports", nil, c.reports())
				})
			})
		}
	}
}

// What does not reach the API server, or it has no time for, is nobody's refusal.
func TestFailuresThatAreNoRefusals(t *testing.T) {
	tests := map[string]error{
		"no connection":       errors.New("EOF"),
		"too many requests":   apierrors.NewTooManyRequests("slow down", 1),
		"an overloaded etcd":  &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}},
		"a timeout":           apierrors.NewTimeoutError("too slow", 1),
		"expired credentials": apierrors.NewUnauthorized("who is it?"),
	}
	for name, err := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(c *cluster) {
				c.Fail(creates, err, err, err)
				c.run(usual)
				c.Set(newIcecream("sundae"))
				kittest.Pass(time.Minute)
				c.says(saysCreated)
				c.wrote(map[string]int{creates: 4, statusWrites: 1})
			})
		})
	}
}

// --- Refusals and policies -----------------------------------------------------

// A refusal that is in new words each time, such as of an API server that cannot reach a webhook,
// is no storm, of nothing.
func TestARefusalInEverNewWordsIsNoStorm(t *testing.T) {
	refuse := func(c *cluster, requested string) {
		n := 40000
		c.Refuse(func(request string) error {
			if request != requested {
				return nil
			}
			n++
			return apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "w": read tcp 10.0.0.1:%d->10.0.0.9:443: read: connection reset by peer`, n))
		})
	}
	t.Run("of a creation", func(t *testing.T) {
		inBubble(t, func(c *cluster) {
			refuse(c, creates)
			c.run(usual)
			c.Set(newIcecream("sundae"))
			kittest.Pass(time.Minute)
			c.atMost(creates, 7)
			c.atMost(statusWrites, 7)
			equal(c, "warnings", 1, strings.Count(strings.Join(c.events(), "\n"), "DeploymentRefused"))
			c.ForgetRequests()
			kittest.Pass(time.Hour)
			c.atMost(creates, 13)
			c.atMost(statusWrites, 13)
			if attempts := c.Requests(creates); attempts < 10 {
				c.t.Errorf("only %d attempts in an hour", attempts)
			}
			c.says()
		})
	})
	t.Run("of a repair, while Pods change", func(t *testing.T) {
		inBubble(t, func(c *cluster) {
			c.ready()
			refuse(c, patches)
			c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
			c.fidget(300, 200*time.Millisecond)
			c.atMost(patches, 7)
			c.atMost(statusWrites, 8)
		})
	})
	t.Run("of everything, for a thousand Icecreams", func(t *testing.T) {
		inBubble(t, func(c *cluster) {
			refuse(c, creates)
			c.run(usual)
			const n = 1000
			for i := range n {
				c.Set(newIcecream(fmt.Sprintf("sundae-%d", i)))
				kittest.Pass(time.Millisecond)
			}
			kittest.Pass(3 * time.Minute)
			c.ForgetRequests()
			kittest.Pass(10 * time.Minute)
			if writes := c.Requests(creates) + c.Requests(statusWrites); writes > n*10 {
				c.t.Errorf("%d writes in ten minutes, want at most one per minute for each", writes)
			}
			c.Refuse(nil)
			kittest.Pass(6 * time.Minute)
			equal(c, "Deployments after it was mended", n, len(c.deployments()))
		})
	})
}

// refuseAll refuses each request of that name.
func refuseAll(name string, err error) func(string) error {
	return func(request string) error {
		if request == name {
			return err
		}
		return nil
	}
}

// A spec that changes has the write tried at once, whatever was refused before.
func TestAnEditEndsThePatience(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.Refuse(refuseAll(patches, apierrors.NewForbidden(appsv1.Resource("deployments"), "sundae", errors.New("no chocolate"))))
		c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
		kittest.Pass(10 * time.Minute)
		c.Refuse(nil)
		c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/strawberry:1" })
		kittest.Pass(time.Second)
		equal(c, "image", "registry.example/strawberry:1", c.deployment().Spec.Template.Spec.Containers[0].Image)
	})
}

// An edit that is refused stops neither people nor an autoscaler from scaling, and an edit of both
// is one rollout.
func TestARefusedEditStopsNoScaling(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.Admit(func(a apiserver.Admission) error {
			if d, ok := a.Object.(*appsv1.Deployment); ok && strings.Contains(d.Spec.Template.Spec.Containers[0].Image, "chocolate") {
				return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, errors.New("no chocolate"))
			}
			return nil
		})
		c.edit(func(ice *v1alpha1.Icecream) {
			ice.Spec.Image, ice.Spec.Replicas = "registry.example/chocolate:1", ptr.To[int32](3)
		})
		kittest.Pass(time.Second)
		equal(c, "replicas of the same edit", 3, *c.deployment().Spec.Replicas)
		for replicas := range int32(8) {
			c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(replicas) })
			kittest.Pass(5 * time.Second)
			equal(c, "replicas", replicas, *c.deployment().Spec.Replicas)
		}
		equal(c, "image", "registry.example/vanilla:1", c.deployment().Spec.Template.Spec.Containers[0].Image)
		c.is("Reconciling (DeploymentRefused), 2 available, on node-1 (1), node-2 (1)")

		c.Admit(nil)
		c.ForgetRequests()
		c.edit(func(ice *v1alpha1.Icecream) {
			ice.Spec.Image, ice.Spec.Replicas = "registry.example/mint:1", ptr.To[int32](4)
		})
		kittest.Pass(time.Second)
		equal(c, "patches for an edit of both", 1, c.Requests(patches))
		equal(c, "replicas", 4, *c.deployment().Spec.Replicas)
		equal(c, "image", "registry.example/mint:1", c.deployment().Spec.Template.Spec.Containers[0].Image)
	})
}

// A webhook chooses the code and the details of its denial: those of a stale cache, of expired credentials
// or of a server that is away. It is told all the same, and stops no scaling.
func TestADenialWithAnyCode(t *testing.T) {
	for code, reason := range map[int32]metav1.StatusReason{
		http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
		http.StatusNotFound:            metav1.StatusReasonNotFound,
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: "",
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, func(c *cluster) {
				c.ready()
				c.Admit(func(a apiserver.Admission) error {
					if d, ok := a.Object.(*appsv1.Deployment); ok && strings.Contains(d.Spec.Template.Spec.Containers[0].Image, "chocolate") {
						return &apierrors.StatusError{ErrStatus: metav1.Status{
							Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "w" denied the request: not today`,
							Details: &metav1.StatusDetails{Group: "apps", Kind: "deployments", Name: "sundae"},
						}}
					}
					return nil
				})
				c.edit(func(ice *v1alpha1.Icecream) {
					ice.Spec.Image, ice.Spec.Replicas = "registry.example/chocolate:1", ptr.To[int32](3)
				})
				kittest.Pass(2 * time.Second)
				c.is("Reconciling (DeploymentRefused), 2 available, on node-1 (1), node-2 (1)")
				equal(c, "replicas", 3, *c.deployment().Spec.Replicas)
				equal(c, "image", "registry.example/vanilla:1", c.deployment().Spec.Template.Spec.Containers[0].Image)
				kittest.Pass(time.Hour)
				c.atMost(patches, 30)
				c.says(saysUpdated, `Warning DeploymentRefused updating Deployment "sundae": admission webhook "w" denied the request: not today`)
			})
		})
	}
}

// A policy that changes what is written has the last word: it is told once, and not fought. A
// process that begins anew asks once more.
func TestAPolicyThatChangesWhatIsWritten(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.Mutate(func(a apiserver.Admission) {
			if d, ok := a.Object.(*appsv1.Deployment); ok {
				image := &d.Spec.Template.Spec.Containers[0].Image
				*image = strings.Replace(*image, "registry.example", "mirror.local", 1)
			}
		})
		stop := c.ready()
		kittest.Pass(24 * time.Hour)
		c.wrote(nil)

		c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
		kittest.Pass(time.Hour)
		equal(c, "patches for an edit", 1, c.Requests(patches))
		equal(c, "image", "mirror.local/chocolate:1", c.deployment().Spec.Template.Spec.Containers[0].Image)

		c.rollOut()
		kittest.Pass(time.Minute)
		c.is(isReady)
		stop()
		c.events()
		c.ForgetRequests()
		c.run(usual)
		kittest.Pass(24 * time.Hour)
		c.wrote(map[string]int{patches: 1})
		c.says()
		c.is(isReady)
	})
}

// A namespace that is being deleted refuses what would be created in it, for as long as that
// takes. Nobody is at fault, so it is waited for.
func TestANamespaceThatIsBeingDeleted(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		script.Delete[corev1.Namespace](c.Cluster, "", namespace, metav1.DeletePropagationBackground)
		c.deleteDeployment()
		c.fidget(300, 200*time.Millisecond)
		c.atMost(creates, 7)
		c.atMost(statusWrites, 3)
		c.atMost("get icecreams", 7)
		c.is("Reconciling (DeploymentTerminating), 0 available, on ")
		c.says()
		equal(c, "reports", nil, c.reports())
	})
}

// --- Others who write the same objects -----------------------------------------

// fight has somebody put a field back whenever the controller has repaired it.
func (c *cluster) fight(d time.Duration) {
	const pause = 50 * time.Millisecond
	for range d / pause {
		if *c.deployment().Spec.Replicas == 2 {
			c.editDeployment(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) })
		}
		kittest.Pass(pause)
	}
}

// Who it is, only a real API server knows: contested.txtar in test/e2e.
func TestAFightIsSlowAndTold(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.fight(time.Minute)
		c.atMost(patches, 8)
		c.atMost(statusWrites, 4)
		c.is("Reconciling (DeploymentContested), 2 available, on node-1 (1), node-2 (1)")
		says := `Changes to spec.replicas of Deployment "sundae" keep being reverted, last by another client; retrying with back-off`
		equal(c, "message", says, c.icecream().Status.Conditions[0].Message)
		warnings := slices.DeleteFunc(c.events(), func(event string) bool { return !strings.HasPrefix(event, "Warning") })
		equal(c, "warnings", []string{"Warning DeploymentContested " + says}, warnings)

		c.ForgetRequests()
		c.fight(20 * time.Minute)
		c.atMost(patches, 8)
		equal(c, "status writes", 1, c.Requests(statusWrites)) // It is Stalled.

		kittest.Pass(15 * time.Minute)
		equal(c, "replicas when it is over", 2, *c.deployment().Spec.Replicas)
		c.editDeployment(func(d *appsv1.Deployment) { d.Status = rolledOut(d, 2) })
		kittest.Pass(time.Minute)
		c.is(isReady)
	})
}

// Somebody who deletes the Deployment again and again gets it back later and later.
func TestADeploymentThatIsDeletedAgainAndAgain(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.deletePods()
		for range 6000 {
			if len(c.deployments()) > 0 {
				c.deleteDeployment()
			}
			kittest.Pass(10 * time.Millisecond)
		}
		c.atMost(creates, 8)
		c.is("Reconciling (DeploymentContested), 0 available, on ")
		kittest.Pass(15 * time.Minute)
		equal(c, "Deployments when it is over", []string{"sundae of sundae"}, c.deployments())
	})
}

// The controller's next write replaces a status that somebody else has written.
func TestAStatusThatSomebodyElseHasWritten(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.edit(func(ice *v1alpha1.Icecream) {
			ice.Status.Nodes = append(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: "phantom", Pods: 7})
			ice.Status.Placement = "everywhere"
			ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{Type: "Melting"})
		})
		c.fidget(600, time.Second)
		c.wrote(map[string]int{statusWrites: 1})
		c.is(isReady)
		equal(c, "nodes", 2, len(c.icecream().Status.Nodes))
		equal(c, "conditions", 3, len(c.icecream().Status.Conditions))

		c.edit(func(ice *v1alpha1.Icecream) {
			ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{Type: "Melting"})
		})
		c.ForgetRequests()
		kittest.Pass(time.Hour)
		c.wrote(nil)
	})
}

// An Icecream that was replaced by another of its name meets the Deployment of the
// former, until the garbage collector does.
func TestTheDeploymentOfAFormerIcecream(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.ready()
		c.deleteIcecream()
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Second)
		c.is("Reconciling (DeploymentTerminating), 0 available, on ")
		equal(c, "Deployments", []string{"sundae of somebody else"}, c.deployments())
		c.deletePods()
		kittest.Pass(time.Second)
		c.deleteDeployment()
		kittest.Pass(time.Second)
		equal(c, "Deployments", []string{"sundae of sundae"}, c.deployments())
		c.says(saysCreated)
	})
}

// Nothing that was remembered of an Icecream counts for the next one of its name, which has the
// same generation (kubectl replace --force).
func TestNothingIsRememberedForTheNextIcecream(t *testing.T) {
	inBubble(t, func(c *cluster) {
		invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "sundae", field.ErrorList{field.Required(field.NewPath("spec"), "")})
		c.Refuse(refuseAll(creates, invalid))
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Hour)
		c.Refuse(nil)
		c.deleteIcecream()
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Second)
		equal(c, "Deployments", []string{"sundae of sundae"}, c.deployments())
		c.rollOut()
		waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
		c.stumble(false, container(waiting, 1, time.Now()))
		kittest.Pass(11 * time.Minute)
		c.is("Stalled (CrashLoopBackOff), 1 available, on node-1 (1), node-2 (1)")

		c.deletePods()
		kittest.Pass(10 * time.Millisecond) // Or the cache may show them beside the next Deployment.
		c.deleteIcecream()
		c.deleteDeployment()
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Second)
		c.rollOut()
		kittest.Pass(10 * time.Second)
		c.is(isReady)
	})
}

// Of two Icecreams that ask for one name, the older one gets the Deployment, and keeps it. When it
// goes, the other one has its turn.
func TestTwoIcecreamsThatAskForOneName(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.Refuse(refuseAll(creates, apierrors.NewForbidden(appsv1.Resource("deployments"), "sundae", errors.New("not yet"))))
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Second)
		c.Set(newIcecream("cone", func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = "sundae" }))
		kittest.Pass(time.Minute)
		ready := script.Get[v1alpha1.Icecream](c.Cluster, namespace, "cone").Status.Conditions[0]
		equal(c, "reason", v1alpha1.ReasonErrResourceExists, ready.Reason)
		equal(c, "message", `Icecream "sundae", which is older, asks for the same Deployment "sundae"; use another spec.deploymentName`, ready.Message)
		c.Refuse(nil)
		kittest.Pass(time.Minute)
		equal(c, "Deployments", []string{"sundae of sundae"}, c.deployments())
		kittest.Pass(5 * time.Minute) // Until then it says the same in other words.
		ready = script.Get[v1alpha1.Icecream](c.Cluster, namespace, "cone").Status.Conditions[0]
		equal(c, "message", `Deployment "sundae" already exists and is owned by Icecream "sundae"; use another spec.deploymentName`, ready.Message)

		c.deleteIcecream()
		c.deleteDeployment()
		kittest.Pass(time.Second)
		equal(c, "Deployments, when the older one has gone", []string{"sundae of cone"}, c.deployments())
		c.Set(newIcecream("sundae"))
		kittest.Pass(time.Hour)
		equal(c, "Deployments, when one of its name is back", []string{"sundae of cone"}, c.deployments())
	})
}

// A new Icecream costs no live read. One that was there before the process worked, and one whose
// Deployment is to be created again, may have changed.
func TestLiveReads(t *testing.T) {
	inBubble(t, func(c *cluster) {
		c.Set(newIcecream("sundae"))
		c.run(usual)
		kittest.Pass(time.Second)
		equal(c, "reads of one that was there", 1, c.Requests("get icecreams"))
		c.ForgetRequests()
		c.Set(newIcecream("cone"))
		kittest.Pass(time.Second)
		equal(c, "reads of a new one", 0, c.Requests("get icecreams"))
		c.deleteDeployment()
		kittest.Pass(time.Second)
		equal(c, "reads before it is created again", 1, c.Requests("get icecreams"))
		equal(c, "Deployments", []string{"cone of cone", "sundae of sundae"}, c.deployments())
	})
}

func TestSomebodyElsesDeploymentThatIsBeingDeleted(t *testing.T) {
	inBubble(t, func(c *cluster) {
		held := foreign()
		held.Finalizers = []string{"example.com/hold"}
		c.Set(held)
		c.deleteDeployment()
		c.run(usual)
		c.Set(newIcecream("sundae"))
		kittest.Pass(9 * time.Minute)
		c.is("Reconciling (DeploymentTerminating), 0 available, on ")
		c.says()
		kittest.Pass(time.Hour)
		c.is("Stalled (DeploymentTerminating), 0 available, on ")
		c.says(`Warning DeploymentTerminating Waiting for Deployment "sundae", which is not owned by this Icecream, to be deleted (finalizers: example.com/hold)`)
		c.editDeployment(func(d *appsv1.Deployment) { d.Finalizers = nil })
		kittest.Pass(time.Second)
		equal(c, "Deployments", []string{"sundae of sundae"}, c.deployments())
	})
}

// Somebody who edits the spec, or has Pods come and go, all the time causes a few
// writes a minute and no more.
func TestNobodyCausesManyWrites(t *testing.T) {
	t.Run("by flapping", func(t *testing.T) {
		inBubble(t, func(c *cluster) {
			c.ready()
			for i := range 1200 {
				c.stumble(i%2 == 1)
				kittest.Pass(500 * time.Millisecond)
			}
			c.atMost(statusWrites, 30+60)
		})
	})
	t.Run("by editing", func(t *testing.T) {
		inBubble(t, func(c *cluster) {
			c.ready()
			for i := range int32(1200) {
				c.edit(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(2 + i%7) })
				kittest.Pass(500 * time.Millisecond)
			}
			c.atMost(patches, 30+61)
			c.atMost(statusWrites, 30+61)
			kittest.Pass(time.Minute)
			equal(c, "replicas in the end", 2+1199%7, *c.deployment().Spec.Replicas)
		})
	})
}

// --- The cluster -----------------------------------------------------------------

// cluster is a cluster in which the controller is tried.
type cluster struct {
	*script.Cluster
	t        *testing.T
	recorder *record.FakeRecorder

	mu       sync.Mutex
	reported []string // errors that the loop reported
}

// inBubble runs a test with a cluster of its own, in a bubble of its own time.
func inBubble(t *testing.T, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, recorder: record.NewFakeRecorder(10_000)}
		c.Cluster = script.New(t, icecreamKind, apiserver.Deployments(), apiserver.Pods(), apiserver.Namespaces())
		c.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		test(c)
	})
}

type clusterKey struct{}

// keepReport is what utilruntime reports errors to.
func keepReport(ctx context.Context, err error, msg string, _ ...any) {
	if c, ok := ctx.Value(clusterKey{}).(*cluster); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reported = append(c.reported, fmt.Sprintf("%s: %v", msg, err))
	}
}

// run runs the controller as the program does, until stop is called or the test ends.
func (c *cluster) run(config Config) (stop func()) {
	c.t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		c.t.Fatal(err)
	}
	parts, err := newParts(config, manager.Dependencies{Kube: kube, Config: c.Config(), Recorder: c.recorder})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithValue(c.t.Context(), clusterKey{}, c))
	var informers sync.WaitGroup
	for _, held := range parts.Caches {
		informers.Go(func() { held.Informer.RunWithContext(ctx) })
	}
	stopped := make(chan error, 1)
	go func() { stopped <- parts.Run(ctx, 2) }()
	stop = sync.OnceFunc(func() {
		cancel()
		informers.Wait()
		if err := <-stopped; err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	c.t.Cleanup(stop)
	kittest.Pass(time.Second)
	return stop
}

// ready runs the controller until an Icecream, as edited, is Ready.
func (c *cluster) ready(edits ...func(*v1alpha1.Icecream)) (stop func()) {
	c.t.Helper()
	stop = c.run(usual)
	c.Set(newIcecream("sundae", edits...))
	kittest.Pass(time.Second)
	c.rollOut()
	kittest.Pass(10 * time.Second)
	c.is(isReady)
	c.events()
	c.ForgetRequests()
	return stop
}

func newIcecream(name string, edits ...func(*v1alpha1.Icecream)) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), Image: "registry.example/vanilla:1"},
		Status:     v1alpha1.IcecreamStatus{ObservedGeneration: -1}, // as the schema has it
	}
	for _, edit := range edits {
		edit(ice)
	}
	return ice
}

// foreign is a Deployment that nobody here has made.
func foreign() *appsv1.Deployment {
	labels := map[string]string{"app": "foreign"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sundae"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "foreign", Image: "foreign:1"}}},
			},
		},
	}
}

func (c *cluster) icecream() *v1alpha1.Icecream {
	c.t.Helper()
	return script.Get[v1alpha1.Icecream](c.Cluster, namespace, "sundae")
}

func (c *cluster) edit(change func(*v1alpha1.Icecream)) {
	c.t.Helper()
	script.Edit(c.Cluster, namespace, "sundae", change)
}

func (c *cluster) deleteIcecream() {
	c.t.Helper()
	script.Delete[v1alpha1.Icecream](c.Cluster, namespace, "sundae", metav1.DeletePropagationBackground)
}

func (c *cluster) deployment() *appsv1.Deployment {
	c.t.Helper()
	return script.Get[appsv1.Deployment](c.Cluster, namespace, "sundae")
}

func (c *cluster) editDeployment(change func(*appsv1.Deployment)) {
	c.t.Helper()
	script.Edit(c.Cluster, namespace, "sundae", change)
}

func (c *cluster) deleteDeployment() {
	c.t.Helper()
	script.Delete[appsv1.Deployment](c.Cluster, namespace, "sundae", metav1.DeletePropagationBackground)
}

func (c *cluster) deletePods() {
	c.t.Helper()
	for _, pod := range script.All[corev1.Pod](c.Cluster) {
		script.Delete[corev1.Pod](c.Cluster, namespace, pod.Name, metav1.DeletePropagationBackground)
	}
}

// deployments returns the names of all Deployments and of their owners.
func (c *cluster) deployments() (all []string) {
	c.t.Helper()
	icecreams := map[types.UID]string{"": "nobody"}
	for _, ice := range script.All[v1alpha1.Icecream](c.Cluster) {
		icecreams[ice.UID] = ice.Name
	}
	for _, d := range script.All[appsv1.Deployment](c.Cluster) {
		owner := ptr.Deref(metav1.GetControllerOf(d), metav1.OwnerReference{})
		all = append(all, d.Name+" of "+gocmp.Or(icecreams[owner.UID], "somebody else"))
	}
	return all
}

// rollOut has the Deployment controller finish its work, with Pods on two nodes.
func (c *cluster) rollOut() {
	c.t.Helper()
	c.deletePods()
	for i, node := range []string{"node-1", "node-2"} {
		c.Set(c.pod(fmt.Sprintf("sundae-%d", i), node))
	}
	c.editDeployment(func(d *appsv1.Deployment) { d.Status = rolledOut(d, 2) })
}

// rolledOut is the status of a Deployment that has so many Pods, which are available.
func rolledOut(d *appsv1.Deployment, n int32) appsv1.DeploymentStatus {
	return appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
	}
}

// pod is a ready Pod of the Deployment.
func (c *cluster) pod(name, node string) *corev1.Pod {
	c.t.Helper()
	template := c.deployment().Spec.Template
	labels := maps.Clone(template.Labels)
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = "7c8b"
	template.Spec.NodeName = node
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "sundae-7c8b", UID: "uid-of-a-replica-set", Controller: ptr.To(true),
			}},
		},
		Spec: template.Spec,
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy()}},
		},
	}
}

// stumble has one Pod of two be ready or not.
func (c *cluster) stumble(isReady bool, edits ...func(*corev1.Pod)) {
	c.t.Helper()
	status, n := corev1.ConditionFalse, int32(1)
	if isReady {
		status, n = corev1.ConditionTrue, 2
	}
	script.Edit(c.Cluster, namespace, "sundae-1", func(pod *corev1.Pod) {
		pod.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now().Rfc3339Copy()}
		for _, edit := range edits {
			edit(pod)
		}
	})
	c.editDeployment(func(d *appsv1.Deployment) {
		d.Status = rolledOut(d, 2)
		d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, n
	})
}

var cannotPull = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}}

// container has the Pod's only container be in a state, after it has ended.
func container(state corev1.ContainerState, restarts int32, ended time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "icecream", Image: "registry.example/vanilla:1", RestartCount: restarts, State: state,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.NewTime(ended)}},
		}}
	}
}

// fidget has a Pod change again and again.
func (c *cluster) fidget(times int, pause time.Duration) {
	c.t.Helper()
	for i := range times {
		script.Edit(c.Cluster, namespace, "sundae-1", func(pod *corev1.Pod) { pod.Status.Message = fmt.Sprint(i) })
		kittest.Pass(pause)
	}
}

// is compares what the Icecream's status says, in a line.
func (c *cluster) is(want string) {
	c.t.Helper()
	got, status := "nothing", c.icecream().Status
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if condition := meta.FindStatusCondition(status.Conditions, name); condition != nil && condition.Status == metav1.ConditionTrue {
			got = fmt.Sprintf("%s (%s), %d available, on %s", name, condition.Reason, status.AvailableReplicas, status.Placement)
			break
		}
	}
	equal(c, "status", want, got)
}

// events returns the events since it was last called.
func (c *cluster) events() (events []string) {
	for len(c.recorder.Events) > 0 {
		events = append(events, <-c.recorder.Events)
	}
	return events
}

// says compares the events since they were last looked at.
func (c *cluster) says(want ...string) {
	c.t.Helper()
	equal(c, "events", want, c.events())
}

// wrote compares the requests to change something.
func (c *cluster) wrote(want map[string]int) {
	c.t.Helper()
	equal(c, "writes", want, c.Writes())
}

// atMost requires that there were not more requests of a name.
func (c *cluster) atMost(request string, most int) {
	c.t.Helper()
	if got := c.Requests(request); got > most {
		c.t.Errorf("%s: %d, want at most %d", request, got, most)
	}
}

func (c *cluster) reports() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reported)
}

// equal compares, with no difference between nothing and nothing.
func equal[T any](c *cluster, what string, want, got T) {
	c.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		c.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
