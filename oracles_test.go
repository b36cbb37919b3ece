// What must be true of the Icecream controller, whatever the world does to it: the promises of docs/guarantees.md that need a
// history. Stories tell the others.

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

// witness is what the oracles have to remember.
type witness struct {
	started   time.Time              // when the first request was made
	writes    map[string]int         // of Deployments, by verb
	sent      map[string][]time.Time // requests within the last second, by process, verb and key
	reported  map[types.UID]report   // the last status that was written for an Icecream
	made      map[types.UID]made     // the last template that was written for a Deployment
	failed    map[types.UID]int64    // generations of Icecreams whose Deployment a failing policy or webhook has refused
	attempted map[types.UID]bool     // Icecreams for which a create was sent
	late      map[string]time.Time   // since when something has not been as it should be; see [icecreams.watch]
}

func newWitness() witness {
	return witness{
		writes: map[string]int{}, sent: map[string][]time.Time{}, attempted: map[types.UID]bool{}, failed: map[types.UID]int64{}, late: map[string]time.Time{},
		reported: map[types.UID]report{}, made: map[types.UID]made{},
	}
}

// report is a status that a process has written.
type report struct {
	process string
	at      time.Time
	status  v1alpha1.IcecreamStatus
}

// made is the template that a process has written for the same spec.
type made struct {
	process               string
	spec                  v1alpha1.IcecreamSpec
	template              corev1.PodTemplateSpec
	isRewritten, isPinned bool // by a webhook that was there
}

// wrong reports a request of a process that should not be.
func (w *icecreams) wrong(x simulation.Exchange, check, format string, args ...any) {
	w.Fail(check, "%s: %s %s %s: %s", x.Process.Name, x.Verb, simulation.Describe(x.Key), x.Subresource, fmt.Sprintf(format, args...))
}

// Check implements World.
func (w *icecreams) Check(x simulation.Exchange) {
	resource := x.Key.Resource.Resource
	if x.Request.Method == http.MethodGet || resource == "leases" || resource == "events" {
		return
	}
	if w.started.IsZero() {
		w.started = time.Now()
	}
	w.watch()
	w.checkHotLoop(x)
	if x.Key.Namespace == elsewhere {
		w.checkElsewhere(x)
		return
	}
	// While somebody refuses or undoes writes, a refused one counts, too. A conflict does not: somebody else was faster.
	if resource == "deployments" && (x.IsWrite() || w.isOpposed && x.Response.Code != http.StatusConflict) {
		w.writes[x.Verb]++
	}
	before := simulation.Get[appsv1.Deployment](w.History, x.Before, x.Key)
	after := simulation.Get[appsv1.Deployment](w.History, x.After, x.Key)
	switch {
	case !x.IsWrite() && x.Subresource == "status" && x.Response.Code == http.StatusOK:
		w.wrong(x, "needless", "that is the status that it has")
	case !x.IsWrite():
	case resource == "icecreams" && x.Verb == "update" && x.Subresource == "status":
		w.checkStatus(x)
	case resource == "deployments" && x.Verb == "create":
		w.checkCreate(x, after)
	case resource == "deployments" && x.Verb == "patch":
		w.checkPatch(x, before, after)
	default:
		w.wrong(x, "permissions", "the controller never does that")
	}
}

// checkHotLoop checks that what fails is not repeated at once, again and again, but later and later: after 5 ms, 10 ms, 20 ms
// for each of the Icecreams that ask for a Deployment, and after an event.
func (w *icecreams) checkHotLoop(x simulation.Exchange) {
	id := fmt.Sprint(x.Process.Name, x.Verb, x.Key)
	w.sent[id] = append(slices.DeleteFunc(w.sent[id], func(at time.Time) bool { return time.Since(at) > time.Second }), time.Now())
	if n := len(w.sent[id]); n > 30 {
		w.wrong(x, "hot loop", "it was sent %d times within a second: %s", n, x.Response.Body)
	}
}

