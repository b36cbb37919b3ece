// Package image tests which flags hack/image.sh gives to docker, by a docker that only
// writes them down. hack/test-image.sh builds images for real.
package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const docker = `#!/bin/sh
printf '%s\n' "$@" >>"${ARGUMENTS}"
`

// flags are those of the docker that builds an image.
func flags(t *testing.T, settings ...string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	written := filepath.Join(dir, "arguments")
	command := exec.Command("../../image.sh", "--metadata-file", "m.json")
	command.Env = append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ARGUMENTS="+written, "ENGINE=docker",
		"IMAGE=registry.example/k8s-controller:v1", "VERSION=v1", "COMMIT=c", "DATE=d", "LDFLAGS=-s"), settings...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	arguments, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(arguments), "\n")
}

func TestWhatIsPushedHasABillOfMaterialsAndProvenance(t *testing.T) {
	given := flags(t, "PUSH=1", "PLATFORMS=linux/amd64,linux/arm64")
	for _, want := range []string{"--push", "--sbom=true", "--provenance=mode=max", "linux/amd64,linux/arm64", "m.json"} {
		if !slices.Contains(given, want) {
			t.Errorf("docker is not given %s: %q", want, given)
		}
	}
}

func TestWhatIsNotPushedHasNothingToAttachThemTo(t *testing.T) {
	given := flags(t, "PUSH=")
	if !slices.Contains(given, "--load") || slices.Contains(given, "--push") || slices.Contains(given, "--sbom=true") {
		t.Errorf("docker is given %q", given)
	}
}
