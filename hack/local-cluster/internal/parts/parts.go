// Package parts compiles the programs of a cluster, once per version, into a cache that all
// checkouts of a user share.
package parts

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// CacheEnv names the directory of the cache, if it is not the user's.
	CacheEnv = "LOCAL_CLUSTER_CACHE"
	// AssetsEnv names a directory with etcd, kube-apiserver and kubectl, which are then not
	// compiled. envtest and setup-envtest use the same variable.
	AssetsEnv = "KUBEBUILDER_ASSETS"

	module = "nicoleh.io/k8s-controller/hack/local-cluster"

	stopGrace   = 10 * time.Second // for the compilers
	errorOutput = 30               // lines of output that a failed build's error quotes
)

// buildEnv has the values of hack/build.env, the environment in which every program of the
// repository is compiled, so that all of them find each other's packages in Go's cache.
var buildEnv = []string{
	"CGO_ENABLED=0",
	"GOFLAGS=-trimpath -buildvcs=false -mod=readonly -gcflags=all=-dwarf=false",
	"GOWORK=off",
	"GOGC=400",
}

// Programs are the programs of a cluster.
type Programs struct {
	Components map[string]string // shell commands, by the names of the components
	Kubectl    string            // path
}

// Ensure returns the programs. If some are not in the cache, it compiles them, which takes
// minutes, and writes its progress to the log.
func Ensure(ctx context.Context, log io.Writer) (Programs, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return Programs{}, err
	}
	return ensure(ctx, source, log)
}

