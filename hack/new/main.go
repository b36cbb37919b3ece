// Command new makes a repository for a controller of your own, from examples/database:
//
//	go run nicoleh.io/k8s-controller/hack/new@VERSION example.com/pantry
//
// writes the directory pantry. Its go.mod requires this module at the version that runs, and the
// generators as tools. README.md there says how to go on.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

const (
	kit     = "nicoleh.io/k8s-controller"
	example = "examples/database"
)

// tools are the generators, at the versions of hack/tools/go.mod.
var tools = []string{
	"k8s.io/code-generator/cmd/client-gen@v0.37.2",
	"sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0",
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "new:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("say the path of your module, such as example.com/pantry")
	}
	name, info := args[0], &debug.BuildInfo{}
	if read, ok := debug.ReadBuildInfo(); ok {
		info = read
	}
	if !semver.IsValid(info.Main.Version) {
		return fmt.Errorf("run it at a version: go run %s/hack/new@latest %s", kit, name)
	}
	if err := module.CheckPath(name); err != nil {
		return err
	}
	source, err := download(info.Main.Version)
	if err != nil {
		return err
	}
	dir := path.Base(name)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a repository is no secret
		return err
	}
	if err := copyTree(source, dir, name); err != nil {
		return fmt.Errorf("copying %s: %w", example, err)
	}
	for _, command := range [][]string{
		{"go", "mod", "init", name},
		{"go", "mod", "edit", "-require=" + kit + "@" + info.Main.Version},
		append([]string{"go", "get", "-tool"}, tools...),
		{"go", "mod", "tidy"},
	} {
		step := exec.Command(command[0], command[1:]...) //nolint:gosec // the path of a module
		step.Dir, step.Stderr = dir, os.Stderr
		if err := step.Run(); err != nil {
			return fmt.Errorf("%v: %w", command, err)
		}
	}
	fmt.Printf("%s is a module with a controller for Databases. Next:\n\n  cd %s\n  make test\n\nREADME.md says in which order to read, and what to rename.\n", name, dir)
	return nil
}

// download returns the directory of the example in the module at this version.
func download(version string) (string, error) {
	command := exec.Command("go", "mod", "download", "-json", kit+"@"+version) //nolint:gosec // its own version
	command.Stderr = os.Stderr
	output, err := command.Output()
	var downloaded struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(output, &downloaded)); err != nil {
		return "", fmt.Errorf("downloading %s@%s: %w %s", kit, version, err, downloaded.Error)
	}
	return filepath.Join(downloaded.Dir, filepath.FromSlash(example)), nil
}

// copyTree copies the example, whose packages get the path of the new module.
func copyTree(source, target, name string) error {
	return fs.WalkDir(os.DirFS(source), ".", func(file string, entry fs.DirEntry, err error) error {
		to := filepath.Join(target, filepath.FromSlash(file))
		if err != nil || entry.IsDir() {
			return errors.Join(err, os.MkdirAll(to, 0o755)) //nolint:gosec // as above
		}
		content, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644) // a module has no modes
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		content = bytes.ReplaceAll(content, []byte(kit+"/"+example), []byte(name))
		if filepath.Ext(to) == ".go" { // imports are sorted by their paths
			if content, err = format.Source(content); err != nil {
				return err
			}
		}
		return os.WriteFile(to, content, mode)
	})
}
