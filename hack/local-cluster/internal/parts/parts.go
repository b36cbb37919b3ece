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

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/lock"
)

const (
	// CacheEnv names the directory of the cache, if not the user's.
	CacheEnv = "LOCAL_CLUSTER_CACHE"
	// SourceEnv names the directory of the parts' module, where it cannot be
	// found by asking the go command.
	SourceEnv = "LOCAL_CLUSTER_PARTS"

	module = "nicoleh.io/k8s-controller/hack/local-cluster"
)

// Parts is where the programs are.
type Parts struct {
	Kubernetes string // etcd, kube-apiserver, ..., kubectl, by argv[0]
	Kwok       string
	Version    string // of Kubernetes, e.g. v1.36.3
}

// Ensure returns the parts from the cache, building them when they are not
// there, which takes minutes. What goes on is written to progress.
func Ensure(ctx context.Context, progress io.Writer) (Parts, error) {
	source, err := findSource(ctx)
	if err != nil {
		return Parts{}, err
	}
	version, key, err := identify(source)
	if err != nil {
		return Parts{}, fmt.Errorf("reading the source of the parts: %w", err)
	}
	cache, err := cacheDir()
	if err != nil {
		return Parts{}, err
	}
	dir := filepath.Join(cache, key)
	parts := Parts{
		Kubernetes: filepath.Join(dir, "kubernetes"),
		Kwok:       filepath.Join(dir, "kwok"),
		Version:    version,
	}
	if isDir(dir) {
		return parts, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Parts{}, fmt.Errorf("making the cache: %w", err)
	}
	held, err := lock.Wait(ctx, dir+".lock", func() {
		fmt.Fprintln(progress, "waiting for another process that builds the control plane")
	})
	if err != nil {
		return Parts{}, err
	}
	defer held.Release()
	if isDir(dir) {
		return parts, nil
	}
	if err := build(ctx, source, dir, version, progress); err != nil {
		return Parts{}, fmt.Errorf("building the control plane: %w", err)
	}
	return parts, nil
}

// findSource returns the directory of the module with the parts. The module
// that the caller runs in knows where this one is, itself or by a replace.
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
	return filepath.Join(strings.TrimSpace(string(out)), "parts"), nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache (or set %s): %w", CacheEnv, err)
	}
	return filepath.Join(dir, "k8s-controller", "local-cluster"), nil
}

// identify returns the version of Kubernetes and a key that is different for
// everything that would build differently.
func identify(source string) (version, key string, err error) {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", "", err
	}
	version, err = kubernetesVersion(mod)
	if err != nil {
		return "", "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, buildArgs("", version))
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if name := entry.Name(); name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" {
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
