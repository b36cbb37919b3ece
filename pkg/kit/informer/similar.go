package informer

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
)

// Limits of one sample, and of all. What is shorter than a sample has little to gain. There
// are as many dictionaries as samples, and each takes 32 kB besides its samples.
const (
	minSample  = 512
	maxSample  = 16 << 10
	maxTotal   = s2.MaxDictSize
	maxSamples = 16
)

// similar makes data smaller that resembles other data: what it has in common with samples
// need not be in memory again. A sample is data that resembled none when it came. There are
// at most 16, of at most 16 kB each and 64 kB together. The zero value has none. All methods
// can be called concurrently.
type similar struct {
	mu      sync.Mutex
	samples []byte // one after another
	number  int    // of them
	dict    *s2.Dict
}

// compressed is data that was made smaller. The zero value is no data.
type compressed struct {
	data string
	dict *s2.Dict // nil if data is as it was
}

// compress returns the data in a form that takes less memory, if it resembles a sample. It
// keeps nothing of the slice.
func (s *similar) compress(data []byte) compressed {
	if len(data) < minSample {
		return compressed{data: string(data)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dict != nil {
		if small := s.dict.Encode(nil, data); len(small) < len(data)/2 {
			return compressed{string(small), s.dict}
		}
	}
	if s.number < maxSamples && len(data) <= maxSample && len(s.samples)+len(data) <= maxTotal {
		s.samples = slices.Concat(s.samples, data) // the former dictionary keeps the former samples
		s.number++
		s.dict = s2.MakeDict(s.samples, nil)
	}
	return compressed{data: string(data)}
}

// decompress returns the data, which belongs to the caller. It overwrites the slice if that is
// large enough.
func (c compressed) decompress(into []byte) ([]byte, error) {
	if c.dict == nil {
		return append(into[:0], c.data...), nil
	}
	data, err := c.dict.Decode(into, []byte(c.data))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	return data, nil
}