// checkElsewhere checks that the Icecream of another namespace gets what is its own.
func (w *icecreams) checkElsewhere(x simulation.Exchange) {
	key := iceKey(x.Key.Name)
	key.Namespace = elsewhere
	ice := simulation.Get[v1alpha1.Icecream](w.History, x.Before, key)
	d := simulation.Get[appsv1.Deployment](w.History, x.After, x.Key)
	isOthers := d != nil && metav1.GetControllerOfNoCopy(d) != nil && !metav1.IsControlledBy(d, ice) // It may have lost its owner just before.
	if ice == nil || x.IsWrite() && isOthers {
		w.wrong(x, "namespace", "that is not its own")
	}
}

// watch looks, while nothing goes wrong, for what is not as it should be for longer than it can be: a new Icecream for
// which nothing was asked for, replicas that were scaled, a refusal that is not told, and old numbers in a status.
func (w *icecreams) watch() {
	if !w.IsCalm() || w.started.IsZero() {
		return
	}
	wrong := map[string]time.Duration{}
	for _, ice := range w.ices() {
		name, d := icecream.DeploymentName(ice), w.deploymentOf(w.Store, ice)
		since := func(what string, most time.Duration) {
			wrong[fmt.Sprintf("Icecream %s (%s, generation %d), Deployment %s: %s", ice.Name, ice.UID, ice.Generation, name, what)] = most
		}
		isMissing := d == nil && w.oldest(w.Store, name) == ice
		isLive := own(d, ice) != nil && d.DeletionTimestamp == nil
		if ice.DeletionTimestamp != nil || !isMissing && !isLive {
			continue
		}
		reason := readyOf(ice).Reason
		isSilent := !isBroken(ice) && !slices.Contains(endedByOthers, reason)
		if !w.IsOpen() {
			if isMissing && isSilent {
				since("the namespace is being deleted, and the status does not say so, but "+reason, 5*time.Second)
			}
			continue
		}
		if isMissing && !w.attempted[ice.UID] && !isBroken(ice) {
			since("nobody has tried to create it", 1500*time.Millisecond)
		}
		isOutdated := isMissing || !hasImage(d, ice.Spec.Image)
		if w.failing != "" && isOutdated && w.failed[ice.UID] == ice.Generation && isSilent {
			since("it cannot be written, and the status does not say so, but "+reason, 8*time.Second)
		}
		if !isLive {
			continue
		}
		// An old image that was stopped does not start because another one is refused, or cannot be written.
		isStopped := *d.Spec.Replicas == 0 && (w.isOpposed || isBroken(ice))
		if *d.Spec.Replicas != *ice.Spec.Replicas && time.Since(w.fought[name]) > 15*time.Minute && !isStopped && !w.hasLowered && w.failing == "" {
			since(fmt.Sprintf("there are %d replicas instead of %d", *d.Spec.Replicas, *ice.Spec.Replicas), time.Second)
		}
		if !w.hasCounts(w.Store, ice) {
			since("the status is old", 20*time.Second)
		}
	}
	maps.DeleteFunc(w.late, func(what string, _ time.Time) bool { return wrong[what] == 0 })
	for what, most := range wrong {
		if w.late[what].IsZero() {
			w.late[what] = time.Now()
		}
		if since := time.Since(w.late[what]); since > most {
			w.Fail("late", "%s, for %s", what, since)
		}
	}
}

func (w *icecreams) checkCreate(x simulation.Exchange, d *appsv1.Deployment) {
	owner := metav1.GetControllerOfNoCopy(d)
	if owner == nil || !icecream.IsControlledByIcecream(d) {
		w.wrong(x, "owner", "it has no Icecream")
		return
	}
	w.checkOwner(x, d)
	w.checkTemplate(x, nil, d)
	if !w.knew(x, "icecreams", func(store apiserver.Store) bool {
		oldest := w.oldest(store, d.Name)
		return oldest == nil || oldest.UID == owner.UID
	}) {
		w.wrong(x, "older", "an older Icecream than %s asks for it", owner.Name)
	}
	if !w.knew(x, "icecreams", func(store apiserver.Store) bool {
		ice := w.owner(store, d)
		return ice != nil && icecream.DeploymentName(ice) == d.Name
	}) {
		w.wrong(x, "name", "nobody has asked for it")
	}
	if seen := w.owner(w.seen(x, "icecreams")[0], d); seen == nil || seen.Status.ObservedGeneration <= 0 {
		return
	}
	// One that is created again was checked: the cache of Deployments can be ahead.
	if ice := w.owner(w.Since(x.Checked(iceKey(owner.Name)))[0], d); ice == nil || ice.DeletionTimestamp != nil {
		w.wrong(x, "live", "Icecream %s was gone or being deleted when it was sent", owner.Name)
	}
}

