package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TryKubectl runs the cluster's kubectl as an administrator, with stdin if it is
// not empty, and returns what it printed. Its error holds what it complained of.
func (l *Lab) TryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, l.Kubectl(), append([]string{
		"--kubeconfig", l.Kubeconfig(), "--cache-dir", filepath.Join(l.Dir(), "kubectl-cache"),
	}, args...)...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Kubectl runs kubectl in the namespace and returns what it printed.
func (n *Namespace) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return n.pipe(t, "", args...)
}

// Apply is kubectl apply of a manifest.
func (n *Namespace) Apply(t testing.TB, manifest string) {
	t.Helper()
	n.pipe(t, manifest, "apply", "-f", "-")
}

// Refused is kubectl apply of a manifest that has to be refused. It returns what
// the user is told.
func (n *Namespace) Refused(t testing.TB, manifest string) string {
	t.Helper()
	output, err := n.TryKubectl(t.Context(), manifest, "apply", "-f", "-")
	if err == nil {
		t.Errorf("kubectl apply accepted this:\n%s\nand printed %q", manifest, output)
		return ""
	}
	return err.Error()
}

// TryKubectl runs kubectl in the namespace; see Lab.TryKubectl.
func (n *Namespace) TryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return n.Lab.TryKubectl(ctx, stdin, append([]string{"--namespace", n.Name}, args...)...)
}

func (n *Namespace) pipe(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	output, err := n.TryKubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}
