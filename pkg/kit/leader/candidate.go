package leader

import "time"

// candidate is what one process knows of the Leases of an election, and what it decides
// from that. It has no clock, and sends nothing: Run asks it for the next step, and tells it
// what has happened.
//
// A process leads while it holds all Leases. It takes them in order, and releases them in
// reverse. Each write requires the resource version that the process has seen, so it
// fails if the Lease has changed since; whatever else the process believes wrongly only
// costs time.
type candidate struct {
	identity string
	deadline time.Duration // how long a write keeps a Lease, for its holder
	retry    time.Duration // between two renewals
	leases   [2]leaseState // the own Lease is the last
	count    int           // of leases
	phase    phase
	led      bool  // it has led, or leads
	released bool  // it has released all that it held
	request  step  // that has not been answered
	lost     cause // why it has lost
}

// phase is how far a candidate has got.
type phase int

const (
	standby phase = iota
	leading
	ending // it releases what it holds
	ended
	lost
)

// cause is how a Lease was lost.
type cause struct {
	how   string
	lease int
}

const (
	taken   = "another process has taken"
	deleted = "somebody has deleted"
)

// record is what a Lease says, or that there is none.
type record struct {
	exists   bool
	version  string
	holder   string // empty if the Lease is free
	duration time.Duration
	renewed  time.Time // by the clock of the holder, so it only shows that something has changed
}

// leaseState is what a candidate knows of a Lease.
type leaseState struct {
	record    record
	seen      time.Time // when the process first saw that record; or last, that there is no Lease
	isStale   bool      // it has to be read before it is taken, and before this process leads
	isWatched bool
	sent      time.Time // when the last successful write was sent; zero if there was none
	noRead    time.Time // it is not read before then
	noWrite   time.Time // it is not written before then
}

// step is what a candidate does next.
type step struct {
	do      action
	lease   int       // its index
	version string    // that the process knows; for an update or a release, the Lease must have it
	until   time.Time // of a wait; if zero, until something happens
	sent    time.Time // of a request
}

type action int

const (
	waitUntil action = iota
	read
	create
	update
	release
	lose // the process no longer leads, though its work may be running
	end  // nothing is left to do
)

// outcome is how a request ended.
type outcome int

const (
	done    outcome = iota
	refused         // the Lease is not as the write required
	failed          // for another reason; the request may still be carried out
)

// newCandidate returns a candidate that knows nothing yet.
func newCandidate(identity string, deadline, retry time.Duration) candidate {
	c := candidate{identity: identity, deadline: deadline, retry: retry, count: 1}
	c.leases[0].isStale = true
	return c
}

// follow puts a Lease before the own one. It counts only as long as it exists.
func (c *candidate) follow() {
	c.leases[1], c.count = c.leases[0], 2
}

// isOptional reports whether this process may lead if there is no such Lease.
func (c *candidate) isOptional(lease int) bool { return lease < c.count-1 }

// isAbsent reports whether there is no such Lease.
func (l *leaseState) isAbsent() bool { return !l.record.exists && !l.isStale }

// freeAt returns when the Lease may be taken. Others count its duration from when they saw
// it, because clocks need not agree.
func (l *leaseState) freeAt(identity string) time.Time {
	switch l.record.holder {
	case identity: // a write has succeeded, but its response did not arrive in time
		return time.Time{}
	case "":
		return l.seen
	}
	return l.seen.Add(l.record.duration)
}

// left returns for how long it remains certain that nobody else holds the Lease: its
// duration counts from when the last write was sent. The wall clock goes on while a machine
// sleeps, and the monotonic clock cannot be set; the one that has advanced more counts.
func (c *candidate) left(lease int, now time.Time) time.Duration {
	l := &c.leases[lease]
	if l.record.holder != c.identity || l.sent.IsZero() {
		return 0
	}
	return c.deadline - max(now.Sub(l.sent), now.Round(0).Sub(l.sent.Round(0)))
}

// validFor returns for how long it remains certain that no other process leads. It is not
// positive if this one does not lead.
func (c *candidate) validFor(now time.Time) time.Duration {
	if c.phase != leading {
		return 0
	}
	valid := c.deadline
	for i := range c.count {
		if c.leases[i].record.exists || !c.isOptional(i) {
			valid = min(valid, c.left(i, now))
		}
	}
	return valid
}

// waitsFor returns the holder of the first Lease that this process does not hold.
func (c *candidate) waitsFor() string {
	for i := range c.count {
		if holder := c.leases[i].record.holder; holder != c.identity && holder != "" {
			return holder
		}
	}
	return ""
}

// next returns what to do now. If that is a request, it has to be sent, and answered has to
// be called when it has ended.
func (c *candidate) next(now time.Time) step {
	var s step
	switch {
	case c.phase == lost || c.phase == leading && c.validFor(now) <= 0:
		return step{do: lose}
	case c.phase == ended:
		return step{do: end}
	case c.request.do != waitUntil:
	case c.phase == ending:
		s = c.nextRelease(now)
	default:
		s = c.nextRequest(now)
	}
	if s.do != waitUntil {
		s.sent, s.version = now, c.leases[s.lease].record.version
		c.request = s
	} else if c.phase == leading {
		s.wake(now.Add(c.validFor(now)))
	}
	return s
}

// wake limits a wait.
func (s *step) wake(at time.Time) {
	if s.until.IsZero() || at.Before(s.until) {
		s.until = at
	}
}

