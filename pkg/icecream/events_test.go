package icecream

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// told are events in one line each.
func recorded(events []Event) []string {
	var lines []string
	for _, e := range events {
		lines = append(lines, e.Type+" "+e.Reason+" ("+e.Action+"): "+e.Note)
	}
	return lines
}

// story looks at an Icecream time and again, writing down what is told.
type story struct {
	t      *testing.T
	ice    *v1alpha1.Icecream
	now    time.Time // that of all tests when zero
	memory Memory
}

// look reports once on what the caches show, and keeps the status.
func (s *story) look(out Outcome, pods []Pod, deployments ...*appsv1.Deployment) []string {
	s.t.Helper()
	o := world(s.ice, deployments...)
	o.Pods = pods
	return s.report(o, out)
}

func (s *story) report(o Observed, out Outcome) []string {
	o.Memory = s.memory
	if !s.now.IsZero() {
		o.Now = s.now
	}
	a := Assess(o)
	d := Decide(a)
	now, _ := Remember(a, d, out)
	s.memory = now.Memory
	status, news := Status(a, now, d, out)
	s.ice = s.ice.DeepCopy()
	s.ice.Status = status
	return recorded(news)
}

func (s *story) wants(what string, got []string, want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
		s.t.Errorf("%s: told (-want +got):\n%s", what, diff)
	}
}

func TestEventsFromCreationToReady(t *testing.T) {
	s := story{t: t, ice: newIcecream()}
	fresh := made(t, newIcecream())
	fresh.Status = appsv1.DeploymentStatus{}
	done := made(t, newIcecream())
	pods := podsOf(done, "node-1", "node-2")

	s.wants("created", s.look(wrote(fresh), nil), `Normal DeploymentCreated (Create): Created Deployment "sundae"`)
	s.wants("still nothing", s.look(Outcome{}, nil, fresh))
	s.wants("the first Pod", s.look(Outcome{}, pods[:1], fresh), "Normal Scheduled (Schedule): 1 Pod on node-1")
	s.wants("all Pods", s.look(Outcome{}, pods, done),
		"Normal Scheduled (Schedule): 2 Pods on node-1, 1 Pod on node-2",
		"Normal Synced (Sync): Icecream synced successfully")
	s.wants("nothing new", s.look(Outcome{}, pods, done))
	s.wants("a repair that changed nothing", s.look(wrote(done), pods, done))

	set := done.DeepCopy()
	set.ResourceVersion += "1"
	s.wants("a repair", s.look(wrote(set), pods, done), `Normal DeploymentUpdated (Update): Updated Deployment "sundae"`)

	s.ice.Generation++
	s.wants("a new spec that changes nothing", s.look(Outcome{}, pods, done), "Normal Synced (Sync): Icecream synced successfully")
}

func TestEventsOfTrouble(t *testing.T) {
	s := story{t: t, ice: newIcecream()}
	d := made(t, newIcecream())
	rollingOut(d)
	pods := podsOf(d, "node-1")
	with := func(p Pod) []Pod { return append(pods[:2:2], p) }
	warning := `Warning ImagePullBackOff (Sync): Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`

	s.look(Outcome{}, with(seen(notReady(0))), d)
	s.wants("it begins", s.look(Outcome{}, with(waiting("ErrImagePull", time.Second)), d), warning)
	s.wants("it goes on", s.look(Outcome{}, with(waiting("ImagePullBackOff", 2*time.Second)), d))
	s.now = now.Add(patience)
	s.wants("it is a stall", s.look(Outcome{}, with(waiting("ErrImagePull", time.Hour)), d))
	if got := verdictOf(s.ice.Status); got != "Stalled: ImagePullBackOff" {
		t.Errorf("conditions say %q", got)
	}
	s.wants("it is still one", s.look(Outcome{}, with(waiting("ImagePullBackOff", time.Hour)), d))
	s.wants("it is over", s.look(Outcome{}, pods, rolledOut(d.DeepCopy())), "Normal Synced (Sync): Icecream synced successfully")
	s.wants("it comes back", s.look(Outcome{}, with(waiting("ErrImagePull", time.Second)), d), warning)
	s.ice.Generation++
	s.wants("it is that of the next spec, too", s.look(Outcome{}, with(waiting("ErrImagePull", time.Second)), d), warning)
}

