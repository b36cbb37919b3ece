package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a
	// synctest bubble's clock is decades away from the one outside.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{keepReport}
	if err := simulation.Register(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const (
	isReady      = "Ready (Available), 2 available, on node-1 (1), node-2 (1)"
	isCreated    = "Reconciling (Progressing), 0 available, on "
	saysCreated  = `Normal DeploymentCreated: Created Deployment "sundae"`
	saysSynced   = "Normal Synced: 1 Pod on node-1, 1 Pod on node-2; Icecream synced successfully"
	saysOccupied = `Warning ErrResourceExists: Resource "sundae" already exists and is not managed by Icecream`
)

// ready runs a controller until an Icecream, as edited, is Ready.
func ready(t *testing.T, c *cluster, edits ...func(*v1alpha1.Icecream)) *Controller {
	t.Helper()
	controller, _ := c.run(usual)
	ice := newIcecream(edits...)
	c.has(ice)
	kittest.Pass(time.Second)
	c.rollOut(icecream.DeploymentName(ice), "node-1", "node-2")
	kittest.Pass(10 * time.Second)
	equal(t, "status in the beginning", isReady, saying(c.icecream(ice.Name)))
	c.clear()
	return controller
}

func TestFromCreationToReadyAndThenSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		_, stop := c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Second)
		equal(t, "status", isCreated, saying(c.icecream("sundae")))
		equal(t, "Deployments", map[string]string{"sundae": "uid-of-sundae"}, c.deployments())

		c.rollOut("sundae", "node-1", "node-2")
		kittest.Pass(time.Second)
		equal(t, "status", isReady, saying(c.icecream("sundae")))
		equal(t, "events", []string{saysCreated, saysSynced}, c.events())

		c.clear()
		kittest.Pass(24 * time.Hour)
		equal(t, "writes of a day", map[string]int{}, c.writes())

		stop()
		c.run(usual)
		kittest.Pass(24 * time.Hour)
		equal(t, "writes after a restart", map[string]int{}, c.writes())
		equal(t, "events after a restart", nil, c.events())
		equal(t, "reports", nil, c.reports())
	})
}

func TestDriftIsRepairedAndTheRestLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		edit(c, "sundae", func(d *appsv1.Deployment) {
			d.Spec.Replicas = ptr.To[int32](9)
			d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "mesh:1"}}, d.Spec.Template.Spec.Containers...)
			d.Annotations = map[string]string{"team": "parlor"}
		})
		kittest.Pass(time.Second)
		d := c.deployment("sundae")
		equal(t, "replicas", 2, *d.Spec.Replicas)
		equal(t, "containers", 2, len(d.Spec.Template.Spec.Containers))
		equal(t, "annotations of others", map[string]string{"team": "parlor"}, d.Annotations)
		equal(t, "applied", 1, c.writes()["patch deployments"])
		equal(t, "events", []string{`Normal DeploymentUpdated: Updated Deployment "sundae"`}, c.events())
	})
}

// A limit that came with the creation goes when the spec drops it.
func TestADroppedLimitGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c, func(ice *v1alpha1.Icecream) {
			ice.Spec.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		})
		edit(c, "sundae", func(ice *v1alpha1.Icecream) { delete(ice.Spec.Resources.Limits, "cpu") })
		kittest.Pass(time.Second)
		got := c.deployment("sundae").Spec.Template.Spec.Containers[0].Resources
		equal(t, "resources", corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}, got)
		equal(t, "patches", 1, c.writes()["patch deployments"])
		equal(t, "reports", nil, c.reports())
	})
}

func TestANameThatIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.has(foreign("sundae"))
		c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Hour)
		equal(t, "status", "Stalled (ErrResourceExists), 0 available, on ", saying(c.icecream("sundae")))
		equal(t, "Deployments", map[string]string{"sundae": ""}, c.deployments())
		equal(t, "writes", map[string]int{"update icecreams status": 1}, c.writes())
		equal(t, "events", []string{saysOccupied}, c.events())

		c.lacks(deploymentsGVR, "sundae")
		kittest.Pass(time.Second)
		equal(t, "Deployments, when it has gone", map[string]string{"sundae": "uid-of-sundae"}, c.deployments())
		c.rollOut("sundae", "node-1", "node-2")
		kittest.Pass(10 * time.Second)
		equal(t, "status", isReady, saying(c.icecream("sundae")))
		equal(t, "events", []string{saysOccupied, saysCreated, saysSynced}, c.events())
	})
}

// What the caches have not seen yet is not done again, however often one looks.
func TestOwnWritesAreWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.run(usual)
		c.hold(deploymentsGVR)
		c.has(newIcecream())
		kittest.Pass(time.Second)
		for i := range 5 {
			edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(int32(i)) })
			kittest.Pass(time.Second)
		}
		equal(t, "creations", 1, c.writes()["create deployments"])
		equal(t, "reports", nil, c.reports())

		c.release(deploymentsGVR)
		kittest.Pass(9 * time.Minute) // the longest back-off is a minute, and the Deployment controller may take ten
		equal(t, "replicas", 4, *c.deployment("sundae").Spec.Replicas)
		equal(t, "writes", map[string]int{"create deployments": 1, "patch deployments": 1, "update icecreams status": 1}, c.writes())
		equal(t, "events", []string{saysCreated, `Normal DeploymentUpdated: Updated Deployment "sundae"`}, c.events())
	})
}

