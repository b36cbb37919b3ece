package leader

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// began is when the tests of the candidate begin.
var began = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

// happening is something that happens to a candidate, and what it does next. It is the
// first step of a test if nothing happens.
type happening struct {
	after int // seconds since the test began
	what  func(c *candidate, now time.Time)
	want  string
}

// lasts is how long a Lease lasts.
const lasts = 15 * time.Second

// heldBy returns what a Lease says that somebody holds.
func heldBy(holder, version string) record {
	return record{exists: true, version: version, holder: holder, duration: lasts}
}

func free(version string) record {
	return record{exists: true, version: version, duration: time.Second}
}

func nothing(*candidate, time.Time) {}

// answers is a response to the request of the candidate.
func answers(how outcome, found record) func(*candidate, time.Time) {
	return func(c *candidate, now time.Time) { c.answered(now, how, found, 3*time.Second) }
}

// shows is an event of the watch of a Lease.
func shows(lease int, r record) func(*candidate, time.Time) {
	return func(c *candidate, now time.Time) { c.saw(lease, r, now, 3*time.Second) }
}

// watching is that the watch of a Lease begins or ends.
func watching(lease int, begins bool) func(*candidate, time.Time) {
	return func(c *candidate, now time.Time) { c.watches(lease, begins, now, 3*time.Second) }
}

func told(c *candidate, _ time.Time)     { c.stop() }
func returned(c *candidate, _ time.Time) { c.finish(true) }
func inDoubt(c *candidate, _ time.Time)  { c.finish(false) }

// elected leads since the test began.
var elected = []happening{
	{0, nothing, "read 0"},
	{0, watching(0, true), "wait"},
	{0, answers(done, record{}), "create 0"},
	{0, answers(done, heldBy("me", "1")), "leads until 2s"},
}

// following is elected by two Leases, of which the former exists.
var following = []happening{
	{0, nothing, "read 1"},
	{0, answers(done, record{}), "read 0"},
	{0, answers(done, free("1")), "update 0 1"},
	{0, answers(done, heldBy("me", "2")), "create 1"},
	{0, answers(done, heldBy("me", "3")), "leads until 2s"},
	{0, watching(0, true), "leads until 2s"},
	{0, watching(1, true), "leads until 2s"},
}

