package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var stepNames = [...]string{
	starts:        "start",
	leads:         "lead",
	seesEvent:     "see",
	beginsSync:    "sync",
	isAnswered:    "answer",
	isRefused:     "refuse",
	losesAnswer:   "lose",
	getsAnswer:    "receive",
	arrivesLate:   "arrive",
	neverArrives:  "drop",
	crash:         "crash",
	isDeposed:     "depose",
	ends:          "end",
	fillsAnew:     "relist",
	timePasses:    "wait",
	somebodyActs:  "act",
	somebodyEdits: "edit",
}

// String returns the step as it is in a script.
func (s step) String() string {
	return fmt.Sprintf("%s.%d.%d.%d", stepNames[s.kind], s.process, s.arg, s.move)
}

func parseStep(raw string) (s step, err error) {
	fields := strings.Split(raw, ".")
	for kind, name := range stepNames {
		if name == fields[0] && len(fields) == 4 {
			s.kind = stepKind(kind)
			for i, to := range []*int8{&s.process, &s.arg, &s.move} {
				n, err := strconv.ParseInt(fields[i+1], 10, 8)
				if err != nil {
					return s, fmt.Errorf("step %s: %w", raw, err)
				}
				*to = int8(n)
			}
			return s, nil
		}
	}
	return s, fmt.Errorf("no step is called %s", raw)
}

// restWord is what a script ends with if it is wrong to stay in the last state.
const restWord = "rest"

// Script returns the steps in the format of [Setup.Replay].
func (c *Counterexample) Script() string {
	var b strings.Builder
	for i, s := range c.Steps {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s.step.String())
	}
	if c.isRest {
		b.WriteString(" " + restWord)
	}
	return b.String()
}

// Replay takes the steps of a counterexample again. It returns nil if nothing is wrong with
// them any more: because the program then does something else, or because the checks do not
// find it wrong.
func (setup Setup) Replay(ctx context.Context, bounds Bounds, script string) (*Counterexample, error) {
	defer quiet()()
	s, err := newSystem(ctx, setup, bounds)
	if err != nil {
		return nil, err
	}
	w, err := newWalker(ctx, s)
	if err != nil {
		return nil, err
	}
	var steps []step
	words := strings.Fields(script)
	isRest := len(words) > 0 && words[len(words)-1] == restWord
	if isRest {
		words = words[:len(words)-1]
	}
	for _, word := range words {
		taken, err := parseStep(word)
		if err != nil {
			return nil, err
		}
		steps = append(steps, taken)
	}
	return w.replay(steps, isRest)
}

// replay takes the steps, as far as that is possible.
func (w *walker) replay(steps []step, isRest bool) (*Counterexample, error) {
	st, err := w.first()
	if err != nil {
		return nil, err
	}
	c := &Counterexample{Bounds: w.bounds}
	written := map[string]int{string(st.encode(w.templates, w.horizon())): 0}
	writes := 0
	for taken, err := range w.follow(steps) {
		if errors.Is(err, errAgain) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		c.Steps = append(c.Steps, w.tell(taken))
		if c.Wrong = taken.wrong; c.Wrong != "" {
			return c, nil
		}
		if taken.wrote {
			writes++
		}
		st = taken.after
		raw := string(st.encode(w.templates, w.horizon()))
		if before, ok := written[raw]; ok && before < writes {
			c.Wrong = storm
			return c, nil
		}
		written[raw] = writes
	}
	if !isRest {
		return nil, nil
	}
	c.isRest = true
	if st, err = w.settled(st); err != nil {
		return nil, err
	}
	if c.Wrong, err = w.atRest(st); err != nil || c.Wrong == "" {
		return nil, err
	}
	return c, nil
}

// settled returns the first state that comes again, if from now on nothing goes wrong.
func (w *walker) settled(st *state) (*state, error) {
	seen := map[string]bool{}
	for {
		raw := string(st.encode(w.templates, w.horizon()))
		if seen[raw] {
			return st, nil
		}
		seen[raw] = true
		successors, err := w.steps(st)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(successors, func(s successor) bool { return s.isFree })
		if i < 0 {
			return st, nil
		}
		st = w.canonical(successors[i].next)
	}
}

// GoTest returns the source of a test that fails as long as the counterexample is one. The
// setup is an expression for the Setup.
func (c *Counterexample) GoTest(setup string) string {
	return fmt.Sprintf(`func TestReplay(t *testing.T) {
	bounds, err := explore.ParseBounds(%q)
	if err != nil {
		t.Fatal(err)
	}
	again, err := %s.Replay(t.Context(), bounds, %q)
	if err != nil {
		t.Fatal(err)
	}
	if again != nil {
		t.Errorf("%%s", again)
	}
}
`, c.Bounds, setup, c.Script())
}
