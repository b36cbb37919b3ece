package kittest

import "runtime"

// Heap returns how many bytes of the heap are in use. It collects garbage first, and twice:
// what package unique or a finalizer has held goes only with the second time.
func Heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
