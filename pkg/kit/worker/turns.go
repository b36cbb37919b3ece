package worker

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// turns is the order of a work queue: namespaces take turns, and the names of each keep their order. Objects without a
// namespace share a turn.
type turns struct {
	next   workqueue.Queue[string] // the namespaces in names
	names  map[string]workqueue.Queue[cache.ObjectName]
	length int
}

func newTurns() *turns {
	return &turns{
		next:  workqueue.DefaultQueue[string](),
		names: map[string]workqueue.Queue[cache.ObjectName]{},
	}
}

func (*turns) Touch(cache.ObjectName) {}

func (t *turns) Len() int { return t.length }

func (t *turns) Push(name cache.ObjectName) {
	names, isWaiting := t.names[name.Namespace]
	if !isWaiting {
		names = workqueue.DefaultQueue[cache.ObjectName]()
		t.names[name.Namespace] = names
		t.next.Push(name.Namespace)
	}
	names.Push(name)
	t.length++
}

func (t *turns) Pop() cache.ObjectName {
	namespace := t.next.Pop()
	names := t.names[namespace]
	name := names.Pop()
	if names.Len() == 0 {
		delete(t.names, namespace)
	} else {
		t.next.Push(namespace)
	}
	t.length--
	return name
}