func TestCandidate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		follows bool
		begins  []happening
		goesOn  []happening
	}{
		{name: "the holder renews its Lease", begins: elected, goesOn: []happening{
			{2, nothing, "update 0 1"},
			{3, answers(done, heldBy("me", "2")), "leads until 4s"},
			{4, nothing, "update 0 2"},
			{4, shows(0, heldBy("me", "2")), "leads until 12s"},
		}},
		{name: "a standby relies on its watch", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{1, answers(done, heldBy("other", "1")), "wait until 16s"},
			{3, shows(0, heldBy("other", "2")), "wait until 18s"},
			{3, shows(0, heldBy("other", "2")), "wait until 18s"},
			{5, shows(0, heldBy("other", "3")), "wait until 20s"},
			{20, nothing, "update 0 3"},
			{21, answers(done, heldBy("me", "4")), "leads until 22s"},
		}},
		{name: "a standby takes what is released", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{0, answers(done, heldBy("other", "1")), "wait until 15s"},
			{5, shows(0, free("2")), "update 0 2"},
			{5, answers(refused, record{}), "read 0"},
			{5, answers(done, heldBy("third", "3")), "wait until 20s"},
		}},
		{name: "a standby without a watch reads from time to time", begins: []happening{
			{0, nothing, "read 0"},
			{0, answers(done, heldBy("other", "1")), "wait until 3s"},
			{3, nothing, "read 0"},
			{3, answers(failed, record{}), "wait until 6s"},
			{6, nothing, "read 0"},
			{6, answers(done, heldBy("other", "1")), "wait until 9s"},
			{7, watching(0, true), "wait until 15s"},
			{8, watching(0, false), "wait until 11s"},
		}},
		{name: "a standby lets the holder of a deleted Lease notice first", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{0, answers(done, heldBy("other", "1")), "wait until 15s"},
			{5, shows(0, record{}), "wait until 8s"},
			{8, nothing, "read 0"},
			{8, answers(done, record{}), "create 0"},
		}},
		{name: "a read that the watch has overtaken says nothing", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{0, shows(0, heldBy("other", "2")), "wait"},
			{0, answers(done, heldBy("other", "1")), "read 0"},
			{1, answers(done, heldBy("other", "2")), "wait until 15s"},
		}},
		{name: "a failure is followed by a pause", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{0, answers(done, free("1")), "update 0 1"},
			{1, answers(failed, record{}), "wait until 3s"},
			{3, nothing, "update 0 1"},
		}},
		{name: "a refusal without a change is followed by a pause", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{0, answers(done, free("1")), "update 0 1"},
			{0, answers(refused, record{}), "read 0"},
			{0, answers(done, free("1")), "wait until 3s"},
		}},
		{name: "a response that comes too late is no election", begins: []happening{
			{0, nothing, "read 0"},
			{0, watching(0, true), "wait"},
			{0, answers(done, free("1")), "update 0 1"},
			{10, answers(done, heldBy("me", "2")), "update 0 2"},
			{11, answers(done, heldBy("me", "3")), "leads until 12s"},
		}},
		{name: "a term counts from the request, not from the response", begins: elected, goesOn: []happening{
			{2, nothing, "update 0 1"},
			{6, answers(done, heldBy("me", "2")), "update 0 2"},
			{11, nothing, "leads until 12s"},
			{12, nothing, "lose"},
		}},
		{name: "a renewal whose response was lost", begins: elected, goesOn: []happening{
			{2, nothing, "update 0 1"},
			{3, answers(failed, record{}), "leads until 5s"},
			{5, nothing, "update 0 1"},
			{5, answers(refused, record{}), "read 0"},
			{5, answers(done, heldBy("me", "2")), "update 0 2"},
			{5, answers(done, heldBy("me", "3")), "leads until 7s"},
		}},
		{name: "a leader does not believe an old event", begins: elected, goesOn: []happening{
			{1, shows(0, heldBy("other", "0")), "read 0"},
			{1, answers(done, heldBy("me", "1")), "leads until 2s"},
			{1, shows(0, record{}), "read 0"},
			{1, answers(failed, record{}), "leads until 2s"},
		}},
		{name: "a leader whose Lease was taken", begins: elected, goesOn: []happening{
			{1, shows(0, heldBy("other", "2")), "read 0"},
			{1, answers(done, heldBy("other", "2")), "lose"},
		}},
		{name: "a leader whose Lease was deleted", begins: elected, goesOn: []happening{
			{2, nothing, "update 0 1"},
			{2, answers(refused, record{}), "read 0"},
			{2, answers(done, record{}), "lose"},
		}},
		{name: "a Lease that is deleted during a renewal is read after it", begins: elected, goesOn: []happening{
			{2, nothing, "update 0 1"},
			{2, shows(0, record{}), "leads until 10s"},
			{2, answers(done, heldBy("me", "2")), "read 0"},
			{2, answers(done, record{}), "lose"},
		}},
		{name: "a leader that is told to end goes on until its work has returned", begins: elected, goesOn: []happening{
			{1, told, "leads until 2s"},
			{2, nothing, "update 0 1"},
			{2, answers(done, heldBy("me", "2")), "leads until 4s"},
			{3, returned, "release 0 2"},
			{3, answers(refused, record{}), "read 0"},
			{3, answers(done, heldBy("me", "3")), "release 0 3"},
			{3, answers(done, free("4")), "end"},
		}},
		{name: "a leader that is told to end during a renewal", begins: elected, goesOn: []happening{
			{2, nothing, "update 0 1"},
			{2, returned, "wait"},
			{2, answers(done, heldBy("me", "2")), "release 0 2"},
			{2, answers(failed, record{}), "end"},
		}},
		{name: "a leader with a write in doubt releases nothing", begins: elected, goesOn: []happening{
			{1, inDoubt, "end"},
		}},
		{name: "a standby that is told to end takes nothing along", begins: []happening{
			{0, nothing, "read 0"},
			{0, answers(done, heldBy("other", "1")), "wait until 3s"},
			{1, told, "end"},
		}},
		{name: "both Leases are renewed, and released in reverse", follows: true, begins: following, goesOn: []happening{
			{2, nothing, "update 0 2"},
			{2, answers(done, heldBy("me", "4")), "update 1 3"},
			{2, answers(done, heldBy("me", "5")), "leads until 4s"},
			{3, returned, "release 1 5"},
			{3, answers(done, free("6")), "release 0 4"},
			{3, answers(done, free("7")), "end"},
		}},
		{name: "the former Lease is deleted during a term", follows: true, begins: following, goesOn: []happening{
			{1, shows(0, record{}), "read 0"},
			{1, answers(done, record{}), "lose"},
		}},
		{name: "the former Lease counts only while it exists", follows: true, begins: []happening{
			{0, nothing, "read 1"},
			{0, watching(0, true), "wait"},
			{0, watching(1, true), "wait"},
			{0, answers(done, heldBy("other", "1")), "read 0"},
			{0, answers(done, record{}), "wait until 15s"},
			{1, shows(0, free("2")), "update 0 2"},
			{1, answers(refused, record{}), "read 0"},
			{1, answers(done, record{}), "wait until 15s"},
			// Own is free. A watch may be late, so the former Lease is looked for again.
			{2, shows(1, free("3")), "read 0"},
			{2, answers(done, record{}), "update 1 3"},
			{2, answers(done, heldBy("me", "4")), "leads until 4s"},
			{2, shows(0, record{}), "read 0"},
			{2, answers(done, record{}), "leads until 4s"},
			{3, shows(0, heldBy("old", "5")), "read 0"},
			{3, answers(done, heldBy("old", "5")), "lose"},
		}},
		{name: "the former Lease is deleted while the own one is taken", follows: true, begins: following[:4], goesOn: []happening{
			{0, shows(0, record{}), "wait"},
			{0, answers(done, heldBy("me", "3")), "wait until 3s"},
			{3, nothing, "read 1"},
			{3, answers(done, heldBy("me", "3")), "read 0"},
			{3, answers(done, record{}), "update 1 3"},
			{3, answers(done, heldBy("me", "4")), "leads until 5s"},
		}},
		{name: "one Lease of two is kept, and is not enough", follows: true, begins: []happening{
			{0, nothing, "read 1"},
			{0, watching(0, true), "wait"},
			{0, watching(1, true), "wait"},
			{0, answers(done, heldBy("other", "1")), "read 0"},
			{0, answers(done, free("2")), "update 0 2"},
			{0, answers(done, heldBy("me", "3")), "wait until 2s"},
			{2, nothing, "update 0 3"},
			{2, answers(done, heldBy("me", "4")), "wait until 4s"},
			{3, told, "release 0 4"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCandidate("me", 10*time.Second, 2*time.Second)
			if tt.follows {
				c.follow()
			}
			for i, h := range slices.Concat(tt.begins, tt.goesOn) {
				now := began.Add(time.Duration(h.after) * time.Second)
				h.what(&c, now)
				if got := describe(c.next(now), c.phase); got != h.want {
					t.Fatalf("happening %d, after %ds: %s, want %s", i+1, h.after, got, h.want)
				}
			}
		})
	}
}

// describe returns a step as a text.
func describe(s step, p phase) string {
	switch s.do {
	case waitUntil:
		text := "wait"
		if p == leading {
			text = "leads"
		}
		if s.until.IsZero() {
			return text
		}
		return fmt.Sprint(text, " until ", s.until.Sub(began))
	case read:
		return fmt.Sprint("read ", s.lease)
	case create:
		return fmt.Sprint("create ", s.lease)
	case update:
		return fmt.Sprint("update ", s.lease, " ", s.version)
	case release:
		return fmt.Sprint("release ", s.lease, " ", s.version)
	case lose:
		return "lose"
	case end:
		return "end"
	}
	return "?"
}
