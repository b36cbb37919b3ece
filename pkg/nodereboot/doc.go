// Package nodereboot decides which nodes may reboot now, so that no more of them are
// unavailable at a time than an operator allows. An agent on each node carries out the
// reboot: see package agent, and package request for how the two communicate.
//
// It writes annotations of Nodes, one node at a time, and events. It never cordons,
// drains or reboots anything, and never revokes what it has granted.
//
// The protocol keeps the budget although caches are stale, writes arrive late and two
// processes may believe that they lead. The cache only says when there may be something
// to do. What to do is decided by a live list of all nodes, and the API server refuses
// the write if the node has changed since that list. A reboot takes two such writes: the
// first chooses the node, and from then on everyone counts it as unavailable; the second
// grants the reboot, by a list that was made after the first write.
//
// So among granted nodes, take the one whose list was made last. Each other one had been
// chosen before its own, earlier list was made, so the last list counted all of them. The
// budget was kept by that list. Therefore no stale cache, no second leader and no late
// write exceeds it. It is exceeded only by what is not granted here: by a node that fails
// or is deleted while the grant of another is on its way, and by a permission that
// someone else gives. README.md has a diagram.
package nodereboot
