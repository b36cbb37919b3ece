package parts

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/build"
)

// compile compiles the module at source into dir, which appears complete or not
// at all.
func compile(ctx context.Context, source, dir, version string, env []string, progress io.Writer) error {
	draft := dir + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	if err := os.Mkdir(draft, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(draft) //nolint:errcheck // the next build removes it first
	err := build.Build{
		Title:    "Kubernetes " + version + " (once per version)",
		Dir:      source,
		Env:      append(env, "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH),
		Flags:    []string{"-ldflags=" + linkFlags(version), "-o", draft + string(os.PathSeparator)},
		Packages: []string{"./components", "./kubectl"},
	}.Run(ctx, progress)
	if err != nil {
		return err
	}
	return os.Rename(draft, dir)
}

// linkFlags strips the program and gives it the version that a module's
// source does not hold: the one the API server reports and kubectl shows.
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