func (w *icecreams) checkPatch(x simulation.Exchange, before, after *appsv1.Deployment) {
	if before == nil {
		w.wrong(x, "ownership", "it has created it")
		return
	}
	was, is := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
	// An apply that creates a Deployment has no precondition. A late one can find the Deployment of the next Icecream.
	mayCreate := w.Since(x.Checked(x.Key))[0].Objects[x.Key] == nil
	switch {
	case before.DeletionTimestamp != nil && !w.wasAlive(x, before):
		w.wrong(x, "deleted", "it is being deleted")
	case was != nil && !icecream.IsControlledByIcecream(before), was == nil && before.Labels[icecream.LabelIcecream] == "":
		w.wrong(x, "ownership", "it is somebody else's")
	case was != nil && (is == nil || is.UID != was.UID) && (!x.IsLate || !mayCreate):
		w.wrong(x, "ownership", "its owner was another one")
	}
	if left := othersOf(after); left != othersOf(before) {
		w.wrong(x, "others", "what others have set is %s, no longer %s", left, othersOf(before))
	}
	w.checkTemplate(x, before, after)
	if ice := w.owner(x.Before, after); ice != nil && *before.Spec.Replicas == 0 && *after.Spec.Replicas > 0 && !x.IsLate {
		if !w.knew(x, "icecreams", func(store apiserver.Store) bool {
			seen := w.owner(store, after)
			return seen != nil && hasImage(after, seen.Spec.Image)
		}) {
			w.wrong(x, "stopped", "it starts an old image, which was stopped")
		}
	}
	if is != nil { // It may have lost its owner just before.
		w.checkOwner(x, after)
	}
}

// othersOf returns what others have set in a Deployment.
func othersOf(d *appsv1.Deployment) string {
	template := d.Spec.Template
	set := fmt.Sprintf("%s, paused: %t, restarted: %q, variable: %q", d.Spec.Strategy.Type, d.Spec.Paused,
		template.Annotations["kubectl.kubernetes.io/restartedAt"], askedOf(template)["THEIRS"])
	for _, c := range template.Spec.Containers {
		if limit, is := c.Resources.Limits[scoops]; is || c.Name == "sidecar" {
			set += fmt.Sprintf(", container %s: %s", c.Name, limit.String())
		}
	}
	return set
}

// checkOwner checks that an Icecream is not being deleted, as far as the process can know.
func (w *icecreams) checkOwner(x simulation.Exchange, d *appsv1.Deployment) {
	if !w.knew(x, "icecreams", func(store apiserver.Store) bool {
		ice := w.owner(store, d)
		return ice != nil && ice.DeletionTimestamp == nil
	}) {
		w.wrong(x, "owner", "Icecream %s has been gone or being deleted for long", metav1.GetControllerOfNoCopy(d).Name)
	}
}

// wasAlive reports whether the process can have seen a Deployment that was not being deleted.
func (w *icecreams) wasAlive(x simulation.Exchange, d *appsv1.Deployment) bool {
	return w.knew(x, "deployments", func(store apiserver.Store) bool {
		seen := simulation.Get[appsv1.Deployment](w.History, store, x.Key)
		return seen != nil && seen.UID == d.UID && seen.DeletionTimestamp == nil
	})
}

// checkTemplate checks that a process replaces no Pods unless it is asked for others: not when it scales, and not
// after a restart by what a tag has become. before is nil for a new Deployment.
func (w *icecreams) checkTemplate(x simulation.Exchange, before, after *appsv1.Deployment) {
	if before != nil && equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template) {
		return
	}
	last := w.made[after.UID]
	delete(w.made, after.UID)
	asked, isCertain := w.askedFor(x, after)
	if !isCertain || x.IsLate {
		return
	}
	isSame := before != nil && equality.Semantic.DeepEqual(last.spec, asked) && equality.Semantic.DeepEqual(last.template, before.Spec.Template) &&
		last.isRewritten == w.rewriting && last.isPinned == (w.pinning > 0) // One that acts on updates changes what is only scaled, too.
	if isSame && (last.process == x.Process.Name || strings.HasPrefix(last.template.Spec.Containers[0].Image, asked.Image)) {
		w.wrong(x, "restart", "it replaces the Pods, although nobody has asked for others")
	}
	if hasImage(after, asked.Image) {
		w.made[after.UID] = made{x.Process.Name, asked, after.Spec.Template, w.rewriting, w.pinning > 0}
	}
}

