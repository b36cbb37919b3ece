//go:build !unix

package footprint

import (
	"errors"
	"time"
)

// cpuTime returns an error.
func cpuTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
