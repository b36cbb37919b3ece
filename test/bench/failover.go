package main

import (
	"context"
	"errors"
	"time"

	"nicoleh.io/k8s-controller/test/bench/source"
	"nicoleh.io/k8s-controller/test/lab"
)

// changeEvery is the time between two changes while nobody leads.
const changeEvery = 50 * time.Millisecond

// failover measures how long it takes from the end of a leader until the process on standby
// first changes a Deployment: in a rollout, and in a crash.
func (t *trial) failover(ctx context.Context) (err error) {
	leader, standby := t.newProcess("-leader-elect"), t.newProcess("-leader-elect")
	if err := t.begin(ctx, leader); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leader.Terminate()) }()
	if _, err := t.probe(ctx, leader, 0); err != nil {
		return err
	}
	if err := t.begin(ctx, standby); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, standby.Terminate()) }()
	used, err := usageOf(standby.PID())
	if err != nil {
		return err
	}
	used.record(t.figures, "05 RSS on standby")
	ended := time.Now()
	exited := make(chan error, 1)
	go func() { exited <- leader.Terminate() }()
	err = t.takeOver(ctx, standby, ended, "10 SIGTERM until the next leader's first write, s")
	if err := errors.Join(err, <-exited); err != nil {
		return err
	}
	if err := t.begin(ctx, leader); err != nil {
		return err
	}
	crashed := time.Now()
	if err := standby.Crash(); err != nil {
		return err
	}
	if err := t.takeOver(ctx, leader, crashed, "10 SIGKILL until the next leader's first write, s"); err != nil {
		return err
	}
	t.figures["10 writes other than for changes"] = t.unexpected(ended)
	return nil
}

// begin launches a process, and waits until its caches are filled and it is at rest.
func (t *trial) begin(ctx context.Context, process *lab.Controller) error {
	if err := process.Launch(); err != nil {
		return err
	}
	if _, err := t.listed(ctx, process); err != nil {
		return err
	}
	_, _, err := rest(ctx, process)
	return err
}

// takeOver measures the time until the first write of the next leader. It changes one
// Icecream after the other, because the leader that is ending may still see the first.
func (t *trial) takeOver(ctx context.Context, next *lab.Controller, since time.Time, row string) error {
	waiting, done := context.WithCancel(ctx)
	changing := make(chan error, 1)
	go func() {
		defer close(changing)
		for i := 1; waiting.Err() == nil; i++ {
			if _, err := t.change(i); err != nil {
				changing <- err
				return
			}
			select {
			case <-waiting.Done():
			case <-time.After(changeEvery):
			}
		}
	}()
	first, err := t.await(ctx, "a write of the next leader", func(r source.Request) bool {
		return isOfDeployment(r) && r.Agent == next.Agent && r.At.After(since)
	})
	done()
	t.figures[row] = first.At.Sub(since).Seconds()
	return errors.Join(err, <-changing)
}
