// Package buildenv reads hack/build.env: the environment in which every program of this
// repository is compiled, so that all of them find each other's packages in the cache.
package buildenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Read returns the variables of hack/build.env as os/exec needs them, NAME=value. The
// directory is the root of the repository.
func Read(root string) ([]string, error) {
	path := filepath.Join(root, "hack", "build.env")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the build flags: %w", err)
	}
	variables, err := parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return variables, nil
}

// parse understands what a shell would understand in the same way: comments, empty lines
// and NAME='value'.
func parse(content string) ([]string, error) {
	var variables []string
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, quoted, found := strings.Cut(line, "=")
		value, isOpen := strings.CutPrefix(quoted, "'")
		value, isClosed := strings.CutSuffix(value, "'")
		if !found || !isOpen || !isClosed || strings.ContainsAny(value, "'") || strings.ContainsAny(name, " \t") || name == "" {
			return nil, fmt.Errorf("line %q is not NAME='value'", line)
		}
		variables = append(variables, name+"="+value)
	}
	return variables, nil
}
