// Command render writes the files of a fork: those of the commit that is checked out here,
// without what manifest.yaml says that forks leave out, and under other names. What is
// generated is generated again. The same answers give the same bytes.
package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kept is what a fork keeps about its origin, in .template.yaml.
type kept struct {
	Answers Answers `json:"answers"`
	Commit  string  `json:"commit"` // of the template
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	answers := flags.String("answers", "", "file of answers, as a fork keeps it")
	dir := flags.String("dir", "", "directory to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	content, err := os.ReadFile(*answers)
	if err != nil {
		return err
	}
	var k kept
	if err := yaml.UnmarshalStrict(content, &k); err != nil {
		return fmt.Errorf("reading %s: %w", *answers, err)
	}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("asking git for the commit: %w", err)
	}
	k.Commit = strings.TrimSpace(string(commit))
	files, err := committed(ctx, ".")
	if err != nil {
		return err
	}
	source, err := sourceFor(files, k.Answers.Controllers)
	if err != nil {
		return err
	}
	names, err := k.Answers.Names()
	if err != nil {
		return err
	}
	fmt.Printf("%s: the plural is %s and the short name %s (-plural and -short choose others).\n", names.Kind, names.Plural(), names.Short)
	if files, err = source.fork(k); err != nil {
		return err
	}
	if err := write(*dir, files); err != nil {
		return err
	}
	return generate(ctx, *dir, files)
}

// A source is what forks with the same controllers are made from.
type source struct {
	files []file
	scope *scope
}

// sourceFor returns the files without those that forks with these controllers leave out.
func sourceFor(files []file, controllers []string) (s source, err error) {
	m, err := readManifest()
	if err != nil {
		return s, err
	}
	if s.files, err = m.leaveOut(files, controllers); err != nil {
		return s, err
	}
	s.scope, err = declared(s.files)
	return s, err
}

// fork returns the files of a fork, but for what is generated.
func (s source) fork(k kept) ([]file, error) {
	names, err := k.Answers.Names()
	if err != nil {
		return nil, err
	}
	r, err := s.scope.renamer(template(), names)
	if err != nil {
		return nil, err
	}
	files, err := r.all(s.files)
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		if f.path == "README.md" {
			files[i].content = slices.Concat(f.content, []byte(origin))
		}
	}
	k.Answers.Plural, k.Answers.Short = names.Plural(), names.Short // a later version could choose others
	content, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	files = append(files, file{path: ".template.yaml", content: append([]byte(
		"# How this repository was made. hack/fork reads this when it brings an update.\n"), content...)})
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return files, nil
}

// origin is the end of a fork's README.md.
const origin = `
## Origin

This repository was made from a template, the Icecream controller. ` + "`go run ./hack/fork update -from DIR`" + ` merges what is new in a later version of it that is checked out in DIR. [.template.yaml](.template.yaml) has what that needs to know.
`

// generate brings up to date what follows from the rest: the code, then the modules,
// because what was left out may have been the only one to need a library, and then the
// manifests.
func generate(ctx context.Context, dir string, files []file) error {
	steps := [][]string{{"hack/update-codegen.sh"}}
	for _, f := range files {
		if path.Base(f.path) == "go.mod" {
			steps = append(steps, []string{"go", "-C", path.Dir(f.path), "mod", "tidy"})
		}
	}
	steps = append(steps, []string{"hack/update-manifests.sh"})
	for _, step := range steps {
		fmt.Println(strings.Join(step, " "))
		command := exec.CommandContext(ctx, step[0], step[1:]...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s in %s: %w\n%s", strings.Join(step, " "), dir, err, out)
		}
	}
	return nil
}

// write writes files into a directory.
func write(dir string, files []file) error {
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if f.isExecutable {
			mode = 0o755
		}
		if err := os.WriteFile(name, f.content, mode); err != nil {
			return err
		}
	}
	return nil
}

// committed returns the files of the commit that is checked out in a directory.
func committed(ctx context.Context, dir string) (files []file, err error) {
	git := exec.CommandContext(ctx, "git", "-C", dir, "archive", "--format=tar", "HEAD^{tree}")
	out, err := git.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := git.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, git.Wait()) }()
	for archive := tar.NewReader(out); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the files of %s: %w", dir, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: header.Name, isExecutable: header.Mode&0o100 != 0, content: content})
	}
}