// Answers that only say that the caches are behind are neither reported nor told.
func TestAnswersThatAreNoNews(t *testing.T) {
	terminating := apierrors.NewForbidden(deploymentsGVR.GroupResource(), "sundae", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	exists := apierrors.NewAlreadyExists(deploymentsGVR.GroupResource(), "sundae")
	gone := apierrors.NewNotFound(icecreamsGVR.GroupResource(), "sundae")

	tests := []struct {
		name    string
		request string
		answer  error
	}{
		{"the Deployment exists", "create deployments", exists},
		{"the namespace has gone", "create deployments", apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)},
		{"the namespace is being terminated", "create deployments", terminating},
		{"the Icecream has gone", "update icecreams", gone},
		{"the Icecream is another", "update icecreams", conflict(icecreamsGVR, "sundae")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.refuse(tt.request, tt.answer, tt.answer, tt.answer)
				c.run(usual)
				c.has(newIcecream())
				kittest.Pass(5 * time.Minute)
				c.rollOut("sundae", "node-1", "node-2")
				kittest.Pass(5 * time.Minute)
				equal(t, "status", isReady, saying(c.icecream("sundae")))
				equal(t, "reports", nil, c.reports())
				for _, event := range c.events() {
					if strings.HasPrefix(event, "Warning") {
						t.Errorf("told: %s", event)
					}
				}
			})
		})
	}
}

func TestAnInvalidSpec(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "sundae", nil)
		c.refuse("create deployments", invalid, invalid)
		c.run(usual)
		c.has(newIcecream())
		kittest.Pass(4 * time.Minute)
		equal(t, "status", "Stalled (InvalidSpec), 0 available, on ", saying(c.icecream("sundae")))
		equal(t, "attempts", 1, c.writes()["create deployments"])
		equal(t, "reports", 1, len(c.reports()))
		equal(t, "events", []string{fmt.Sprintf("Warning InvalidSpec: creating Deployment %q: %v", "sundae", invalid)}, c.events())

		edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
		kittest.Pass(time.Second)
		equal(t, "attempts after an edit", 2, c.writes()["create deployments"])
		kittest.Pass(6 * time.Minute)
		equal(t, "Deployments, when a policy has been mended", map[string]string{"sundae": "uid-of-sundae"}, c.deployments())
		equal(t, "status", isCreated, saying(c.icecream("sundae")))
	})
}

// A server that cannot be reached is reported and tried again; the Icecream's
// status cannot say anything then.
func TestAStatusThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.refuse("update icecreams", errors.New("no route to host"), errors.New("no route to host"))
		c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Minute)
		equal(t, "status", isCreated, saying(c.icecream("sundae")))
		equal(t, "reports", 2, len(c.reports()))
		equal(t, "creations", 1, c.writes()["create deployments"])
	})
}

// The API server refuses each status of an Icecream in which a field that a rule of the schema
// reads has another type. That is told, and not tried all the time.
func TestAStatusThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.deny = func(request string) error {
			if request != "update icecreams" {
				return nil
			}
			return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.GroupName, Kind: "Icecream"}, "sundae", nil)
		}
		c.has(foreign("sundae"))
		c.run(usual)
		c.has(newIcecream())
		kittest.Pass(time.Hour)
		requireFew(t, c, "update icecreams status", 13)
		equal(t, "reports", true, len(c.reports()) > 0)
		equal(t, "event", saysOccupied, c.events()[0])
	})
}

// The cache may still show an Icecream that is no longer what it was. Then
// nothing is created or adopted for it.
func TestNothingIsDoneForIcecreamsOfThePast(t *testing.T) {
	changes := []struct {
		name   string
		change func(*cluster)
	}{
		{"has gone", func(c *cluster) { c.lacks(icecreamsGVR, "sundae") }},
		{"has been made anew", func(c *cluster) {
			c.lacks(icecreamsGVR, "sundae")
			c.has(newIcecream(func(ice *v1alpha1.Icecream) { ice.UID = "uid-of-the-next" }))
		}},
		{"is being deleted", func(c *cluster) {
			edit(c, "sundae", func(ice *v1alpha1.Icecream) {
				ice.DeletionTimestamp = ptr.To(metav1.Now())
				ice.Finalizers = []string{metav1.FinalizerDeleteDependents}
			})
		}},
		{"has been edited", func(c *cluster) {
			edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](5) })
		}},
	}
	occasions := []struct {
		name     string
		occasion func(*cluster)
		want     map[string]string
	}{
		{"to create again", func(c *cluster) { c.lacks(deploymentsGVR, "sundae") }, map[string]string{}},
		{"to adopt", func(c *cluster) {
			edit(c, "sundae", func(d *appsv1.Deployment) { d.OwnerReferences = nil })
		}, map[string]string{"sundae": ""}},
	}
	for _, change := range changes {
		for _, occasion := range occasions {
			t.Run(change.name+", "+occasion.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					ready(t, c)
					c.hold(icecreamsGVR)
					change.change(c)
					occasion.occasion(c)
					kittest.Pass(time.Hour)
					equal(t, "Deployments", occasion.want, c.deployments())
					equal(t, "reports", nil, c.reports())
				})
			})
		}
	}
}

