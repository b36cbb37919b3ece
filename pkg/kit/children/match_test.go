package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
)

// spec is what menus are made from.
type spec struct{ Today string }

// from makes a need's ConfigMap from a spec, with metadata, and counts how often.
func from(s any, today string, made *int) func(*Need) {
	return func(n *Need) {
		n.From = s
		n.Child = func() apply.Child {
			*made++
			return apply.Child{Resource: configMaps, Want: menu(today, func(m *corev1.ConfigMap) { m.UID, m.ResourceVersion = "", "" }, complete)}
		}
	}
}

// complete is the ConfigMap that from makes, as it is stored.
func complete(m *corev1.ConfigMap) {
	m.Labels, m.Annotations = map[string]string{"parlor": "main"}, map[string]string{"flavor": "mint"}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Parlor", Name: "main", UID: "owner", Controller: ptr.To(true)}}
}

// An object is compared once in each of its versions, and again when something else is
// wanted of it. Nothing that happens to it later is missed for that.
func TestMatch(t *testing.T) {
	for name, test := range map[string]struct {
		from    any // the spec, now; a sundae if nil
		today   string
		live    metav1.Object
		edit    func(*Need)
		verdict Verdict
		isKnown bool
	}{
		"nothing has changed":                {live: menu("sundae", complete), verdict: Converged, isKnown: true},
		"another way to say the same":        {from: &spec{"sundae"}, live: menu("sundae", complete), verdict: Converged, isKnown: true},
		"a version like the last one":        {live: menu("sundae", complete, version("2")), verdict: Converged},
		"another object like it":             {live: menu("sundae", complete, func(m *corev1.ConfigMap) { m.UID = "other" }), verdict: Converged},
		"other data":                         {live: menu("cone", complete, version("2")), verdict: Act},
		"a label is gone":                    {live: menu("sundae", complete, version("2"), func(m *corev1.ConfigMap) { m.Labels = nil }), verdict: Act},
		"another annotation":                 {live: menu("sundae", complete, version("2"), func(m *corev1.ConfigMap) { m.Annotations["flavor"] = "mud" }), verdict: Act},
		"an owner reference is edited":       {live: menu("sundae", complete, version("2"), func(m *corev1.ConfigMap) { m.OwnerReferences[0].Name = "other" }), verdict: Act},
		"someone adds a label":               {live: menu("sundae", complete, version("2"), func(m *corev1.ConfigMap) { m.Labels["a"] = "b" }), verdict: Converged},
		"something else is wanted":           {from: spec{"cone"}, today: "cone", live: menu("sundae", complete), verdict: Act},
		"the same is wanted of another spec": {from: spec{"Sundae"}, live: menu("sundae", complete), verdict: Converged},
		"it is another's now":                {live: menu("sundae", complete), edit: func(n *Need) { n.IsOwned = false }, verdict: Blocked},
		"it is an orphan now":                {live: menu("sundae", complete), edit: func(n *Need) { n.IsOwned, n.IsOrphan = false, true }, verdict: Act},
		"it is being deleted":                {live: menu("sundae", complete, beingDeleted), verdict: Wait, isKnown: true},
		"it is gone":                         {live: nil, verdict: Act},
		"the process is another":             {live: menu("sundae", complete), edit: func(n *Need) { n.Last = Write{} }, verdict: Converged},
		"it was written since": {live: menu("sundae", complete), edit: func(n *Need) {
			n.Last, _ = rules.Remember(n.Last, rules.Decide(need("sundae", nil)), Outcome{Written: []metav1.Object{n.Live}}, nil, start)
		}, verdict: Converged},
	} {
		t.Run(name, func(t *testing.T) {
			var made int
			first := rules.Decide(need("", menu("sundae", complete), owned, from(spec{"sundae"}, "sundae", &made)))
			if first.Verdict != Converged || first.Match == (Match{}) || made != 1 {
				t.Fatalf("at first: %+v, made %d times", first, made)
			}
			if test.from == nil {
				test.from = spec{"sundae"}
			}
			if test.today == "" {
				test.today = "sundae"
			}
			n := need("", test.live, owned, from(test.from, test.today, &made), func(n *Need) { n.Last.Match = first.Match })
			if test.edit != nil {
				test.edit(&n)
			}
			made = 0
			d := rules.Decide(n)
			if d.Verdict != test.verdict || (made == 0) != (test.isKnown || d.Verdict == Blocked) {
				t.Errorf("%+v, and the child was made %d times", d, made)
			}
			if (d.Match != (Match{})) != (d.Verdict == Converged) {
				t.Errorf("verdict %v with the match %x", d.Verdict, d.Match)
			}
		})
	}
}

// What the API server stores otherwise than requested is not compared in each sync, either.
func TestMatchOfWhatIsAccepted(t *testing.T) {
	n := need("sundae", menu("SUNDAE"), owned, func(n *Need) { n.From, n.Last = "sundae", stored(menu("SUNDAE")) })
	n.Last.Match = rules.Decide(n).Match
	n.Child = func() apply.Child { t.Error("it is compared again"); return apply.Child{} }
	if d := rules.Decide(n); d.Verdict != Converged {
		t.Errorf("got %+v", d)
	}
}

// Without a version, or without knowing what it is made from, an object is always compared.
func TestNoMatch(t *testing.T) {
	for name, edit := range map[string]func(*Need){
		"from nothing that is known":  func(n *Need) { n.From = nil },
		"from something without JSON": func(n *Need) { n.From = func() {} },
		"without a resourceVersion":   func(n *Need) { n.Live.SetResourceVersion("") },
	} {
		t.Run(name, func(t *testing.T) {
			var made int
			n := need("", menu("sundae", complete), owned, from(spec{"sundae"}, "sundae", &made), edit)
			for range 2 {
				n.Last.Match = rules.Decide(n).Match
			}
			if n.Last.Match != (Match{}) || made != 2 {
				t.Errorf("the match is %x, and the child was made %d times", n.Last.Match, made)
			}
		})
	}
}

func TestWrites(t *testing.T) {
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	var none Writes
	one := none.With(configMaps, Write{Want: "menu"})
	two := one.With(secrets, Write{Want: "recipe"})
	again := two.With(configMaps, Write{Want: "menu"}).With(configMaps, Write{Want: "card"})
	if len(none) != 0 || len(one) != 1 || len(two) != 2 || two[configMaps].Want != "menu" || two[secrets].Want != "recipe" {
		t.Errorf("none %v, one %v, two %v", none, one, two)
	}
	if len(again) != 2 || again[configMaps].Want != "card" || again[secrets].Want != "recipe" {
		t.Errorf("again %v", again)
	}
}
