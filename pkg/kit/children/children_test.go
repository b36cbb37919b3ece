package children

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	rules      = Rules{
		Owner: apply.Owner{Manager: "parlor-controller"},
		Kind:  "Parlor",
		Reasons: Reasons{
			Terminating: "Terminating", Exists: "Exists", Invalid: "Invalid", Refused: "Refused", Contested: "Contested",
			Created: "Created", Adopted: "Adopted", Updated: "Updated", Altered: "Altered",
		},
	}
	start = time.Unix(1e9, 0)
)

// need is a ConfigMap with that menu.
func need(menu string, live metav1.Object, edits ...func(*Need)) Need {
	n := Need{
		Kind: "ConfigMap",
		Child: func() apply.Child {
			return apply.Child{Resource: configMaps, Want: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "menu", Namespace: "town"}, Data: map[string]string{"today": menu}}}
		},
		Live: live,
	}
	for _, edit := range edits {
		edit(&n)
	}
	return n
}

func menu(today string, edits ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "menu", Namespace: "town", UID: "uid", ResourceVersion: "1"}, Data: map[string]string{"today": today}}
	for _, edit := range edits {
		edit(m)
	}
	return m
}

func owned(n *Need)                    { n.IsOwned = true }
func orphaned(n *Need)                 { n.IsOrphan = true }
func beingDeleted(m *corev1.ConfigMap) { m.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }
func held(m *corev1.ConfigMap)         { m.Finalizers = []string{"example.com/backup"} }
func ownedByAnother(m *corev1.ConfigMap) {
	m.OwnerReferences = []metav1.OwnerReference{{Kind: "Parlor", Name: "another", Controller: ptr.To(true)}}
}

func version(v string) func(*corev1.ConfigMap) {
	return func(m *corev1.ConfigMap) { m.ResourceVersion = v }
}

func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		need     Need
		verdict  Verdict
		reason   string
		words    string // in the message
		rechecks bool
		after    time.Duration
	}{
		"there is none":                       {need: need("sundae", nil), verdict: Act},
		"there is none any more":              {need: need("sundae", nil, func(n *Need) { n.WasReported = true }), verdict: Act, rechecks: true},
		"it is as it should be":               {need: need("sundae", menu("sundae"), owned), verdict: Converged},
		"it has drifted":                      {need: need("sundae", menu("cone"), owned), verdict: Act},
		"it is being deleted":                 {need: need("sundae", menu("sundae", beingDeleted), owned), verdict: Wait, reason: "Terminating", words: `ConfigMap "menu" is being deleted`},
		"it is being deleted, and held":       {need: need("sundae", menu("sundae", beingDeleted, held), owned), verdict: Wait, reason: "Terminating", words: `will be created again; it is held by example.com/backup`},
		"someone else's is being deleted":     {need: need("sundae", menu("sundae", beingDeleted)), verdict: Wait, reason: "Terminating", words: "not managed by this Parlor"},
		"it belonged to one that is gone":     {need: need("sundae", menu("sundae"), func(n *Need) { n.OwnerIsGone = true }), verdict: Wait, reason: "Terminating", words: "whose Parlor no longer exists", after: time.Minute},
		"it was left behind":                  {need: need("sundae", menu("sundae"), orphaned), verdict: Act, rechecks: true},
		"it is nobody's":                      {need: need("sundae", menu("sundae")), verdict: Blocked, reason: "Exists", words: "not managed by Parlor"},
		"it is someone else's":                {need: need("sundae", menu("sundae", ownedByAnother)), verdict: Blocked, reason: "Exists", words: `managed by Parlor "another"`},
		"the API server stores it otherwise":  {need: need("sundae", menu("SUNDAE"), owned, func(n *Need) { n.Last = stored(menu("SUNDAE")) }), verdict: Converged},
		"someone changed what it stored":      {need: need("sundae", menu("cone"), owned, func(n *Need) { n.Last = stored(menu("SUNDAE")) }), verdict: Act},
		"it stored another object that way":   {need: need("sundae", menu("SUNDAE", func(m *corev1.ConfigMap) { m.UID = "other" }), owned, func(n *Need) { n.Last = stored(menu("SUNDAE")) }), verdict: Act},
		"it was another request at that time": {need: need("cone", menu("SUNDAE"), owned, func(n *Need) { n.Last = stored(menu("SUNDAE")) }), verdict: Act},
	} {
		t.Run(name, func(t *testing.T) {
			d := rules.Decide(test.need)
			if d.Verdict != test.verdict || d.Reason != test.reason || !strings.Contains(d.Message, test.words) || d.RecheckLive != test.rechecks || d.RequeueAfter != test.after {
				t.Errorf("got %+v", d)
			}
			if (d.Verdict == Act) != (len(d.Children) == 1) {
				t.Errorf("children: %+v", d.Children)
			}
		})
	}
}

// stored is the memory of a write of "sundae" that the API server stored as live.
func stored(live *corev1.ConfigMap) Write {
	w, _ := rules.Remember(Write{}, rules.Decide(need("sundae", nil)), Outcome{Written: []metav1.Object{live}}, nil, start)
	return w
}

