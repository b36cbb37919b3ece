package secretsync

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// trouble is why a copy cannot be made right.
type trouble struct{ reason, words string }

// troubles are those of all copies. They are safe for concurrent use.
type troubles struct {
	mu sync.Mutex
	of map[cache.ObjectName]trouble
}

// add notes the trouble with a copy and says whether it is another than before.
func (t *troubles) add(name cache.ObjectName, is trouble) (isNews bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[cache.ObjectName]trouble{}
	}
	was, isKnown := t.of[name]
	t.of[name] = is
	return !isKnown || was != is
}

// reason is that of the trouble with a copy; empty if there is none.
func (t *troubles) reason(name cache.ObjectName) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name].reason
}

// settle notes that there is none any more.
func (t *troubles) settle(name cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, name)
}

func (t *troubles) count() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]int{}
	for _, is := range t.of {
		counts[is.reason]++
	}
	return counts
}
