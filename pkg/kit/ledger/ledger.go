package ledger

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// Each object can cause so many writes at once, and then one per interval; and as many of its
// status.
const (
	burst    = 30
	interval = 10 * time.Second
)

// Ledger has the accounts of all objects. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	accounts map[cache.ObjectName]*Account
}

// New returns an empty ledger.
func New() *Ledger { return &Ledger{accounts: map[cache.ObjectName]*Account{}} }

// Of returns the account of an object. It is about one identity, such as a UID: of another object
// with the same name, nothing is known.
func (l *Ledger) Of(name cache.ObjectName, identity types.UID) *Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[name]
	if a == nil || a.identity != identity {
		a = &Account{identity: identity}
		l.accounts[name] = a
	}
	return a
}

// Find returns the account of an object, or nil if nothing is known of it.
func (l *Ledger) Find(name cache.ObjectName, identity types.UID) *Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[name]; a != nil && a.identity == identity {
		return a
	}
	return nil
}

// Forget drops the account of an object that is gone.
func (l *Ledger) Forget(name cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.accounts, name)
}

// Account is what is known of one object. It is safe for concurrent use.
type Account struct {
	identity types.UID

	mu          sync.Mutex
	isInherited bool
	entries     []partEntry   // few: a map would be larger
	writes      *rate.Limiter // nil before the first
	statuses    *rate.Limiter
	status      Entry     // how often in a row the status was refused
	written     time.Time // when it was last written
	waiting     time.Time // since when a status waits; zero if none does
}

type partEntry struct {
	part string
	Entry
}

// entry returns the entry of a part.
func (a *Account) entry(part string) Entry {
	i := slices.IndexFunc(a.entries, func(e partEntry) bool { return e.part == part })
	if i < 0 {
		return Entry{}
	}
	return a.entries[i].Entry
}

// Standing is what an account says about some asks.
type Standing struct {
	Due     []Ask         // what may be asked for now
	IsOpen  bool          // something is not as asked for, and not because of admission
	Wait    time.Duration // until more may be asked for, or Undone ends; 0 if nothing is waited for
	Refusal error         // why the API server has refused what is not as asked for
	Undone  string        // who keeps undoing what was asked for
	IsFirst bool          // this process has asked for nothing before
	IsAgain bool          // what is due was undone so often that it is time to find out who it is
}

// Standing returns what the account says about asks. If several were refused, the first one counts.
func (a *Account) Standing(now time.Time, asks []Ask) Standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Standing{IsFirst: len(a.entries) == 0}
	for _, ask := range asks {
		e := a.entry(ask.Part)
		wait := e.Wait(ask, now)
		if wait != Forever {
			s.IsOpen = true
			if s.Refusal == nil && e.Goal == ask.Goal {
				s.Refusal = e.Refusal
			}
		}
		switch wait {
		case 0:
			s.Due = append(s.Due, ask)
			s.IsAgain = s.IsAgain || e.Goal == ask.Goal && e.Refusal == nil && e.Count+1 >= free
		case Forever:
		default:
			s.waitFor(wait)
			if e.Refusal == nil {
				s.Undone = e.Undone
			}
		}
		if e.IsContested(ask.Goal, now) {
			s.Undone = e.Undone
			s.waitFor(e.pause(now))
		}
	}
	return s
}

func (s *Standing) waitFor(d time.Duration) {
	if s.Wait == 0 || d < s.Wait {
		s.Wait = d
	}
}

// Note notes what came of asking.
func (a *Account) Note(now time.Time, ask Ask, outcome Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	outcome.Refusal = response.Brief(outcome.Refusal) // which can quote an object of any size
	next := a.entry(ask.Part).Then(ask.Goal, outcome, now)
	a.entries = slices.DeleteFunc(a.entries, func(e partEntry) bool { return e.part == ask.Part })
	a.entries = append(a.entries, partEntry{ask.Part, next})
}

// Inherit notes that the object was there before this process worked. A process before it may have
// asked for something.
func (a *Account) Inherit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isInherited = true
}

// IsKnown reports whether this process, or perhaps one before it, has asked for something.
func (a *Account) IsKnown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isInherited || len(a.entries) > 0
}

// Rest returns after what time nothing in the account matters any more, if nothing is asked for
// until then: the counts have ended. An object that should not exist can be forgotten then.
func (a *Account) Rest(now time.Time) (left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		left = max(left, e.At.Add(forgetAfter).Sub(now))
	}
	return left
}

// Spend returns 0 if the object may cause a write other than of its status now, which then counts.
// Otherwise it returns how long that takes.
func (a *Account) Spend(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return spend(&a.writes, now)
}

// SpendStatus returns 0 if the status may be written now, which then counts. Otherwise it returns after
// what time to ask again. The window is the minimum time since the last such write; 0 for what is
// urgent. A status also waits for half of it, since a later one often takes its place.
func (a *Account) SpendStatus(now time.Time, window time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting.IsZero() {
		a.waiting = now
	}
	if left := max(a.written.Add(window).Sub(now), a.waiting.Add(window/2).Sub(now)); left > 0 && window > 0 {
		return left
	}
	if left := a.status.pause(now); left > 0 {
		return left
	}
	left := spend(&a.statuses, now)
	if left == 0 {
		a.written, a.waiting = now, time.Time{}
	}
	return left
}

// Reported notes what came of writing the status. One that was refused waits like any write.
func (a *Account) Reported(now time.Time, refusal error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if refusal == nil {
		a.status = Entry{}
		return
	}
	a.status = a.status.Then("", Outcome{Refusal: refusal}, now)
}

// Settle says that the status is as it should be.
func (a *Account) Settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = time.Time{}
}

// spend takes a token. It returns how long that takes, and takes none if that is not 0.
func spend(budget **rate.Limiter, now time.Time) time.Duration {
	if *budget == nil {
		*budget = rate.NewLimiter(rate.Every(interval), burst)
	}
	reservation := (*budget).ReserveN(now, 1)
	left := reservation.DelayFrom(now)
	if left > 0 {
		reservation.CancelAt(now)
	}
	return left
}