// askedFor returns the spec of the Icecream that controls a Deployment, but for the replicas. It is certain if the
// process can have seen no other.
func (w *icecreams) askedFor(x simulation.Exchange, d *appsv1.Deployment) (asked v1alpha1.IcecreamSpec, isCertain bool) {
	for i, store := range w.seen(x, "icecreams") {
		ice := w.owner(store, d)
		if ice == nil {
			return asked, false
		}
		spec := ice.Spec
		spec.Replicas = nil
		if i > 0 && !equality.Semantic.DeepEqual(asked, spec) {
			return asked, false
		}
		asked = spec
	}
	return asked, true
}

// owner returns the Icecream that controls a Deployment; nil if there is none.
func (w *icecreams) owner(store apiserver.Store, d *appsv1.Deployment) *v1alpha1.Icecream {
	owner := metav1.GetControllerOfNoCopy(d)
	if owner == nil || !icecream.IsControlledByIcecream(d) {
		return nil
	}
	ice := simulation.Get[v1alpha1.Icecream](w.History, store, iceKey(owner.Name))
	if ice == nil || ice.UID != owner.UID {
		return nil
	}
	return ice
}

// oldest returns the oldest Icecream that asks for a name and is not being deleted.
func (w *icecreams) oldest(store apiserver.Store, name string) (oldest *v1alpha1.Icecream) {
	for _, ice := range w.asking(store, name) {
		if ice.DeletionTimestamp == nil && (oldest == nil || icecream.IsOlder(ice, oldest)) {
			oldest = ice
		}
	}
	return oldest
}

// asking returns the Icecreams that ask for a Deployment of a name.
func (w *icecreams) asking(store apiserver.Store, name string) []*v1alpha1.Icecream {
	return slices.DeleteFunc(icesIn(w, store), func(ice *v1alpha1.Icecream) bool { return icecream.DeploymentName(ice) != name })
}

// knew reports whether something was true in one of the states of a resource that the process can have acted on.
func (w *icecreams) knew(x simulation.Exchange, resource string, is func(apiserver.Store) bool) bool {
	return slices.ContainsFunc(w.seen(x, resource), is)
}

// seen returns these states.
func (w *icecreams) seen(x simulation.Exchange, resource string) []apiserver.Store {
	return w.Since(x.Process.Knew(resource, x.Decided))
}

// checkStatus checks that a status was true when it was computed.
func (w *icecreams) checkStatus(x simulation.Exchange) {
	ice := simulation.Get[v1alpha1.Icecream](w.History, x.After, x.Key)
	s, ready := ice.Status, readyOf(ice)
	trues := slices.DeleteFunc(slices.Clone(s.Conditions), func(c metav1.Condition) bool { return c.Status != metav1.ConditionTrue })
	switch {
	case ice.DeletionTimestamp != nil:
		w.wrong(x, "status", "it is being deleted")
	case s.ObservedGeneration != ice.Generation:
		w.wrong(x, "status", "it is about generation %d, not %d", s.ObservedGeneration, ice.Generation)
	case len(trues) != 1 || len(s.Conditions) != 3:
		w.wrong(x, "status", "of %d conditions, %d are True", len(s.Conditions), len(trues))
	case !w.knew(x, "deployments", func(deployments apiserver.Store) bool { return w.hasCounts(deployments, ice) }):
		w.wrong(x, "status", "the counts have not been true: %s", countsOf(s))
	case ready.Status == metav1.ConditionTrue &&
		!w.knew(x, "deployments", func(deployments apiserver.Store) bool { return w.isComplete(deployments, ice) }):
		w.wrong(x, "status", "it has never been ready: %s", countsOf(s))
	case !w.knew(x, "icecreams", func(icecreams apiserver.Store) bool {
		return w.knew(x, "deployments", func(deployments apiserver.Store) bool {
			return w.knew(x, "pods", func(pods apiserver.Store) bool { return w.isReason(icecreams, deployments, pods, ice) })
		})
	}):
		w.wrong(x, "reason", "that has never been true: %s: %s", ready.Reason, ready.Message)
	case !w.knew(x, "deployments", func(deployments apiserver.Store) bool {
		return w.knew(x, "pods", func(pods apiserver.Store) bool { return slices.Equal(w.nodesOf(pods, deployments, ice), s.Nodes) })
	}):
		w.wrong(x, "status", "the placement has not been true since version %d of Pods and %d of Deployments, %s ago: %v",
			x.Process.Knew("pods", x.Decided), x.Process.Knew("deployments", x.Decided), time.Since(x.Decided), s.Nodes)
	}
	w.checkStalled(x, ice)
	w.checkRate(x, ice)
}