// Nothing is created for an Icecream that is being deleted, nor repaired.
func TestDeletionIsLeftToTheGarbageCollector(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		edit(c, "sundae", func(ice *v1alpha1.Icecream) {
			ice.DeletionTimestamp = ptr.To(metav1.Now())
			ice.Finalizers = []string{metav1.FinalizerDeleteDependents}
		})
		kittest.Pass(time.Second)
		c.lacks(deploymentsGVR, "sundae")
		kittest.Pass(time.Second)
		c.lacks(icecreamsGVR, "sundae")
		kittest.Pass(time.Hour)
		equal(t, "Deployments", map[string]string{}, c.deployments())
		equal(t, "writes", map[string]int{}, c.writes())
		equal(t, "events", nil, c.events())
	})
}

// A rollout of many steps is reported in few, and its end at once.
func TestProgressIsReportedOncePerWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		config := usual
		config.StatusWindow = 10 * time.Second
		c.run(config)
		const replicas = 60
		c.has(newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](replicas) }))
		kittest.Pass(time.Second)
		c.clear()

		d := c.deployment("sundae")
		d.Status.ObservedGeneration = d.Generation
		for i := range replicas {
			c.has(podOf(d, fmt.Sprintf("sundae-%d", i), "node-1"))
			d.Status.Replicas++
			d.Status.UpdatedReplicas++
			d.Status.ReadyReplicas++
			d.Status.AvailableReplicas++
			if i == replicas-1 {
				synctest.Wait() // the last one is for later
				break
			}
			c.has(d)
			d = c.deployment("sundae")
			kittest.Pass(500 * time.Millisecond)
		}
		if got := c.writes()["update icecreams status"]; got < 2 || got > 3 {
			t.Errorf("%d status writes in 30 s, want one every 10 s", got)
		}
		before := time.Now()
		c.clear()
		c.has(d)
		kittest.Pass(200 * time.Millisecond)
		equal(t, fmt.Sprintf("status writes %v after the end", time.Since(before)), 1, c.writes()["update icecreams status"])
		equal(t, "status", "Ready (Available), 60 available, on node-1 (60)", saying(c.icecream("sundae")))
	})
}

// A trouble becomes a stall by the mere passing of time.
func TestAStallNeedsNoEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		edit(c, "sundae-1", func(pod *corev1.Pod) {
			pod.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "icecream", Image: "registry.example/vanilla:1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}},
			}}
		})
		edit(c, "sundae", func(d *appsv1.Deployment) { d.Status.ReadyReplicas, d.Status.AvailableReplicas = 1, 1 })
		kittest.Pass(30 * time.Second)
		equal(t, "status", "Reconciling (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		kittest.Pass(31 * time.Second)
		equal(t, "status", "Stalled (ImagePullBackOff), 1 available, on node-1 (1), node-2 (1)", saying(c.icecream("sundae")))
		equal(t, "events", []string{
			`Warning ImagePullBackOff: Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": denied`,
		}, c.events())
		c.clear()
		kittest.Pass(24 * time.Hour)
		equal(t, "writes afterwards", map[string]int{}, c.writes())
	})
}

// Pods of an Icecream that nobody knows, or does not know yet.
func TestPodsOfAnUnknownIcecream(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		pod := podOf(c.deployment("sundae"), "stray", "node-3")
		pod.Labels[icecream.LabelIcecream] = "split"
		c.has(pod)
		kittest.Pass(time.Minute)
		equal(t, "writes", map[string]int{}, c.writes())

		// A Pod that changes sides concerns both.
		pod = podOf(c.deployment("sundae"), "sundae-1", "node-2")
		pod.Labels[icecream.LabelIcecream] = "split"
		c.has(pod)
		kittest.Pass(time.Minute)
		equal(t, "status", "Reconciling (Progressing), 2 available, on node-1 (1)", saying(c.icecream("sundae")))
		equal(t, "reports", nil, c.reports())
	})
}

func TestAStatusWhoseAnswerIsLostIsNotWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ready(t, c)
		edit(c, "sundae", func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](1) })
		c.refuse("update icecreams", errLost)
		c.hold(icecreamsGVR) // the cache is told later than the retry comes
		kittest.Pass(10 * time.Second)
		version := c.icecream("sundae").ResourceVersion
		// Further attempts were refused, as they were made from the status before.
		requireFew(t, c, "update icecreams status", 10)
		c.release(icecreamsGVR)
		kittest.Pass(10 * time.Second)
		requireFew(t, c, "update icecreams status", 10)
		equal(t, "version", version, c.icecream("sundae").ResourceVersion)
	})
}
