// Package worker is the loop of a controller: it takes names from a queue, syncs each
// object, and retries what failed. It decides when an object is synced, and the
// controller's [Sync] function decides what to do. The loop itself sends no requests to
// the API server.
//
// The queue holds names, not events: however often an object is added, it is synced
// once, and never by two workers at the same time. An object that is added while it is
// being synced is synced once more afterward, so the last change is never missed.
//
// What happens after a sync depends on what it returned:
//
//	nil                        done; synced again after requeueAfter, if that is > 0
//	Terminal(err)              reported; otherwise like nil
//	Requeue(err), a conflict   retried with back-off, logged at V(4) only
//	any other error            retried with back-off, and reported
//	a panic                    recovered, then like any other error, with its stack
//
// If the object is retried, its requeueAfter is ignored.
//
// A marked error may be wrapped; the outermost mark counts. Of several joined errors, the
// one that most needs a retry decides: the result is a reported retry if any of them
// calls for that, otherwise Requeue if any of them is that, and terminal only if all of
// them are. To give an error both a sentinel and a mark, put the mark outside:
// Terminal(fmt.Errorf("%w: %w", ErrSentinel, err)).
//
// The back-off of an object doubles from 5 ms to one minute, and starts afresh after a
// success or a terminal error. After a failure or a panic, the object is held for all of
// that time, even if it changes: a change seldom removes the cause, and may well be this
// process's own report of the failure, which would then cause the next failure at once.
// Only a change of the desired state ends the back-off early ([Loop.AddUrgent]). After
// Requeue or a conflict, nothing holds the object, because the change is what it waits
// for.
//
// There is no rate limit across objects: the number of workers bounds concurrency, and
// the API server's priority and fairness limits the load. If the server says how long to
// stay away (Retry-After on a 429 or 503), the object is not synced before that, whatever
// changes in the meantime.
//
// A loop that is not running drops what is added to it. A process on standby would
// otherwise collect the name of every object that it ever saw. The objects that exist
// when the loop starts come from the caches ([WithKeys]).
package worker