// nextRequest returns how to get the Leases, or keep them.
func (c *candidate) nextRequest(now time.Time) (s step) {
	// The own Lease is read first, so that what is known of the former one is newer.
	for i := c.count - 1; i >= 0; i-- {
		l := &c.leases[i]
		if !l.isStale && (l.isWatched || c.phase == leading) {
			continue
		}
		if !now.Before(l.noRead) {
			return step{do: read, lease: i}
		}
		s.wake(l.noRead)
	}
	for i := range c.count {
		l := &c.leases[i]
		at := l.noWrite
		switch {
		case l.isStale && c.phase == standby:
			return s
		case !l.record.exists && c.isOptional(i):
			continue
		case c.left(i, now) > 0:
			if now.Before(at) {
				s.wake(at)
				continue
			}
		default:
			free := l.freeAt(c.identity)
			if free.After(at) {
				at = free
			}
			if now.Before(at) {
				s.wake(at)
				return s
			}
			// Nobody may have led by the former Lease since this one was free.
			if former := &c.leases[0]; i > 0 && former.isAbsent() && former.seen.Before(free) {
				if now.Before(former.noRead) {
					s.wake(former.noRead)
					return s
				}
				return step{do: read}
			}
		}
		if !l.record.exists {
			return step{do: create, lease: i}
		}
		return step{do: update, lease: i}
	}
	return s
}

// nextRelease returns how to release what this process holds.
func (c *candidate) nextRelease(now time.Time) (s step) {
	for i := c.count - 1; i >= 0; i-- {
		l := &c.leases[i]
		switch {
		case l.record.holder != c.identity:
			continue
		case l.isStale && !now.Before(l.noRead):
			return step{do: read, lease: i}
		case l.isStale:
			s.wake(l.noRead)
			return s
		case now.Before(l.noWrite):
			s.wake(l.noWrite)
			return s
		}
		return step{do: release, lease: i}
	}
	return step{do: end}
}

// answered is called when a request has ended. If that is done, found is the Lease as it
// is now. After a failure there is a pause.
func (c *candidate) answered(now time.Time, how outcome, found record, pause time.Duration) {
	s := c.request
	c.request = step{}
	l := &c.leases[s.lease]
	switch {
	case how == failed && c.phase == ending:
		c.phase, c.released = ended, false
	case how == failed && s.do == read:
		l.noRead = s.sent.Add(pause)
	case how == failed:
		l.noWrite = s.sent.Add(pause)
	case l.record.version != s.version && (how == refused || s.do == read && found != l.record):
		// The watch has shown a change meanwhile; which of the two is newer is not known.
		l.isStale, l.noRead = true, time.Time{}
	case how == refused:
		l.isStale, l.noRead, l.noWrite = true, time.Time{}, s.sent.Add(pause)
	case s.do == read:
		l.noRead = time.Time{}
		if !l.isWatched {
			l.noRead = now.Add(pause)
		}
		c.found(s.lease, found, now)
	case s.do == release:
		l.record, l.sent, c.released = found, time.Time{}, true
	default:
		l.record, l.seen = found, now
		if l.isStale { // an event says something else, which may be newer
			l.noRead = time.Time{}
		}
		l.sent, l.noWrite = s.sent, s.sent.Add(c.retry)
		if c.phase == ending {
			l.noWrite = time.Time{}
		}
	}
	c.elect(now)
}

// found is called with what the API server has stored.
func (c *candidate) found(lease int, r record, now time.Time) {
	l := &c.leases[lease]
	if c.phase == leading {
		isHeld := l.record.exists
		switch {
		case isHeld && !r.exists:
			c.phase, c.lost = lost, cause{deleted, lease}
			return
		case r.exists && (!isHeld || r.holder != c.identity):
			c.phase, c.lost = lost, cause{taken, lease}
			return
		}
	}
	l.believe(r, now)
}

// believe records what a Lease says. A change is a reason to try at once.
func (l *leaseState) believe(r record, now time.Time) {
	if r != l.record || !r.exists {
		l.seen = now
	}
	if r != l.record {
		l.record, l.noWrite = r, time.Time{}
	}
	l.isStale = false
}

// elect begins to lead if it is certain that this process holds all Leases.
func (c *candidate) elect(now time.Time) {
	for i := range c.count {
		isSkipped := c.isOptional(i) && c.leases[i].isAbsent()
		if !isSkipped && (c.leases[i].isStale || c.left(i, now) <= 0) {
			return
		}
	}
	if c.phase == standby {
		c.phase, c.led = leading, true
	}
}

// saw is called with what a watch shows, which may be old.
func (c *candidate) saw(lease int, r record, now time.Time, pause time.Duration) {
	l := &c.leases[lease]
	switch {
	case c.phase == leading:
		if !r.exists || r.holder != c.identity || !l.record.exists {
			l.isStale, l.noRead = true, time.Time{}
		}
	case c.phase == standby && r.exists:
		l.believe(r, now)
		c.elect(now)
	case c.phase == standby: // The pause lets the holder notice first.
		l.isStale, l.noRead = true, now.Add(pause)
	}
}

// watches is called when the watch of a Lease has begun or ended. Without it, a candidate
// reads the Lease from time to time.
func (c *candidate) watches(lease int, isWatched bool, now time.Time, pause time.Duration) {
	l := &c.leases[lease]
	l.isWatched = isWatched
	switch {
	case l.isStale:
	case isWatched:
		l.noRead = time.Time{}
	default:
		l.noRead = now.Add(pause)
	}
}

// stop is called when the process is told to end. A leader leads until its work has
// returned.
func (c *candidate) stop() {
	if c.phase == standby {
		c.finish(true)
	}
}

// finish is called when the work has returned.
func (c *candidate) finish(mayRelease bool) {
	if c.phase != standby && c.phase != leading {
		return
	}
	c.phase = ending
	if !mayRelease {
		c.phase = ended
	}
	for i := range c.leases {
		c.leases[i].noWrite = time.Time{}
	}
}