// endedByOthers are the reasons that the controller can only wait out.
var endedByOthers = []string{
	v1alpha1.ReasonDeploymentRefused, v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonDeploymentContested, v1alpha1.ReasonDeploymentTerminating,
}

// checkStalled checks that an Icecream is Stalled only if its spec is at fault, if its Deployment has timed out, or
// if it has waited long enough for what only somebody else can end.
func (w *icecreams) checkStalled(x simulation.Exchange, ice *v1alpha1.Icecream) {
	before := simulation.Get[v1alpha1.Icecream](w.History, x.Before, x.Key)
	reason, was := readyOf(ice).Reason, readyOf(before)
	if !isTrue(ice, v1alpha1.ConditionStalled) || isTrue(before, v1alpha1.ConditionStalled) || reason == v1alpha1.ReasonInvalidSpec {
		return
	}
	isOver := was.Status == metav1.ConditionFalse && time.Since(was.LastTransitionTime.Time) >= 10*time.Minute
	if !slices.Contains(endedByOthers, reason) {
		isOver = w.knew(x, "deployments", func(store apiserver.Store) bool { return hasTimedOut(w.deploymentOf(store, ice)) })
	}
	if !isOver {
		w.wrong(x, "stalled", "it is Stalled (%s) too early", reason)
	}
}

// checkRate checks that statuses which only have other numbers, nodes or words come two seconds apart.
func (w *icecreams) checkRate(x simulation.Exchange, ice *v1alpha1.Icecream) {
	last, isKnown := w.reported[ice.UID]
	w.reported[ice.UID] = report{x.Process.Name, time.Now(), ice.Status}
	if w.IsCalm() && isKnown && last.process == x.Process.Name && !icecream.HasTurned(last.status, ice.Status) && !x.IsLate && time.Since(last.at) < 1900*time.Millisecond {
		w.wrong(x, "rate", "it has only other numbers than %s ago", time.Since(last.at))
	}
}

// isReason reports whether the reason that an Icecream gives is true, if this is what the caches show.
func (w *icecreams) isReason(icecreams, deployments, pods apiserver.Store, ice *v1alpha1.Icecream) bool {
	name, d := icecream.DeploymentName(ice), w.deploymentOf(deployments, ice)
	isOwn := own(d, ice) != nil
	isOfFormer := d != nil && !isOwn && icecream.IsControlledByIcecream(d) && metav1.GetControllerOfNoCopy(d).Name == ice.Name
	switch ready := readyOf(ice); ready.Reason {
	case v1alpha1.ReasonProgressDeadlineExceeded:
		return isOwn && hasTimedOut(d)
	case v1alpha1.ReasonDeploymentRefused: // or writes have failed for ten seconds
		isRefusal := strings.Contains(ready.Message, "denied") || strings.Contains(ready.Message, "quota")
		return (w.isOpposed || !isRefusal) && !strings.Contains(ready.Message, "being terminated") // which is DeploymentTerminating
	case v1alpha1.ReasonDeploymentAltered:
		return isOwn && w.hasLowered && *d.Spec.Replicas < *ice.Spec.Replicas
	case v1alpha1.ReasonErrResourceExists:
		return d != nil && !isOwn && !isOfFormer && d.DeletionTimestamp == nil || d == nil && w.oldest(icecreams, name) != ice
	case v1alpha1.ReasonDeploymentTerminating:
		namespace := deployments.Objects[simulation.NamespaceKey]
		isOpen := namespace != nil && namespace.GetDeletionTimestamp() == nil
		return !isOpen || isOfFormer || d != nil && d.DeletionTimestamp != nil
	case v1alpha1.ReasonDeploymentContested:
		return w.isOpposed || w.meddled >= 3
	case v1alpha1.ReasonInvalidSpec: // The API server calls a spec invalid by chance, unless all is calm.
		return isBroken(ice) || !w.IsCalm()
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing:
		return true
	default:
		return isOwn && w.problems(pods, d)[ready.Reason]
	}
}

