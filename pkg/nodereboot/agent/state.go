package agent

import "nicoleh.io/k8s-controller/pkg/kit/worker"

// Loop returns the loop of the agent, for tests that let it take one step at a time.
func (a *Agent) Loop() *worker.Loop { return a.loop }

// State returns what the agent remembers that its next steps depend on, for tests that
// restore it later: the record of the work for which it has drained the node. What it
// remembers only to report it is not a part of it.
func (a *Agent) State() string { return a.drained }

// SetState replaces that, and forgets the rest.
func (a *Agent) SetState(drained string) { a.drained, a.drainErr = drained, nil }
