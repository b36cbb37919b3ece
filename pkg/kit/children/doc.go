// Package children decides when the objects that an owner needs are created, repaired or
// adopted, and when a write that was refused or undone is made again.
//
// A [Need] is one object that an owner needs, whatever its kind, with what is seen of it.
// [Rules.Decide] returns a [Decision] about it, which the controller carries out. What
// came of that is an [Outcome], which becomes part of a [Write]: the memory of the last
// write, which a process keeps for the next decision. [Rules.Events] are what to record.
//
// Most decisions are to do nothing, about an object that has not changed since the last one.
// A [Match] in the memory shows that, and then the object is not compared again.
//
// An owner with several children decides about one after the other, in the order in which
// they depend on each other, and carries out the first decision that is not to do nothing.
//
// Everything here is pure: no client, no clock, no log. The field manager, the kind of the
// owner, and the reasons that its API uses are in [Rules].
package children
