// Package explore looks at every order in which things can happen to a controller: a watch
// lags, a response is lost, the process dies, another one leads, and somebody edits an
// object in between. It runs the shipped code: the sync and the event handlers, client-go's
// stores and typed clients, and the kit's loop, limiter, consistency store and fence. What
// is around it is a model: the API server of package apiserver, watches, the lease and time.
//
// A state consists of what the API server has stored; of what each cache holds, and what its
// watch has not delivered yet; and of what each process remembers, the requests that are on
// their way, and the sync that waits for a response. A step is one of these: a cache sees
// an event, a worker begins a sync, which runs up to its first request, the API server
// carries out a request or refuses it, a response arrives or is lost, time passes until
// something happens by itself, a process ends, another begins to lead, or somebody changes an
// object. [Setup.Search] takes all of them from each state, the nearest states first, so that
// the first counterexample is a shortest one.
//
// Two steps are independent if they have to do with different parts of the state, as when one cache
// sees an event while a request of another process is answered. Both orders lead to the same state,
// so only one of them is executed, and the search knows the other transition from it.
//
// States that behave alike count as one. Only the order of resource versions and
// generations matters, and which UIDs are equal, and how long ago something was. What a process
// does in a situation is worked out once: for that, its memory has to be a value that can be
// read and restored (see [Memory]), and a situation differs from another only in what was read
// of the caches.
//
// What is simplified: what a sync does between two requests is one step, also if several
// workers sync ([Bounds].Workers); the event handlers run when their store is updated, and
// what they add to the queue becomes ready in the order of the names; a process knows at
// once that its term has ended, and ends as soon as no sync is running; it begins to lead only
// when its caches have caught up, so the caches of a process that waits for another one see
// everything at once; the clocks of API objects have whole seconds of which only the order
// matters, unless [Setup].Tick is set; and a sync takes no time.
package explore