func TestEventsOfAForeignDeployment(t *testing.T) {
	s := story{t: t, ice: newIcecream()}
	foreign := made(t, newIcecream())
	ownedBy("another")(foreign)
	s.wants("it is there", s.look(Outcome{}, nil, foreign),
		`Warning ErrResourceExists (Sync): Resource "sundae" already exists and is managed by Icecream "sundae"`)
	s.wants("it is still there", s.look(Outcome{}, nil, foreign))
	mine := made(t, newIcecream())
	s.wants("it has gone", s.look(wrote(mine), nil), `Normal DeploymentCreated (Create): Created Deployment "sundae"`)
}

func TestEventsOfARefusal(t *testing.T) {
	s := story{t: t, ice: newIcecream()}
	warning := "Warning DeploymentRefused (Sync): " + forbidden().Error()
	s.wants("refused", s.look(Outcome{Err: forbidden()}, nil), warning)
	s.wants("refused again", s.look(Outcome{Err: forbidden()}, nil))
	s.wants("invalid", s.look(Outcome{Err: invalid()}, nil), "Warning InvalidSpec (Sync): "+invalid().Error())
}

func TestEventsOfAnAdoption(t *testing.T) {
	s := story{t: t, ice: newIcecream()}
	d := made(t, newIcecream())
	orphan := d.DeepCopy()
	orphaned(orphan)
	s.wants("adopted", s.look(wrote(d), nil, orphan), `Normal DeploymentAdopted (Adopt): Adopted Deployment "sundae"`)
}

func TestEventsOfARename(t *testing.T) {
	old, renamed := made(t, newIcecream()), made(t, newIcecream(calls("cone")))
	s := story{t: t, ice: newIcecream()}
	s.look(Outcome{}, podsOf(old, "node-1"), old)
	s.ice.Spec.DeploymentName = "cone"
	s.ice.Generation++

	fresh := renamed.DeepCopy()
	fresh.Status = appsv1.DeploymentStatus{}
	s.wants("the new one", s.look(wrote(fresh), podsOf(old, "node-1"), old), `Normal DeploymentCreated (Create): Created Deployment "cone"`)
	both := append(podsOf(old, "node-1"), podsOf(renamed, "node-1")...)
	s.wants("the old one goes", s.look(Outcome{}, both, old, renamed),
		`Normal DeploymentRenamed (Rename): Renamed Deployment "sundae" to "cone"`,
		"Normal Scheduled (Schedule): 6 Pods on node-1")
	s.wants("it has gone", s.look(Outcome{}, podsOf(renamed, "node-1"), renamed),
		"Normal Scheduled (Schedule): 3 Pods on node-1",
		"Normal Synced (Sync): Icecream synced successfully")
}

func TestARenameThatWasRefusedIsNotTold(t *testing.T) {
	s := story{t: t, ice: newIcecream(calls("cone"))}
	got := s.look(Outcome{Err: forbidden()}, nil, made(t, newIcecream()), made(t, newIcecream(calls("cone"))))
	s.wants("refused", got, "Warning DeploymentRefused (Sync): "+forbidden().Error())
}

// A note of the events API has at most 1,024 bytes, and whole characters.
func TestNotesAreCut(t *testing.T) {
	o := world(newIcecream(), made(t, newIcecream()))
	rollingOut(o.Named)
	o.Pods = []Pod{seen(notReady(time.Second), kittest.Waits("ErrImagePull", strings.Repeat("crème ", 1000)), func(pod *corev1.Pod) { pod.Spec.NodeName = "" })}
	_, news := statusOf(o, decide(o), Outcome{})
	if len(news) != 1 {
		t.Fatalf("told %v, want one event", recorded(news))
	}
	if note := news[0].Note; len(note) > 1024 || len(note) < 1000 || !utf8.ValidString(note) {
		t.Errorf("a note of %d bytes: %q", len(note), note)
	}
}
