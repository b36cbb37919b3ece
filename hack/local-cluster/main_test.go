package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
)

func TestWrongUsage(t *testing.T) {
	for _, test := range []struct {
		name       string
		args       []string
		wantErr    error
		wantCode   int
		wantStderr string
	}{
		{name: "no command", wantErr: errUsage, wantCode: 2, wantStderr: "usage: local-cluster"},
		{name: "no such command", args: []string{"down"}, wantErr: errUsage, wantCode: 2, wantStderr: "usage: local-cluster"},
		{name: "no such flag", args: []string{"up", "--no-such-flag"}, wantErr: errUsage, wantCode: 2, wantStderr: "no-such-flag"},
		{name: "a stray argument", args: []string{"up", "now"}, wantErr: errUsage, wantCode: 2, wantStderr: `"now"`},
		{name: "no command to run", args: []string{"run", "--nodes", "1"}, wantErr: errUsage, wantCode: 2, wantStderr: "no command to run"},
		{name: "help", args: []string{"up", "-h"}, wantErr: flag.ErrHelp, wantCode: 0, wantStderr: "-audit-user"},
		{name: "a kubeconfig of nobody", args: []string{"kubeconfig", "--dir", "d"}, wantErr: errUsage, wantCode: 2, wantStderr: "-service-account"},
		{name: "a kubectl for no cluster", args: []string{"kubectl", "get", "pods"}, wantErr: errUsage, wantCode: 2, wantStderr: "-dir"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), test.args, &stdout, &stderr)
			if !errors.Is(err, test.wantErr) || exitCode(err, &stderr) != test.wantCode {
				t.Errorf("got %v (code %d), want %v (code %d)", err, exitCode(err, &stderr), test.wantErr, test.wantCode)
			}
			if !strings.Contains(stderr.String(), test.wantStderr) || stdout.Len() > 0 {
				t.Errorf("standard error %q does not hold %q, or standard output %q is not empty", &stderr, test.wantStderr, &stdout)
			}
		})
	}
}

func TestErrorsAreReported(t *testing.T) {
	var stderr bytes.Buffer
	if code := exitCode(context.DeadlineExceeded, &stderr); code != 1 || stderr.String() != "local-cluster: context deadline exceeded\n" {
		t.Errorf("code %d, %q", code, &stderr)
	}
}
