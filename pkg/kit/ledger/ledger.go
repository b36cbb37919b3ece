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

// Each object can cause so many writes at once, and then one per interval.
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

	mu      sync.Mutex
	entries []partEntry   // few: a map would be larger
	writes  *rate.Limiter // nil before the first
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
}

// Standing returns what the account says about asks. If several were refused, the first one counts.
func (a *Account) Standing(now time.Time, asks []Ask) Standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	var s Standing
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

// Spend returns 0 if the object may cause a write now, which then counts. Otherwise it returns how long that
// takes.
func (a *Account) Spend(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes == nil {
		a.writes = rate.NewLimiter(rate.Every(interval), burst)
	}
	reservation := a.writes.ReserveN(now, 1)
	left := reservation.DelayFrom(now)
	if left > 0 {
		reservation.CancelAt(now)
	}
	return left
}