func ensure(ctx context.Context, source string, log io.Writer) (Programs, error) {
	assets := os.Getenv(AssetsEnv)
	version, err := versionOf(source)
	if err != nil {
		return Programs{}, err
	}
	dir, err := cacheDir(version, source, runtime.Version(), runtime.GOOS, runtime.GOARCH, buildEnv, linkFlags(version))
	if err != nil {
		return Programs{}, err
	}
	p := Programs{Kubectl: filepath.Join(dir, "kubectl"), Components: map[string]string{
		"kube-controller-manager": command(filepath.Join(dir, "components"), "kube-controller-manager"),
		"kube-scheduler":          command(filepath.Join(dir, "components"), "kube-scheduler"),
		"kwok":                    command(filepath.Join(dir, "components"), "kwok"),
		"etcd":                    command(filepath.Join(dir, "servers"), "etcd"),
		"kube-apiserver":          command(filepath.Join(dir, "servers"), "kube-apiserver"),
	}}
	needed := []string{"components", "servers", "kubectl"}
	if assets != "" {
		needed = needed[:1]
		p.Kubectl = filepath.Join(assets, "kubectl")
		p.Components["etcd"] = command(filepath.Join(assets, "etcd"))
		p.Components["kube-apiserver"] = command(filepath.Join(assets, "kube-apiserver"))
	}
	flags := []string{"-ldflags=" + linkFlags(version)}
	b := build{version, source, slices.Concat(buildEnv, []string{"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH}), flags, log}
	return p, b.ensure(ctx, dir, needed)
}

// build is a build of programs of this version.
type build struct {
	version, source string
	env, flags      []string
	log             io.Writer
}

// ensure compiles the programs that are not in the directory yet.
func (b build) ensure(ctx context.Context, dir string, programs []string) error {
	isBuilt := func(program string) bool {
		_, err := os.Stat(filepath.Join(dir, program))
		return err == nil
	}
	if programs = slices.DeleteFunc(programs, isBuilt); len(programs) == 0 {
		return nil
	}
	release, err := lock(ctx, dir+".lock", b.log)
	if err != nil {
		return fmt.Errorf("locking %s: %w", dir, err)
	}
	defer release()
	if programs = slices.DeleteFunc(programs, isBuilt); len(programs) == 0 {
		return nil
	}
	draft := dir + ".new"     // so that a program appears complete or not at all
	defer os.RemoveAll(draft) //nolint:errcheck // the next build writes the same files
	if err := b.compile(ctx, draft, programs); err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, program := range programs {
		if err := os.Rename(filepath.Join(draft, program), filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	return nil
}

// compile builds programs into a directory, and logs now and then how many packages are done.
func (b build) compile(ctx context.Context, dir string, programs []string) error {
	args := slices.Concat([]string{"build", "-v", "-o", dir + string(os.PathSeparator)}, b.flags)
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Env = b.source, append(os.Environ(), b.env...)
	// The go command stops its compilers when it is asked to end, but not when it is killed.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopGrace
	output, err := command.StderrPipe()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.log, "compiling Kubernetes %s, once per version: this takes 6 to 15 minutes\n", b.version)
	if err := command.Start(); err != nil {
		return err
	}
	var messages []string
	packages := 0
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.ContainsAny(lines.Text(), " \t:#") {
			messages = append(messages, lines.Text())
		} else if packages++; packages%200 == 0 {
			fmt.Fprintf(b.log, "%d packages are compiled\n", packages)
		}
	}
	if err := command.Wait(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("go: %w:\n%s", err, strings.Join(messages[max(0, len(messages)-errorOutput):], "\n")))
	}
	return nil
}

// sourceDir returns the directory of module parts. In a checkout it is below this module's.
// Elsewhere both modules are downloads, of the same version.
func sourceDir(ctx context.Context) (string, error) {
	var dir, version string
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path == module && info.Main.Sum != "" {
		version = info.Main.Version // go run module@version
	} else {
		output, err := goOutput(ctx, "list", "-m", "-f", "{{if or .Main .Replace}}{{.Dir}}{{end}}\n{{.Version}}", module)
		if err != nil {
			return "", err
		}
		dir, version, _ = strings.Cut(strings.TrimSuffix(string(output), "\n"), "\n")
	}
	if dir != "" {
		return filepath.Join(dir, "parts"), nil
	}
	output, err := goOutput(ctx, "mod", "download", "-json", module+"/parts@"+version)
	if err != nil {
		return "", err
	}
	var download struct{ Dir string }
	return download.Dir, json.Unmarshal(output, &download)
}

// goOutput returns what a go command prints. Its error has the command's messages.
func goOutput(ctx context.Context, args ...string) ([]byte, error) {
	output, err := exec.CommandContext(ctx, "go", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w:\n%s%s", err, output, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return output, nil
}

// command returns the shell command that runs a program.
func command(path string, argument ...string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "' " + strings.Join(argument, "")
}

// cacheDir returns the directory for the result of a build with these settings. Its name
// depends on everything that the result depends on.
func cacheDir(version, source string, settings ...any) (string, error) {
	dir := os.Getenv(CacheEnv)
	if dir == "" {
		caches, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the cache (or set %s): %w", CacheEnv, err)
		}
		dir = filepath.Join(caches, "local-cluster")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	key := sha256.New()
	fmt.Fprintln(key, settings...)
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "LICENSE" { // Go adds the repository's to a download
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(key, "%s %x\n", strings.TrimPrefix(path, source), sha256.Sum256(content))
		return err
	})
	return filepath.Join(dir, fmt.Sprintf("%s-%x", version, key.Sum(nil)[:8])), errors.Join(err, os.MkdirAll(dir, 0o755))
}

// lock waits until no other process holds the lock. The kernel releases the lock of a
// process that ends.
func lock(ctx context.Context, path string, log io.Writer) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	try := func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	}
	isFree, err := try(ctx)
	if err == nil && !isFree {
		fmt.Fprintln(log, "waiting for another process that is building the control plane")
		err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, false, try)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// versionOf returns the version of Kubernetes.
func versionOf(source string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes (v\d+\.\d+\.\S+)`).FindSubmatch(mod)
	if match == nil {
		return "", errors.New("go.mod requires no version of k8s.io/kubernetes")
	}
	return string(match[1]), nil
}

// linkFlags strips a program and sets its version, which a module's source does not contain.
func linkFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X="+pkg+".gitVersion="+version,
			"-X="+pkg+".gitMajor="+major,
			"-X="+pkg+".gitMinor="+minor,
			"-X="+pkg+".gitTreeState=clean",
		)
	}
	return strings.Join(flags, " ")
}
