package informer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// noise returns data that resembles no other.
func noise(seed uint64, size int) []byte {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data) //nolint:errcheck // it never fails
	return data
}

// Whatever was compressed before, and whatever is done to the slices afterward, the data
// comes back.
func TestSimilarKeepsData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s similar
		piece := rapid.Custom(func(t *rapid.T) []byte {
			return noise(rapid.Uint64Range(0, 3).Draw(t, "seed"), rapid.SampledFrom([]int{0, 1, 15, 16, 511, 512, 5000, 70_000}).Draw(t, "size"))
		})
		var want [][]byte
		var kept []compressed
		for range rapid.IntRange(1, 40).Draw(t, "number") {
			data := slices.Concat(rapid.SliceOfN(piece, 0, 3).Draw(t, "data")...)
			want = append(want, bytes.Clone(data))
			kept = append(kept, s.compress(data))
			clear(data)
		}
		for i, c := range kept {
			got, err := c.decompress(nil)
			if err != nil || !bytes.Equal(got, want[i]) {
				t.Fatalf("%d of %d bytes came back, or others: %v", len(got), len(want[i]), err)
			}
			clear(got) // it is the caller's
			if again, err := c.decompress(make([]byte, rapid.IntRange(0, 6000).Draw(t, "size of the slice"))); err != nil || !bytes.Equal(again, want[i]) {
				t.Fatalf("other data than at first: %v", err)
			}
		}
	})
	if got, err := (compressed{}).decompress(nil); len(got) != 0 || err != nil {
		t.Errorf("no data came back as %q: %v", got, err)
	}
}

// Data takes little memory if it resembles what came before, even if other data came first;
// and what resembles nothing takes no more than it would.
func TestSimilarSavesMemory(t *testing.T) {
	const objects, size = 1000, 2000
	cone := noise(1, size)
	for name, test := range map[string]struct {
		before [][]byte
		data   func(i uint64) []byte
		atMost int64
	}{
		"nothing in common":         {nil, func(i uint64) []byte { return noise(i, size) }, size + 500},
		"much in common":            {nil, func(i uint64) []byte { return slices.Concat(cone, noise(i, 20)) }, 150},
		"short data came first":     {[][]byte{noise(2, 100), noise(3, 100), noise(4, 100)}, func(uint64) []byte { return cone }, 100},
		"much else came first":      {slices.Repeat([][]byte{noise(2, size), noise(3, 100_000), noise(4, size)}, 100), func(uint64) []byte { return cone }, 200},
		"much in common in the end": {nil, func(i uint64) []byte { return slices.Concat(noise(i, 20), cone) }, 150},
	} {
		var s similar
		for _, data := range test.before {
			s.compress(data)
		}
		before := kittest.Heap()
		kept := make([]compressed, objects)
		for i := range kept {
			kept[i] = s.compress(test.data(uint64(i) + 10))
		}
		if each := (kittest.Heap() - before) / objects; each > test.atMost {
			t.Errorf("%s: %d bytes each, want at most %d", name, each, test.atMost)
		}
		if data, err := kept[objects-1].decompress(nil); err != nil || !bytes.Equal(data, test.data(objects+9)) {
			t.Errorf("%s: other data came back: %v", name, err)
		}
	}
}

func TestSimilarIsSafeForConcurrentUse(t *testing.T) {
	var s similar
	var working sync.WaitGroup
	for i := range 8 {
		working.Go(func() {
			for j := range 50 {
				want := fmt.Sprintf("%s %d", strings.Repeat(fmt.Sprint(j%20), 600), i)
				if got, err := s.compress([]byte(want)).decompress(nil); err != nil || string(got) != want {
					t.Errorf("%q became %q: %v", want, got, err)
				}
			}
		})
	}
	working.Wait()
}
