package process

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProcessIsStopped(t *testing.T) {
	for _, test := range []struct {
		name      string
		script    string
		isPaused  bool
		wantState string
	}{
		{name: "in good order", script: `trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done`, wantState: "exit status 7"},
		{name: "although it is paused", script: `trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done`, isPaused: true, wantState: "exit status 7"},
		{name: "by force when it does not listen", script: `trap '' TERM; echo up; while :; do sleep 0.01; done`, wantState: "signal: killed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, test.script)
			if test.isPaused {
				if err := p.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			grace := time.Minute
			if test.wantState == "signal: killed" {
				grace = 50 * time.Millisecond
			}
			if err := p.Stop(grace); err != nil {
				t.Fatal(err)
			}
			if got := p.Failure().State; got != test.wantState {
				t.Errorf("it ended with %q, want %q", got, test.wantState)
			}
			if left, err := os.ReadDir(p.spec.Records); err != nil || len(left) > 0 {
				t.Errorf("its record is left: %v, %v", left, err)
			}
			if err := errors.Join(p.Stop(time.Minute), p.Kill()); err != nil {
				t.Errorf("ending it again: %v", err)
			}
		})
	}
}

func TestFailureQuotesTheLogOfThisRunOnly(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("bind: address already in use\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keeper := NewKeeper()
	t.Cleanup(keeper.Close)
	p, err := keeper.Start(Command{
		Name: "part", Path: "/bin/sh", Args: []string{"-c", "echo nothing to see; exit 3"}, Log: log, Records: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	failure := p.Failure()
	if failure.PortTaken() {
		t.Error("an earlier run's complaint is taken for this one's")
	}
	want := "part ended (exit status 3); the end of its log, " + log + ":\n\tnothing to see"
	if failure.Error() != want {
		t.Errorf("got  %q\nwant %q", failure, want)
	}
}

func TestReap(t *testing.T) {
	for _, test := range []struct {
		name      string
		record    func(pid int, started string) record
		wantAlive bool
	}{
		{name: "ends a recorded process", record: func(pid int, started string) record { return record{pid, started} }},
		{name: "spares another of the same pid", record: func(pid int, _ string) record { return record{pid, "long ago"} }, wantAlive: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, "echo up; exec sleep 1000")
			started, err := startOf(p.cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			records := t.TempDir()
			writeRecordFile(t, filepath.Join(records, "part.json"), test.record(p.cmd.Process.Pid, started))
			if err := Reap(records); err != nil {
				t.Fatal(err)
			}
			if !test.wantAlive {
				<-p.Exited() // Until its parent has waited for it, a process gets signals though it has ended.
			}
			if isAlive := p.Signal(syscall.Signal(0)) == nil; isAlive != test.wantAlive {
				t.Errorf("alive: %v, want %v", isAlive, test.wantAlive)
			}
			if left, err := os.ReadDir(records); err != nil || len(left) > 0 {
				t.Errorf("records that are left: %v, %v", left, err)
			}
		})
	}
}

func TestReapIgnoresWhatProvesNothing(t *testing.T) {
	for name, content := range map[string]string{"cut short": `{"pid":1`, "no process": `{"pid":0,"started":""}`, "init": `{"pid":1,"started":"x"}`} {
		t.Run(name, func(t *testing.T) {
			records := t.TempDir()
			if err := os.WriteFile(filepath.Join(records, "part.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Reap(records); err != nil {
				t.Error(err)
			}
		})
	}
}

// start runs a shell script that says "up" when it is.
func start(t *testing.T, script string) *Process {
	t.Helper()
	keeper := NewKeeper()
	t.Cleanup(keeper.Close)
	log := filepath.Join(t.TempDir(), "log")
	p, err := keeper.Start(Command{
		Name: "part", Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Log: log, Records: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if content, _ := os.ReadFile(log); strings.Contains(string(content), "up") {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatal("the script does not start")
		}
	}
}

func writeRecordFile(t *testing.T, path string, content record) {
	t.Helper()
	encoded, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
}
