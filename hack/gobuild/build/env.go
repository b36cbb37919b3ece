package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Env returns the variables of hack/build.env as os/exec needs them, NAME=value. The
// directory is the root of the repository. In this environment, every program of the
// repository is compiled, so that all of them find each other's packages in the cache.
func Env(root string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(root, "hack", "build.env"))
	if err != nil {
		return nil, fmt.Errorf("reading the build flags: %w", err)
	}
	var variables []string
	for line := range strings.Lines(string(content)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			variables = append(variables, name+"="+strings.Trim(value, "'"))
		}
	}
	return variables, nil
}
