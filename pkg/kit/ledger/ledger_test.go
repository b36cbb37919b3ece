package ledger_test

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

var (
	noon      = time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)
	name      = cache.NewObjectName("parlor", "sundae")
	errMelted = errors.New("melted")
	ask       = ledger.Ask{Part: "shape", Goal: "vanilla", Left: "everything"}
)

// waits returns how long the account makes one wait before each of so many writes.
func waits(writes int, ask ledger.Ask, outcome ledger.Outcome) (waits []time.Duration) {
	account, now := ledger.New().Of(name, "1"), noon
	for range writes {
		wait := account.Standing(now, []ledger.Ask{ask}).Wait
		now = now.Add(wait)
		waits = append(waits, wait)
		account.Note(now, ask, outcome)
	}
	return waits
}

func seconds(numbers ...int) (all []time.Duration) {
	for _, n := range numbers {
		all = append(all, time.Duration(n)*time.Second)
	}
	return all
}

// What is refused waits from one second to five minutes, and up to a fifth longer.
func TestRefused(t *testing.T) {
	for i, least := range seconds(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300) {
		if got := waits(12, ask, ledger.Outcome{Refusal: errMelted})[i]; got < least || got > least*6/5 {
			t.Errorf("wait %d is %s, want from %s to a fifth more", i, got, least)
		}
	}
}

// What is undone waits for nothing three times, and then from five seconds to five minutes.
func TestUndone(t *testing.T) {
	got := waits(12, ask, ledger.Outcome{})
	for i, want := range seconds(0, 0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300) {
		if got[i] != want {
			t.Errorf("wait %d is %s, want %s", i, got[i], want)
		}
	}
}

func TestStanding(t *testing.T) {
	altered := ask
	altered.Left = "chocolate"
	edited := ask
	edited.Goal = "mint"
	done := ask
	done.Left = ""
	for about, test := range map[string]struct {
		noted []ledger.Outcome
		ask   ledger.Ask
		after time.Duration
		want  string
	}{
		"never asked for":                     {nil, ask, 0, "due"},
		"as asked for":                        {[]ledger.Outcome{{}}, done, 0, "settled"},
		"altered by admission":                {[]ledger.Outcome{{Left: "chocolate"}}, altered, 0, "settled"},
		"altered, and then by somebody":       {[]ledger.Outcome{{Left: "chocolate"}}, ask, 0, "due"},
		"no longer altered":                   {[]ledger.Outcome{{Left: "chocolate"}}, done, 0, "settled"},
		"refused":                             {[]ledger.Outcome{{Refusal: errMelted}}, ask, 0, "open, refused, waits"},
		"refused for a while":                 {[]ledger.Outcome{{Refusal: errMelted}}, ask, 2 * time.Second, "due, refused"},
		"refused, and then edited":            {[]ledger.Outcome{{Refusal: errMelted}}, edited, 0, "due"},
		"refused, and then as it should be":   {[]ledger.Outcome{{Refusal: errMelted}}, done, 0, "settled"},
		"undone three times":                  {make([]ledger.Outcome, 2), ask, 0, "due"},
		"undone once more":                    {[]ledger.Outcome{{}, {}, {Undone: "by helm"}}, ask, 0, "open, undone by helm, waits"},
		"repaired, but not for long":          {[]ledger.Outcome{{}, {}, {}, {Undone: "by helm"}}, done, 0, "undone by helm, waits"},
		"repaired for as long as it waited":   {[]ledger.Outcome{{}, {}, {}, {Undone: "by helm"}}, done, 10 * time.Second, "settled"},
		"undone again after ten minutes":      {make([]ledger.Outcome, 9), ask, 10 * time.Minute, "due"},
		"the clock was set back meanwhile":    {make([]ledger.Outcome, 9), ask, -time.Hour, "open, waits"},
		"refused, and the clock was set back": {[]ledger.Outcome{{Refusal: errMelted}}, ask, -time.Hour, "open, refused, waits"},
	} {
		t.Run(about, func(t *testing.T) {
			account := ledger.New().Of(name, "1")
			for _, outcome := range test.noted {
				account.Note(noon, ask, outcome)
			}
			s := account.Standing(noon.Add(test.after), []ledger.Ask{test.ask})
			if got := inWords(s); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if s.Wait > 5*time.Minute+time.Minute {
				t.Errorf("it waits for %s", s.Wait)
			}
		})
	}
}