// problems returns the reasons for which Pods of a Deployment do not become ready.
func (w *icecreams) problems(store apiserver.Store, d *appsv1.Deployment) map[string]bool {
	// A crash or a failure counts for a minute.
	hasCrashed := !w.crashed[d.Name].IsZero() && time.Since(w.crashed[d.Name]) < 2*time.Minute
	reasons := map[string]bool{
		v1alpha1.ReasonPodFailed:                hasCrashed,
		v1alpha1.ReasonDeploymentPaused:         d.Spec.Paused,
		v1alpha1.ReasonProgressDeadlineExceeded: hasTimedOut(d),
		v1alpha1.ReasonReplicaFailure:           says(d, string(appsv1.DeploymentReplicaFailure)),
		v1alpha1.ReasonCrashLoopBackOff:         hasCrashed,
		v1alpha1.ReasonDeploymentAltered:        w.hasLowered,
	}
	for _, pod := range podsIn(w, store) {
		switch image := pod.Spec.Containers[0].Image; {
		case !strings.HasPrefix(pod.Name, d.Name+"-"):
		case pod.DeletionTimestamp != nil: // No new Pod is created until it has ended.
			reasons[v1alpha1.ReasonPodNotReady] = reasons[v1alpha1.ReasonPodNotReady] ||
				d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && d.Status.UpdatedReplicas == 0
		case pod.Status.Phase == corev1.PodFailed:
			reasons[v1alpha1.ReasonPodFailed] = true
		case simulation.IsReady(pod):
		case simulation.IsUnschedulable(pod):
			reasons[v1alpha1.ReasonUnschedulable] = true
		case simulation.WaitsFor(pod) == "ErrImagePull":
			reasons[v1alpha1.ReasonImagePullBackOff] = true
		case strings.Contains(image, "crashing"):
			reasons[v1alpha1.ReasonCrashLoopBackOff] = true
			reasons[v1alpha1.ReasonPodNotReady] = true // before its first end
		case strings.Contains(image, "unstartable"):
			reasons[v1alpha1.ReasonContainerError] = true
			reasons[v1alpha1.ReasonPodNotReady] = true // before its first start
		default:
			reasons[v1alpha1.ReasonPodNotReady] = true
		}
	}
	return reasons
}

// hasTimedOut reports whether a Deployment has made no progress for too long.
func hasTimedOut(d *appsv1.Deployment) bool {
	return d != nil && says(d, v1alpha1.ReasonProgressDeadlineExceeded)
}

// says reports whether a Deployment has a condition of that type or with that reason.
func says(d *appsv1.Deployment, what string) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return string(c.Type) == what || c.Reason == what })
}

// own returns a Deployment if it is the Icecream's; otherwise nil.
func own(d *appsv1.Deployment, ice *v1alpha1.Icecream) *appsv1.Deployment {
	if d != nil && metav1.IsControlledBy(d, ice) {
		return d
	}
	return nil
}

// isBroken reports whether the Icecream's template is none.
func isBroken(ice *v1alpha1.Icecream) bool {
	return ice.Spec.Template != nil && strings.Contains(string(ice.Spec.Template.Raw), "evn")
}

// askedOf returns what a template can ask for: variables of the container icecream, and the limits of the mixer.
func askedOf(template corev1.PodTemplateSpec) map[string]string {
	asked := map[string]string{}
	for _, c := range template.Spec.Containers {
		switch c.Name {
		case "icecream":
			for _, v := range c.Env {
				asked[v.Name] = v.Value
			}
		case "mixer":
			asked[c.Name] = fmt.Sprint(c.Resources.Limits.Cpu(), c.Resources.Limits.Memory())
		}
	}
	return asked
}

