package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/test/lab"
)

var shellBlock = regexp.MustCompile("(?s)\n```sh\n(.*?)```\n")

// The commands of the README's section Running do what it says, in a clone and as they stand
// there. .ci/run runs the first two.
func TestReadme(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true})
	readme, err := os.ReadFile(l.Path("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Running\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := shellBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Fatalf("the section has %d blocks of commands, want those without a cluster, of two terminals, and the generator", len(blocks))
	}
	if first := blocks[0][1]; first != "make demo\nmake test\n" {
		t.Errorf("the first commands are %q, which .ci/run does not run", first)
	}

	clone, home := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(home, ".kube"), 0o700), os.Symlink(l.Kubeconfig(), filepath.Join(home, ".kube", "config"))); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", l.Path(""), clone).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, output)
	}
	goCaches, err := exec.CommandContext(t.Context(), "go", "env", "GOPATH", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(goCaches))
	// With the flags of hack/build.env, the build finds what other tests have compiled.
	const flags = "set -a && . hack/build.env && set +a\n"
	shell := func(commands string) *exec.Cmd {
		command := exec.Command("bash", "-euo", "pipefail", "-c", flags+commands)
		command.Dir = clone
		command.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG=",
			"PATH="+filepath.Dir(l.Kubectl())+string(filepath.ListSeparator)+os.Getenv("PATH"),
			"GOPATH="+caches[0], "GOCACHE="+caches[1], "GOMODCACHE="+caches[2])
		return command
	}

	var log bytes.Buffer
	first := shell(blocks[1][1])
	first.Stdout, first.Stderr = &log, &log
	first.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the controller is a child of the shell
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-first.Process.Pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = first.Wait() // as it was killed
		if t.Failed() {
			t.Logf("the first terminal:\n%s", &log)
		}
	})
	n := &lab.Namespace{Name: "default", Lab: l}
	n.Eventually(t, "the controller leads", func(ctx context.Context) error {
		_, err := l.Kube.CoordinationV1().Leases("kube-system").Get(ctx, "k8s-controller", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return errors.New("there is no Lease")
		}
		return err
	})
	if output, err := shell(blocks[2][1]).CombinedOutput(); err != nil || !strings.Contains(string(output), "\nexample-icecream ") {
		t.Fatalf("the second terminal: %v\n%s", err, output)
	}
	n.EventuallyReady(t, "example-icecream")

	// hack/verify.sh runs the generator, and compares what it writes.
	generator, _, _ := strings.Cut(blocks[3][1], "\n")
	verify, err := os.ReadFile(l.Path("hack/verify-codegen.sh"))
	if err != nil || !strings.Contains(string(verify), `generated/`+generator+`"`) {
		t.Errorf("hack/verify-codegen.sh does not run %q: %v", generator, err)
	}
}
