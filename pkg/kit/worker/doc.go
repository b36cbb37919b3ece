// Package worker is the queue loop that every controller of this project runs
// on. It decides when an object is looked at; what is then done about it is the
// [Sync] function's business. It writes nothing to the API.
//
// The queue holds names, not events: however often an object is added, it is
// synced once, and never by two workers at the same time. An object that is
// added while it is being synced is synced again afterwards, so the last change
// is never missed.
//
// What happens after a sync depends on what it returned:
//
//	nil                       done; looked at again after "again", if that is > 0
//	Terminal(err)             reported; otherwise like nil
//	Requeue(err), a conflict   retried with back-off, logged at V(4) only
//	any other error           retried with back-off, reported
//	a panic                   recovered, then like any other error, with its stack
//
// An object that is retried ignores "again": the retry is that other look.
//
// Marks may be wrapped; the outermost one counts. Several errors joined into one
// are as urgent as the most urgent of them: if any calls for a reported retry
// the whole does, else if any is Requeue the whole is, and it is terminal only if
// all of them are. To give an error a sentinel as well as a mark, put the mark
// outside: Terminal(fmt.Errorf("%w: %w", ErrSentinel, err)).
//
// Back-off doubles per object from 5 ms to one minute and starts afresh after a
// success or a terminal error. After a failure or a panic the object is held for
// all of that time: a change of the object does not make the cause go away, and may
// well be this process's own report of the failure, which would then lead to the
// next one at once. Only a change of what is wanted ends it early ([Loop.AddUrgent]).
// After Requeue or a conflict nothing holds the object, because the change is what it
// waits for.
//
// There is no limit across objects: the number of workers bounds concurrency, and
// the API server's priority and fairness decides how much it will take. When the
// server does say how long to stay away (Retry-After on a 429 or 503), the object is
// not synced before that, whatever changes meanwhile.
//
// A loop that does not run remembers nothing. A process that stands by for months
// would otherwise keep the name of every object that it has ever seen; what there is
// when the loop begins is in the caches, and comes from there ([WithKeys]).
package worker