func countsOf(s v1alpha1.IcecreamStatus) string {
	return fmt.Sprintf("%d Pods, %d ready, %d available", s.Replicas, s.ReadyReplicas, s.AvailableReplicas)
}

// hasCounts reports whether the Icecream's Deployment has what the status says of it.
func (w *icecreams) hasCounts(store apiserver.Store, ice *v1alpha1.Icecream) bool {
	var has appsv1.DeploymentStatus
	d := own(w.deploymentOf(store, ice), ice)
	if d != nil {
		has = d.Status
	}
	s := ice.Status
	updated := has.UpdatedReplicas
	if d != nil && has.ObservedGeneration < d.Generation {
		updated = 0
	}
	return updated == s.UpdatedReplicas && has.Replicas == s.Replicas && has.ReadyReplicas == s.ReadyReplicas && has.AvailableReplicas == s.AvailableReplicas
}

// readyOf returns the condition that says whether an Icecream is Ready, and why not.
func readyOf(ice *v1alpha1.Icecream) metav1.Condition { return icecream.ReadyOf(ice.Status) }

func isTrue(ice *v1alpha1.Icecream, condition string) bool {
	return meta.IsStatusConditionTrue(ice.Status.Conditions, condition)
}

// isComplete reports whether the Icecream's Deployment is rolled out.
func (w *icecreams) isComplete(store apiserver.Store, ice *v1alpha1.Icecream) bool {
	d := w.deploymentOf(store, ice)
	if own(d, ice) == nil {
		return false
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	return wanted >= ptr.Deref(ice.Spec.Replicas, 1) && d.Status.ObservedGeneration == d.Generation &&
		d.Status.Replicas == wanted && d.Status.AvailableReplicas == wanted && d.Status.UpdatedReplicas == wanted
}

// nodesOf returns where the Pods of an Icecream are.
func (w *icecreams) nodesOf(pods, deployments apiserver.Store, ice *v1alpha1.Icecream) []v1alpha1.IcecreamNode {
	d := w.deploymentOf(deployments, ice)
	if own(d, ice) == nil || d.Status.ObservedGeneration == 0 {
		return nil
	}
	counts := map[string]v1alpha1.IcecreamNode{}
	for _, pod := range podsIn(w, pods) {
		isOurs := pod.Labels[icecream.LabelIcecream] == ice.Name && strings.HasPrefix(pod.Name, d.Name+"-")
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Spec.NodeName == "" || !isOurs {
			continue
		}
		node := counts[pod.Spec.NodeName]
		node.Name = pod.Spec.NodeName
		node.Pods++
		if simulation.IsReady(pod) {
			node.ReadyPods++
		}
		counts[node.Name] = node
	}
	var nodes []v1alpha1.IcecreamNode
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		nodes = append(nodes, counts[name])
	}
	return nodes
}

// CheckEnd implements World.
func (w *icecreams) CheckEnd() {
	for _, d := range deploymentsIn(w, w.Store) {
		if icecream.IsControlledByIcecream(d) && w.owner(w.Store, d) == nil {
			w.Fail("end", "Deployment %s is left of an Icecream that is gone", d.Name)
		}
	}
	for _, ice := range w.ices() {
		if ice.DeletionTimestamp == nil {
			w.checkEnd(ice)
		}
	}
	w.checkBudget()
}

// checkBudget checks that a history without faults costs few writes of Deployments: one for a launch, and one for an
// edit, which can be the deletion of a Deployment. Somebody who undoes or refuses writes makes each of them be
// repeated, twice for an edit of two parts, and then after 1 s, 2 s, 4 s, and so on.
func (w *icecreams) checkBudget() {
	most := w.launched + w.edits
	if w.isOpposed {
		most *= 10
	}
	for verb, n := range w.writes {
		if n > most && w.IsCalm() {
			w.Fail("budget", "%d times %s of Deployments for %d Icecreams and %d edits", n, verb, w.launched, w.edits)
		}
	}
}

