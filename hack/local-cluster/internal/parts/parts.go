// Package parts compiles the programs of a cluster, once per version, into a cache that all
// checkouts of a user share.
package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"nicoleh.io/k8s-controller/hack/gobuild/build"
	"nicoleh.io/k8s-controller/hack/gobuild/buildenv"
)

const (
	// CacheEnv names the directory of the cache, if it is not the user's.
	CacheEnv = "LOCAL_CLUSTER_CACHE"
	// AssetsEnv names a directory with etcd, kube-apiserver and kubectl, which are then not
	// compiled. envtest and setup-envtest use the same variable.
	AssetsEnv = "KUBEBUILDER_ASSETS"

	module   = "nicoleh.io/k8s-controller"
	lockPoll = 200 * time.Millisecond
)

// Programs are the programs of a cluster.
type Programs struct {
	Components map[string]string // shell commands, by the names of the components
	Kubectl    string            // path
}

// Ensure returns the programs. If some are not in the cache, it compiles them, which takes
// minutes, and writes its progress to the log.
func Ensure(ctx context.Context, log io.Writer) (Programs, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return Programs{}, fmt.Errorf("finding the module %s, in which or in a module that replaces it this must run: %w", module, err)
	}
	return ensure(ctx, strings.TrimSpace(string(root)), log)
}

func ensure(ctx context.Context, root string, log io.Writer) (Programs, error) {
	env, err := buildenv.Read(root)
	if err != nil {
		return Programs{}, err
	}
	source, assets := filepath.Join(root, "hack", "local-cluster", "parts"), os.Getenv(AssetsEnv)
	packages := []string{"./components", "./servers", "./kubectl"}
	if assets != "" {
		packages = packages[:1]
	}
	version, key, err := identify(source, slices.Concat(packages, env))
	if err != nil {
		return Programs{}, fmt.Errorf("reading %s: %w", source, err)
	}
	cache, err := cacheDir()
	if err != nil {
		return Programs{}, err
	}
	dir := filepath.Join(cache, version+"-"+key)
	if isBuilt(dir) {
		return programs(dir, assets), nil
	}
	release, err := lock(ctx, dir+".lock", log)
	if err != nil {
		return Programs{}, err
	}
	defer release()
	if isBuilt(dir) {
		return programs(dir, assets), nil
	}
	err = compile(ctx, dir, log, build.Build{
		Title:    "Kubernetes " + version + " (once per version)",
		Dir:      source,
		Env:      append(env, "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH),
		Flags:    []string{"-ldflags=" + linkFlags(version)},
		Packages: packages,
	})
	if err != nil {
		return Programs{}, fmt.Errorf("building the control plane: %w", err)
	}
	return programs(dir, assets), nil
}

func isBuilt(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

func programs(dir, assets string) Programs {
	command := func(dir, file, argument string) string {
		return "'" + strings.ReplaceAll(filepath.Join(dir, file), "'", `'\''`) + "' " + argument
	}
	p := Programs{Kubectl: filepath.Join(dir, "kubectl"), Components: map[string]string{
		"etcd":           command(dir, "servers", "etcd"),
		"kube-apiserver": command(dir, "servers", "kube-apiserver"),
	}}
	if assets != "" {
		p = Programs{Kubectl: filepath.Join(assets, "kubectl"), Components: map[string]string{
			"etcd":           command(assets, "etcd", ""),
			"kube-apiserver": command(assets, "kube-apiserver", ""),
		}}
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		p.Components[name] = command(dir, "components", name)
	}
	return p
}

func cacheDir() (string, error) {
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
	return dir, os.MkdirAll(dir, 0o755)
}

// compile builds into a directory that appears complete or not at all.
func compile(ctx context.Context, dir string, log io.Writer, b build.Build) error {
	draft := dir + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	if err := os.Mkdir(draft, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(draft) //nolint:errcheck // the next build removes it first
	b.Flags = append(b.Flags, "-o", draft+string(os.PathSeparator))
	if err := b.Run(ctx, log); err != nil {
		return err
	}
	return os.Rename(draft, dir)
}

// lock waits until no other process holds the lock. The kernel releases the lock of a
// process that ends.
func lock(ctx context.Context, path string, log io.Writer) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
		}
		if !waited {
			fmt.Fprintln(log, "waiting for another process that is building the control plane")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(lockPoll):
		}
	}
}

// identify returns the version of Kubernetes, and a key of everything that the result of a
// build with these settings depends on.
func identify(source string, settings []string) (version, key string, err error) {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", "", err
	}
	match := regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes (v\d+\.\d+\.\S+)`).FindSubmatch(mod)
	if match == nil {
		return "", "", errors.New("go.mod requires no version of k8s.io/kubernetes")
	}
	version = string(match[1])
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, settings, linkFlags(version))
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %x\n", strings.TrimPrefix(path, source), sha256.Sum256(content))
		return err
	})
	return version, hex.EncodeToString(sum.Sum(nil)[:8]), err
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
