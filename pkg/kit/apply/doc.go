// Package apply compares an object with the fields that a controller wants in it, and
// writes these fields by server-side apply.
//
// A controller owns some fields of an object and leaves all others alone: what the API
// server fills in, what an autoscaler or a mesh adds, what people set. A [Child] holds
// the fields that it owns, as an object of whatever kind in which the others are zero.
// [Owner.Compare] says in what a live object differs from it, and which fields the
// controller wrote earlier and no longer asks for. Both are pure. [Writer] makes the
// requests: it creates what does not exist, applies to exactly the object that was
// compared, and deletes under preconditions, so that someone else's object of the same
// name is never touched.
//
// Nothing here depends on a schema. An element of a list is told from the others by
// its uid or name, and a list of plain values is compared as a whole.
package apply