func inWords(s ledger.Standing) string {
	var words []string
	for _, word := range []struct {
		is   bool
		word string
	}{
		{len(s.Due) > 0, "due"},
		{s.IsOpen && len(s.Due) == 0, "open"},
		{s.Refusal != nil, "refused"},
		{s.Undone != "", "undone " + s.Undone},
		{s.Wait > 0, "waits"},
	} {
		if word.is {
			words = append(words, word.word)
		}
	}
	return cmp.Or(strings.Join(words, ", "), "settled")
}

// Of parts, each has its own past: what is wrong with one delays no other.
func TestParts(t *testing.T) {
	account, replicas := ledger.New().Of(name, "1"), ledger.Ask{Part: "replicas", Goal: "3", Left: "2"}
	account.Note(noon, ask, ledger.Outcome{Refusal: errMelted})
	s := account.Standing(noon, []ledger.Ask{ask, replicas})
	if len(s.Due) != 1 || s.Due[0] != replicas || s.Refusal == nil || s.Wait == 0 {
		t.Errorf("%+v", s)
	}
}

// Nothing is known of another object with the name, nor of one that was forgotten.
func TestIdentity(t *testing.T) {
	l := ledger.New()
	if l.Find(name, "1") != nil {
		t.Error("something is known of an object that nobody has asked about")
	}
	account := l.Of(name, "1")
	account.Note(noon, ask, ledger.Outcome{Refusal: errMelted})
	isKnown := func(identity types.UID) bool { return l.Of(name, identity).Rest(noon) > 0 }
	if l.Find(name, "1") != account || l.Find(name, "2") != nil || !isKnown("1") {
		t.Error("an object does not have an account of its own")
	}
	if isKnown("2") || isKnown("1") {
		t.Error("it counts for another one")
	}
	l.Of(name, "1").Note(noon, ask, ledger.Outcome{})
	l.Forget(name)
	if isKnown("1") {
		t.Error("it was not forgotten")
	}
}

// An account says when nothing in it matters any more.
func TestRest(t *testing.T) {
	account := ledger.New().Of(name, "1")
	account.Note(noon, ask, ledger.Outcome{Refusal: errMelted})
	account.Note(noon.Add(time.Minute), ledger.Ask{Part: "replicas", Goal: "3"}, ledger.Outcome{})
	for after, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Minute, 10 * time.Minute: time.Minute, time.Hour: 0} {
		if got := account.Rest(noon.Add(after)); got != want {
			t.Errorf("after %s, it matters for %s more, want %s", after, got, want)
		}
	}
}

// Whatever happens, and whenever one asks, an object causes at most 30 writes at once and one per
// ten seconds, and the same goal far fewer.
func TestNothingIsAHotLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		account, now := ledger.New().Of(name, "1"), noon
		isOneGoal := rapid.Bool().Draw(t, "one goal")
		goal, writes := 0, 0
		for range rapid.IntRange(1, 2000).Draw(t, "events") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second}).Draw(t, "time"))
			if !isOneGoal && rapid.IntRange(0, 2).Draw(t, "edit") == 0 {
				goal++
			}
			asks := []ledger.Ask{{Part: "shape", Goal: fmt.Sprint(goal), Left: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "left")}}
			due := account.Standing(now, asks).Due
			if len(due) == 0 || account.Spend(now) > 0 {
				continue
			}
			writes++
			account.Note(now, due[0], ledger.Outcome{
				Refusal: rapid.SampledFrom([]error{nil, errMelted}).Draw(t, "refusal"),
				Left:    rapid.SampledFrom([]string{"", "a"}).Draw(t, "altered"),
			})
		}
		took := now.Sub(noon)
		if most := 31 + int(took/(10*time.Second)); writes > most {
			t.Fatalf("%d writes in %s, want at most %d", writes, took, most)
		}
	})
}

// The API server quotes what it refuses. Of that, a kilobyte is remembered.
func TestRefusalsAreShort(t *testing.T) {
	account := ledger.New().Of(name, "1")
	long := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "sundae", errors.New(strings.Repeat("melted ", 100_000)))
	account.Note(noon, ask, ledger.Outcome{Refusal: long})
	refusal := account.Standing(noon, []ledger.Ask{ask}).Refusal
	if !apierrors.IsForbidden(refusal) || len(refusal.Error()) > 1024 {
		t.Errorf("%d bytes are kept of %.100v", len(refusal.Error()), refusal)
	}
}
