package explore

import (
	"context"
	"flag"
	"testing"
	"time"
)

// Flags are the flags of a test that explores.
type Flags struct {
	bounds  string
	timeout time.Duration
}

// AddFlags adds -explore.bounds, which replaces the bounds of the tests, and
// -explore.timeout, which ends each search after some time.
func AddFlags(fs *flag.FlagSet) *Flags {
	f := &Flags{}
	fs.StringVar(&f.bounds, "explore.bounds", "", "Explore within these bounds instead of those of the tests: processes=2,crashes=1 for example.")
	fs.DurationVar(&f.timeout, "explore.timeout", 0, "End each search after this time, even if it is not complete.")
	return f
}

// Test searches within each of the bounds, which are in the format of [ParseBounds], and logs
// the figures. It fails with the story of a counterexample, and with a test that replays
// it, for which setup is the expression that returns s. It also fails if a search is not
// complete, unless it was given a timeout.
func (f *Flags) Test(t *testing.T, setup string, s Setup, bounds ...string) {
	t.Helper()
	if f.bounds != "" {
		bounds = []string{f.bounds}
	}
	for _, raw := range bounds {
		t.Run(raw, func(t *testing.T) {
			parsed, err := ParseBounds(raw)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if f.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, f.timeout)
				defer cancel()
			}
			result, err := s.Search(ctx, parsed)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(result)
			switch c := result.Counterexample; {
			case c != nil:
				t.Errorf("%s\n%s", c, c.GoTest(setup))
			case !result.IsComplete && f.timeout == 0:
				t.Error("the search is not complete")
			}
		})
	}
}
