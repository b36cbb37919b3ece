package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A process without privileges looks for the sentinel file on the agent's behalf. Before it
// has looked for the first time, nothing is decided: a sentinel file that still exists after
// a reboot would be mistaken for a new one.
func TestSentinelIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sentinel, state := filepath.Join(dir, "reboot-required"), filepath.Join(dir, "state")
		looks, reads := &Agent{config: Config{SentinelFile: sentinel}}, &Agent{config: Config{SentinelFile: sentinel, SentinelState: state}}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		if at, err := reads.sentinel(); !at.IsZero() || !errors.Is(err, errSentinelUnknown) {
			t.Errorf("before the first look: %s, %v", at, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- WatchSentinel(ctx, sentinel, state, time.Minute) }()
		require := func(want time.Time) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, a := range []*Agent{looks, reads} {
				if at, err := a.sentinel(); !at.Equal(want) || err != nil {
					t.Errorf("the sentinel file was modified at %s, want %s; %v", at, want, err)
				}
			}
		}
		require(time.Time{})
		must(os.WriteFile(sentinel, nil, 0o600))
		first := time.Now().Add(-time.Hour + time.Nanosecond)
		for _, at := range []time.Time{first, first.Add(time.Nanosecond)} {
			must(os.Chtimes(sentinel, at, at))
			require(at)
		}
		must(os.Remove(sentinel))
		require(time.Time{})
		cancel()
		must(<-ended)
		must(os.WriteFile(state, []byte("maybe"), 0o600))
		if at, err := reads.sentinel(); !at.IsZero() || err == nil {
			t.Errorf("an invalid state was read as %s", at)
		}
	})
}
