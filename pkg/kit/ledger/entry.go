// Package ledger is what a controller remembers of its writes: what it last asked for, what came
// of it, and when it may ask again.
//
// An [Entry] is about one part of one object, such as the replicas of a Deployment, and says how
// long to wait from the response to the last write:
//
//	another goal than last time (somebody has edited it)      not at all
//	the same goal, which was refused                          1 s, doubling to 5 min, and some jitter
//	the same goal, and what is left is just what was left     for ever: admission made it so
//	the same goal, and anything else is left (undone)         not at all until the third write, then 5 s, doubling to 5 min
//
// Ten minutes without such a write end the count. A [Ledger] has an account of each object, with
// its entries and a budget: 30 writes at once, and one per 10 s. Nothing is shared between objects.
//
// A new process knows nothing: it asks once more for what admission has changed. That is why a
// mutating policy should act on updates as well as on creations.
package ledger

import (
	"hash/fnv"
	"math"
	"time"
)

// Ask is something to ask the API server for.
type Ask struct {
	Part string // of the object: each is remembered apart
	Goal string // identifies what is asked for; an edit makes another one
	Left string // identifies how the live object differs from that; empty if it does not
}

// Outcome is what came of a write.
type Outcome struct {
	Refusal error  // why it was refused; nil if it was stored
	Left    string // how the stored object differs from what was asked for; empty if it does not
	Undone  string // who had undone the write before, for people; empty if nobody had
}

// Entry is the last write of a part. The zero value means that there was none.
type Entry struct {
	Goal string
	Outcome
	Count int       // how often in a row the same goal had such an outcome
	At    time.Time // when the response came
}

// The constants of the table.
const (
	free        = 3
	firstRepair = 5 * time.Second
	firstRetry  = time.Second
	slowest     = 5 * time.Minute
	forgetAfter = 2 * slowest
)

// Forever is how long to wait with what there is no need to ask for.
const Forever = time.Duration(math.MaxInt64)

// Wait returns how long to wait before asking; 0 means that it can be done now.
func (e Entry) Wait(ask Ask, now time.Time) time.Duration {
	switch {
	case ask.Left == "":
		return Forever
	case e.Goal != ask.Goal:
		return 0
	case e.Refusal == nil && e.Left == ask.Left:
		return Forever
	}
	return e.pause(now)
}

// pause returns how much is left of the pause after the last write.
func (e Entry) pause(now time.Time) time.Duration {
	var all time.Duration
	switch {
	case e.Refusal != nil:
		all = e.jittered(doubled(firstRetry, e.Count-1))
	case e.Count >= free:
		all = doubled(firstRepair, e.Count-free)
	}
	return min(all, max(0, e.At.Add(all).Sub(now)))
}

// IsContested reports whether somebody keeps undoing the write of this goal.
func (e Entry) IsContested(goal string, now time.Time) bool {
	return e.Goal == goal && e.Refusal == nil && e.Count > free && e.pause(now) > 0
}

// Then returns the entry after another write.
func (e Entry) Then(goal string, o Outcome, now time.Time) Entry {
	next := Entry{Goal: goal, Outcome: o, Count: 1, At: now}
	if e.Goal == goal && (e.Refusal == nil) == (o.Refusal == nil) && now.Sub(e.At) < forgetAfter {
		next.Count += e.Count
	}
	return next
}

// jittered adds up to a fifth, which differs from entry to entry: what was refused at once is not
// asked for at once again.
func (e Entry) jittered(d time.Duration) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(e.Goal)) // never fails
	_, _ = hash.Write([]byte(e.At.String()))
	return d + time.Duration(float64(d)*float64(hash.Sum32())/math.MaxUint32/5)
}

// doubled returns d after doubling it, but at most slowest.
func doubled(d time.Duration, times int) time.Duration {
	for range times {
		if d *= 2; d >= slowest {
			return slowest
		}
	}
	return d
}
