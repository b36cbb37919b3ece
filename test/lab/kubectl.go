package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TryKubectl runs the cluster's kubectl as an administrator and returns its standard
// output. stdin is its standard input. The error contains its standard error.
func (l *Lab) TryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, l.Kubectl(), append([]string{
		"--kubeconfig", l.Kubeconfig(), "--cache-dir", filepath.Join(l.Dir(), "kubectl-cache"),
	}, args...)...)
	command.Env = append(os.Environ(), "GOGC=off") // it ends before there is much to collect
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Kubectl runs kubectl as an administrator. It must succeed. Kubectl returns its standard output.
func Kubectl(t testing.TB, l *Lab, args ...string) string {
	t.Helper()
	output, err := l.TryKubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// Kubectl runs kubectl in the namespace and returns its standard output.
func (n *Namespace) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return n.pipe(t, "", args...)
}

// Apply applies a manifest in the namespace by kubectl apply.
func (n *Namespace) Apply(t testing.TB, manifest string) {
	t.Helper()
	n.pipe(t, manifest, "apply", "-f", "-")
}

// Refused runs kubectl apply with a manifest that the API server must reject. It returns
// the error message that the user sees.
func (n *Namespace) Refused(t testing.TB, manifest string) string {
	t.Helper()
	output, err := n.TryKubectl(t.Context(), manifest, "apply", "-f", "-")
	if err == nil {
		t.Errorf("kubectl apply accepted this:\n%s\nand printed %q", manifest, output)
		return ""
	}
	return err.Error()
}

// TryKubectl runs kubectl in the namespace; see [Lab.TryKubectl].
func (n *Namespace) TryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return n.Lab.TryKubectl(ctx, stdin, append([]string{"--namespace", n.Name}, args...)...)
}

// pipe runs kubectl in the namespace with stdin as its standard input.
func (n *Namespace) pipe(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	output, err := n.TryKubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}
