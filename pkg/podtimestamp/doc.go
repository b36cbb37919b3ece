// Package podtimestamp gives each Pod that asks for it a timestamp, exactly once: a Pod
// with the annotation "addtime", whatever its value, gets the annotation "timestamp".
//
// It decides which Pods ask for a timestamp and have none, from their metadata alone. It
// writes that annotation, and events about it. It never changes a timestamp that is
// there, whoever set it, and never writes to a Pod that is being deleted or that mirrors
// a static Pod.
package podtimestamp
