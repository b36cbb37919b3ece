package kittest

import "runtime"

// Heap returns how many bytes of the heap are in use, after garbage collection. What was
// dropped only then, such as equal values that were in memory once, is gone, too.
func Heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
