package events

import "time"

// SetDelay sets how long new events wait.
func (r *Recorder) SetDelay(delay time.Duration) { r.delay = delay }
