package news_test

import (
	"fmt"
	"sync"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/news"
)

func Example() {
	var reported news.Store[string, string]
	for _, reason := range []string{"QuotaExceeded", "QuotaExceeded", "ImagePullBackOff"} {
		if reported.IsNew("parlor/sundae", reason) {
			fmt.Println("parlor/sundae:", reason)
		}
	}
	reported.Forget("parlor/sundae")
	fmt.Println(reported.IsNew("parlor/sundae", "ImagePullBackOff"))
	// Output:
	// parlor/sundae: QuotaExceeded
	// parlor/sundae: ImagePullBackOff
	// true
}

func TestZeroValueIsNewOnce(t *testing.T) {
	var s news.Store[string, string]
	if !s.IsNew("a", "") || s.IsNew("a", "") {
		t.Error("an empty report is not new exactly once")
	}
}

func TestRetain(t *testing.T) {
	var s news.Store[string, int]
	for _, key := range []string{"a", "b", "c"} {
		s.IsNew(key, 1)
	}
	s.Retain(func(key string) bool { return key == "b" })
	if s.Len() != 1 || s.Last("b") != 1 || s.IsNew("b", 1) || !s.IsNew("a", 1) {
		t.Errorf("%d keys are remembered, b as %d", s.Len(), s.Last("b"))
	}
}

// Of many callers who report the same at the same time, one hears that it is new.
func TestIsNewOnceForAll(t *testing.T) {
	var s news.Store[string, int]
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := 0
	for range 50 {
		wg.Go(func() {
			if s.IsNew("a", 1) {
				mu.Lock()
				count++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if count != 1 {
		t.Errorf("the same report was new %d times", count)
	}
}