// checkEnd checks that an Icecream has what it asks for, and says so.
func (w *icecreams) checkEnd(ice *v1alpha1.Icecream) {
	name := icecream.DeploymentName(ice)
	d := w.deploymentOf(w.Store, ice)
	fail := func(format string, args ...any) {
		w.Fail("end", "Icecream %s: %s", ice.Name, fmt.Sprintf(format, args...))
	}
	if ice.Status.ObservedGeneration != ice.Generation {
		fail("the status is about generation %d, not %d", ice.Status.ObservedGeneration, ice.Generation)
		return
	}
	if d != nil && d.DeletionTimestamp != nil {
		return
	}
	if d != nil && !metav1.IsControlledBy(d, ice) {
		if !isTrue(ice, v1alpha1.ConditionStalled) {
			fail("Deployment %s is not its, but it is not Stalled", name)
		}
		return
	}
	if isBroken(ice) {
		isScaled := d == nil || *d.Spec.Replicas == *ice.Spec.Replicas || *d.Spec.Replicas == 0 || w.hasLowered
		if readyOf(ice).Reason != v1alpha1.ReasonInvalidSpec || !isScaled {
			fail("the template is broken, and it says %s; it is scaled: %t", readyOf(ice).Reason, isScaled)
		}
		return
	}
	if d == nil && isBroken(w.oldest(w.Store, name)) {
		return // It waits for an older one.
	}
	if d == nil {
		fail("there is no Deployment %s", name)
		return
	}
	container := d.Spec.Template.Spec.Containers[slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "icecream" })]
	if container.Image != ice.Spec.Image && !w.hasAltered || plain(container.Image) != plain(ice.Spec.Image) {
		fail("the image is %s, not %s", container.Image, ice.Spec.Image)
	}
	var asked corev1.PodTemplateSpec
	if err := json.Unmarshal(ptr.Deref(ice.Spec.Template, runtime.RawExtension{Raw: []byte("{}")}).Raw, &asked); err != nil {
		fail("the template: %v", err)
	}
	for _, name := range []string{"A", "B", "mixer"} {
		if is, want := askedOf(d.Spec.Template)[name], askedOf(asked)[name]; is != want && (is != "theirs" || want != "") {
			fail("%s is %q, not %q", name, is, want)
		}
	}
	if is, want := container.Resources.Limits.Memory(), ice.Spec.Resources.Limits.Memory(); is.Cmp(*want) != 0 {
		fail("the memory is %s, not %s", is, want)
	}
	if !ptr.Deref(d.Spec.Template.Spec.SecurityContext.RunAsNonRoot, false) || d.Labels["app.kubernetes.io/name"] == "" {
		fail("what somebody has changed in our fields is still there")
	}
	if *d.Spec.Replicas != *ice.Spec.Replicas && (!w.hasLowered || *d.Spec.Replicas > *ice.Spec.Replicas) {
		fail("there are to be %d replicas, not %d", *d.Spec.Replicas, *ice.Spec.Replicas)
	}
	if !w.hasCounts(w.Store, ice) {
		fail("the status says %s, but it has %d, %d ready", countsOf(ice.Status), d.Status.Replicas, d.Status.ReadyReplicas)
	}
	if nodes := w.nodesOf(w.Store, w.Store, ice); !slices.Equal(nodes, ice.Status.Nodes) {
		fail("the nodes are %v, not %v", nodes, ice.Status.Nodes)
	}
	isComplete := w.isComplete(w.Store, ice) && *d.Spec.Replicas >= *ice.Spec.Replicas // A policy can have lowered them.
	if isComplete != isTrue(ice, v1alpha1.ConditionReady) {
		fail("complete is %t, but Ready is %t", isComplete, isTrue(ice, v1alpha1.ConditionReady))
	}
	isStalled, reason, problems := isTrue(ice, v1alpha1.ConditionStalled), readyOf(ice).Reason, w.problems(w.Store, d)
	hasCause := false
	for of, is := range problems {
		hasCause = hasCause || is && of != v1alpha1.ReasonProgressDeadlineExceeded
	}
	if isLazy := hasCause && reason == v1alpha1.ReasonProgressDeadlineExceeded; !isComplete && (isStalled != hasTimedOut(d) || !problems[reason] || isLazy) {
		fail("it says %s, and Stalled is %t, but its problems are %v", reason, isStalled, problems)
	}
}
