package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhatANamespaceSays(t *testing.T) {
	for value, want := range map[string]answer{
		"": yes, "true": yes, "Yes": yes, "on": yes, "1": yes,
		"false": no, "False": no,
		"no": unclear, "off": unclear, "0": unclear, "ture": unclear, "disabled": unclear, "false\t": unclear, "*": unclear, "team-a": unclear,
	} {
		if got := answerOf(newNamespace("team-a", saying(value))); got != want {
			t.Errorf("%q means %d, want %d", value, got, want)
		}
	}
	if got := answerOf(newNamespace("team-a")); got != silent {
		t.Errorf("without the annotation, it says %d", got)
	}
}

// A source says which namespaces get a copy. What could mean all or nobody is unclear.
func TestWhatASourceSays(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  string // of team-a, team-b and web
		why   string // it is unclear
	}{
		{value: "*", want: "team-a team-b web"},
		{value: "team-b", want: "team-b"},
		{value: "team-b, web,x", want: "team-b web"},
		{value: "team-*", want: "team-a team-b"},
		{value: "t*b\nw*", want: "team-b web"},
		{value: "other", want: ""},
		{value: "false", want: ""},
		{value: "FALSE", want: ""},
		{value: "", why: "must list namespaces"},
		{value: " , ", why: "must list namespaces"},
		{value: "true", why: `"true" in its value`},
		{value: "Yes", why: `"Yes" in its value`},
		{value: "on", why: `"on" in its value`},
		{value: "1", why: `"1" in its value`},
		{value: "no", why: `"no" in its value`},
		{value: "off", why: `"off" in its value`},
		{value: "0", why: `"0" in its value`},
		{value: "team-a, false", why: `"false" in its value`},
		{value: "team-a,Team_B", why: `"Team_B" in its value`},
		{value: "team-a;team-b", why: `"team-a;team-b" in its value`},
		{value: "env=prod", why: `"env=prod" in its value`},
		{value: "team-[ab]", why: `"team-[ab]" in its value`},
	} {
		source := newSource("db", "1", listing(tt.value))
		stripSource(source)
		var got []string
		for _, namespace := range []string{"team-a", "team-b", "web"} {
			answer := answerTo(namespace, source)
			if (answer == unclear) != (tt.why != "") || (answer == no) != strings.EqualFold(tt.value, "false") {
				t.Errorf("%q means %d", tt.value, answer)
			}
			if answer == yes {
				got = append(got, namespace)
			}
		}
		equal(t, tt.value, tt.want, strings.Join(got, " "))
		if why := whyUnclear(source); !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
			t.Errorf("%q is unclear because %q, want %q", tt.value, why, tt.why)
		}
	}
	for _, kind := range uncopied {
		source := newSource("db", "1", ofType(kind))
		if answerTo("team-a", source) != unclear || !strings.Contains(whyUnclear(source), string(kind)) {
			t.Errorf("a Secret of type %s is copied", kind)
		}
		if listing("false")(source); answerTo("team-a", source) != no {
			t.Errorf("a Secret of type %s cannot say false", kind)
		}
	}
	if source := newSource("db", "1", unmarked, ofType(corev1.SecretTypeServiceAccountToken)); answerTo("team-a", source) != silent || whyUnclear(source) != "" {
		t.Error("a Secret without the annotation says something")
	}
}
