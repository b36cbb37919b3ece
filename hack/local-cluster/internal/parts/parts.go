// Package parts builds the programs that a cluster is made of, once per
// version, into a cache that all checkouts of a user share.
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
	"strings"

	"nicoleh.io/k8s-controller/hack/local-cluster/buildenv"
	"nicoleh.io/k8s-controller/hack/local-cluster/internal/lock"
)

const (
	// CacheEnv names the directory of the cache, if not the user's.
	CacheEnv = "LOCAL_CLUSTER_CACHE"
	// SourceEnv names the directory of the parts' module, where it cannot be
	// found by asking the go command.
	SourceEnv = "LOCAL_CLUSTER_PARTS"

	module = "nicoleh.io/k8s-controller"
)

// Parts says where the programs are.
type Parts struct {
	Components string // etcd, kube-apiserver, ..., and kwok, by argv[0]
	Kubectl    string
	Version    string // of Kubernetes, e.g. v1.36.3
}

// Find returns the parts, and whether they are in the cache.
func Find(ctx context.Context) (Parts, bool, error) {
	source, err := findSource(ctx)
	if err != nil {
		return Parts{}, false, err
	}
	plan, err := planFor(source)
	if err != nil {
		return Parts{}, false, err
	}
	return plan.parts(), isDir(plan.dir), nil
}

// Ensure returns the parts from the cache. It builds them if they are not there, which
// takes minutes, and writes its progress to progress.
func Ensure(ctx context.Context, progress io.Writer) (Parts, error) {
	source, err := findSource(ctx)
	if err != nil {
		return Parts{}, err
	}
	plan, err := planFor(source)
	if err != nil {
		return Parts{}, err
	}
	if isDir(plan.dir) {
		return plan.parts(), nil
	}
	if err := os.MkdirAll(filepath.Dir(plan.dir), 0o755); err != nil {
		return Parts{}, fmt.Errorf("making the cache: %w", err)
	}
	held, err := lock.Wait(ctx, plan.dir+".lock", func() {
		fmt.Fprintln(progress, "waiting for another process that is building the control plane")
	})
	if err != nil {
		return Parts{}, err
	}
	defer held.Release()
	if isDir(plan.dir) {
		return plan.parts(), nil
	}
	if err := compile(ctx, source, plan.dir, plan.version, plan.env, progress); err != nil {
		return Parts{}, fmt.Errorf("building the control plane: %w", err)
	}
	return plan.parts(), nil
}

// plan says what to build, and where to.
type plan struct {
	version string
	env     []string
	dir     string
}

func (p plan) parts() Parts {
	return Parts{Components: filepath.Join(p.dir, "components"), Kubectl: filepath.Join(p.dir, "kubectl"), Version: p.version}
}

// planFor reads the module at source, which is hack/local-cluster/parts of a repository.
func planFor(source string) (plan, error) {
	env, err := buildenv.Read(filepath.Join(source, "..", "..", ".."))
	if err != nil {
		return plan{}, err
	}
	version, key, err := identify(source, env)
	if err != nil {
		return plan{}, fmt.Errorf("reading the source of the parts: %w", err)
	}
	cache, err := cacheDir()
	if err != nil {
		return plan{}, err
	}
	return plan{version: version, env: env, dir: filepath.Join(cache, key)}, nil
}

// findSource returns the directory of the module with the parts. The module
// that the caller runs in is this repository's, or replaces it with its directory.
func findSource(ctx context.Context) (string, error) {
	if dir := os.Getenv(SourceEnv); dir != "" {
		return dir, nil
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("finding the module %s (run inside it, or inside one that replaces it with its directory, or set %s): %w",
			module, SourceEnv, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "hack", "local-cluster", "parts"), nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache (or set %s): %w", CacheEnv, err)
	}
	return filepath.Join(dir, "local-cluster"), nil
}

// identify returns the version of Kubernetes and a key that is different for
// everything that would build differently.
func identify(source string, env []string) (version, key string, err error) {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", "", err
	}
	version, err = kubernetesVersion(mod)
	if err != nil {
		return "", "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, env, linkFlags(version))
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !isBuiltFrom(entry.Name()) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %x\n", filepath.ToSlash(relative), sha256.Sum256(content))
		return nil
	})
	if err != nil {
		return "", "", err
	}
	const enough = 8 // bytes
	return version, version + "-" + hex.EncodeToString(sum.Sum(nil)[:enough]), nil
}

// isBuiltFrom reports whether a file with this name is part of what is built.
func isBuiltFrom(name string) bool {
	return name == "go.mod" || name == "go.sum" || filepath.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
}

// kubernetesVersion reads the required version of Kubernetes from a go.mod.
func kubernetesVersion(mod []byte) (string, error) {
	match := regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes (v\d+\.\d+\.\S+)`).FindSubmatch(mod)
	if match == nil {
		return "", errors.New("go.mod requires no version of k8s.io/kubernetes")
	}
	return string(match[1]), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
