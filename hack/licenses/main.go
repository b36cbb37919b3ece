// Command licenses prints the license texts and notices of everything that is linked into
// a binary of this repository: its own, those of Go, and those of every module.
//
//	go run ./hack/licenses BINARY
//
// It reads them from Go's module cache, which has what the binary was built from.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: licenses BINARY")
		os.Exit(2)
	}
	var out bytes.Buffer
	err := run(os.Args[1], &out)
	if err == nil {
		_, err = out.WriteTo(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// legal matches the names of files with licenses and notices, also of code that a module
// has from elsewhere.
var legal = regexp.MustCompile(`(?i)^(licen[cs]es?|notices?|copying|copyright|patents|authors)([.-].*)?$`)

// run writes every text once, below the names of all files that contain it.
func run(binary string, out io.Writer) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	cache, goroot, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	t := texts{}
	err = errors.Join(
		t.add(info.Main.Path, ".", false),
		t.add("Go "+strings.TrimPrefix(info.GoVersion, "go"), goroot, false))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		name := module.Path + " " + module.Version
		err = errors.Join(err, t.add(name, filepath.Join(cache, escape(module.Path)+"@"+escape(module.Version)), true))
	}
	if err != nil {
		return err
	}
	for _, text := range t.sorted() {
		fmt.Fprintf(out, "%s\n%s\n\n%s\n\n", strings.Repeat("=", 80), strings.Join(text.files, "\n"), strings.TrimSpace(text.content))
	}
	return nil
}

// A text is the content of some files.
type text struct {
	content string
	files   []string
}

type texts map[[sha256.Size]byte]*text

// add adds the texts of a module, which has at least one, from its directory and, if it is
// deep, from those below.
func (t texts) add(module, dir string, deep bool) error {
	found := false
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && (!deep || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.Type().IsRegular(), !legal.MatchString(entry.Name()), filepath.Ext(path) == ".go":
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		key := sha256.Sum256(bytes.TrimSpace(content))
		if t[key] == nil {
			t[key] = &text{content: string(content)}
		}
		t[key].files = append(t[key].files, module+": "+filepath.ToSlash(relative))
		found = true
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: there is no license in %s", module, dir)
	}
	return err
}

// sorted returns the texts by their first file, which is the same on each machine.
func (t texts) sorted() (list []*text) {
	for _, text := range t {
		list = append(list, text)
	}
	slices.SortFunc(list, func(a, b *text) int { return cmp.Compare(a.files[0], b.files[0]) })
	return list
}

// escape writes a path or version as the module cache does, which has no upper-case letters.
func escape(name string) string {
	return regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(name, func(letter string) string { return "!" + strings.ToLower(letter) })
}
