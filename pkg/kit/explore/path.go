package explore

import (
	"cmp"
	"errors"
	"iter"
	"slices"
)

// taken is a step of a path that was taken again.
type taken struct {
	successor
	before, after *state // with canonical names
}

// errAgain is the error of a path that cannot be taken again.
var errAgain = errors.New("a program does not do the same again: does it depend on something that is not in its memory?")

// follow takes the steps of a path again, from the beginning. It ends with an error: errAgain
// if a step is not possible.
func (w *walker) follow(steps []step) iter.Seq2[taken, error] {
	return func(yield func(taken, error) bool) {
		st, err := w.first()
		if err != nil {
			yield(taken{}, err)
			return
		}
		for _, next := range steps {
			successors, err := w.steps(st)
			i := slices.IndexFunc(successors, func(s successor) bool { return s.step == next })
			if err != nil || i < 0 {
				yield(taken{}, cmp.Or(err, errAgain))
				return
			}
			before := st
			st = w.canonical(successors[i].next)
			if !yield(taken{successors[i], before, st}, nil) {
				return
			}
		}
	}
}

// canonical returns the state with canonical names.
func (s *system) canonical(st *state) *state {
	return decode(s.templates, st.encode(s.templates, s.horizon()))
}
