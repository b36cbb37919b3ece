package worker

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// No namespace has two turns while another waits, names of one namespace keep their order, and
// nothing is left of a namespace without names.
func TestTurnsOfMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := newTurns()
		waiting := map[string][]cache.ObjectName{}
		turnsOf := map[string]map[string]bool{} // of others, since a namespace waits
		pop := func() {
			name := queue.Pop()
			if names := waiting[name.Namespace]; len(names) == 0 || names[0] != name {
				t.Fatalf("%s comes before %v", name, names)
			}
			for namespace, turns := range turnsOf {
				if namespace != name.Namespace && turns[name.Namespace] {
					t.Fatalf("%q has two turns while %q waits", name.Namespace, namespace)
				}
				turns[name.Namespace] = true
			}
			delete(turnsOf, name.Namespace)
			if waiting[name.Namespace] = waiting[name.Namespace][1:]; len(waiting[name.Namespace]) == 0 {
				delete(waiting, name.Namespace)
			} else {
				turnsOf[name.Namespace] = map[string]bool{}
			}
		}
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "", "pop"}), 1, 50).Draw(t, "steps")
		length := 0
		for i, step := range steps {
			switch {
			case step != "pop":
				name := cache.NewObjectName(step, fmt.Sprint(i))
				queue.Push(name)
				length++
				if waiting[step] = append(waiting[step], name); len(waiting[step]) == 1 {
					turnsOf[step] = map[string]bool{}
				}
			case length > 0:
				pop()
				length--
			}
			if queue.Len() != length || len(queue.names) != len(waiting) || queue.next.Len() != len(waiting) {
				t.Fatalf("%d names, %d namespaces and %d turns; want %d and %d", queue.Len(), len(queue.names), queue.next.Len(), length, len(waiting))
			}
		}
		for ; length > 0; length-- {
			pop()
		}
		if queue.Len()+len(queue.names)+queue.next.Len() > 0 {
			t.Errorf("what is left of an empty queue: %+v", queue)
		}
	})
}