// What is refused is tried again later and later, and what is undone, too.
func TestBackOff(t *testing.T) {
	for name, test := range map[string]struct {
		out     Outcome
		live    metav1.Object
		verdict Verdict
		waits   []int // in seconds
		reason  string
	}{
		"forbidden": {Outcome{Err: apierrors.NewForbidden(configMaps.GroupResource(), "menu", errors.New("quota"))}, nil, Wait, []int{1, 2, 4, 8, 16, 32, 60, 60}, "Refused"},
		"invalid":   {Outcome{Err: apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "menu", nil)}, nil, Blocked, []int{300, 300}, "Invalid"},
		"undone":    {Outcome{Written: []metav1.Object{menu("sundae", version("2"))}}, menu("cone"), Wait, []int{0, 0, 5, 10, 20}, "Contested"},
		"deleted":   {Outcome{Written: []metav1.Object{menu("sundae")}}, nil, Wait, []int{0, 0, 5, 10}, "Contested"},
	} {
		t.Run(name, func(t *testing.T) {
			var last Write
			now := start
			for i, seconds := range test.waits {
				wait := time.Duration(seconds) * time.Second
				n := need("sundae", test.live, owned)
				d := rules.Decide(n)
				last, _ = rules.Remember(last, d, test.out, test.live, now)
				if got := last.Wait(now); got != wait {
					t.Fatalf("after write %d: wait %s, want %s", i+1, got, wait)
				}
				if wait > 0 {
					waiting := rules.BackOff(d, last, test.live, now)
					if waiting.Verdict != test.verdict || waiting.Reason != test.reason || waiting.RequeueAfter != wait || waiting.Message == "" {
						t.Fatalf("after write %d: %+v", i+1, waiting)
					}
				}
				now = now.Add(wait)
				again := rules.BackOff(d, last, test.live, now)
				if again.Verdict != Act || again.IsRetry != (test.out.Err != nil) {
					t.Fatalf("when it is time: %+v", again)
				}
				if postponed := again.Postponed(); again.IsRetry && (postponed.Verdict != test.verdict || postponed.Reason != test.reason) {
					t.Fatalf("postponed: %+v", postponed)
				}
			}
			if got := last.IsContested(last.At); got != (test.reason == "Contested") {
				t.Errorf("contested: %t", got)
			}
			// Another request waits for nothing, nor does the same one after a long time.
			if d := rules.Decide(need("float", test.live, owned)); rules.BackOff(d, last, test.live, last.At).Verdict != Act {
				t.Error("another request has to wait")
			}
			late, _ := rules.Remember(last, rules.Decide(need("sundae", test.live, owned)), test.out, test.live, last.At.Add(backoff.ForgetAfter))
			if late.Count != 1 {
				t.Errorf("%d writes in a row, the last of them long after the others", late.Count)
			}
		})
	}
}

func TestContestNamesTheOther(t *testing.T) {
	live := menu("cone", func(m *corev1.ConfigMap) {
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:today":{}}}`)}}
	})
	w, _ := rules.Remember(Write{}, rules.Decide(need("sundae", live, owned)), Outcome{}, live, start)
	if want := `What the controller writes keeps being undone, last by "kubectl" in data.today of ConfigMap "menu"; it waits longer each time before it repairs that`; w.Contest != want {
		t.Errorf("got %q, want %q", w.Contest, want)
	}
}

func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		need   Need
		stored *corev1.ConfigMap
		want   []string
	}{
		"created":           {need("sundae", nil), menu("sundae"), []string{`Created: Created ConfigMap "menu"`}},
		"adopted":           {need("sundae", menu("sundae"), orphaned), menu("sundae", version("2")), []string{`Adopted: Adopted ConfigMap "menu"`}},
		"updated":           {need("sundae", menu("cone"), owned), menu("sundae", version("2")), []string{`Updated: Updated ConfigMap "menu"`}},
		"nothing changed":   {need("sundae", menu("cone"), owned), menu("cone"), nil},
		"stored otherwise":  {need("sundae", nil), menu("SUNDAE"), []string{`Created: Created ConfigMap "menu"`, `Altered: The API server stored ConfigMap "menu" otherwise than requested, by an admission policy or webhook: data.today is "SUNDAE" instead of "sundae"`}},
		"stored so as ever": {need("sundae", menu("SUNDAE"), owned), menu("SUNDAE", version("2")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := rules.Decide(test.need)
			var got []string
			for _, e := range rules.Events(test.need, d, Outcome{Written: []metav1.Object{test.stored}}) {
				if !e.IsWrite || e.Type != corev1.EventTypeNormal {
					t.Errorf("got %+v", e)
				}
				got = append(got, e.Reason+": "+e.Note)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStripForeign(t *testing.T) {
	m := menu("sundae", func(m *corev1.ConfigMap) {
		m.Labels, m.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		m.OwnerReferences = []metav1.OwnerReference{{UID: "another", Controller: ptr.To(true)}}
	}, beingDeleted)
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences,
	}}
	StripForeign(m)
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestOutdated(t *testing.T) {
	o := NewOutdated(menu(""), start)
	if !o.Is(menu(""), start) || o.Is(menu("", version("2")), start) || o.Is(menu(""), start.Add(time.Minute)) || (Outdated{}).Is(menu(""), start) {
		t.Error("an outdated version is that version, for a minute")
	}
}

func TestMinRequeue(t *testing.T) {
	if backoff.MinRequeue(0, 2) != 2 || backoff.MinRequeue(2, 0) != 2 || backoff.MinRequeue(3, 2) != 2 || backoff.MinRequeue(0, 0) != 0 {
		t.Error("the shorter of two delays, of which zero is none")
	}
}
