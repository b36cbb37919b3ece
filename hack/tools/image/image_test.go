// Package image tests which flags hack/image.sh passes to docker. A script takes the place
// of docker and records its arguments. hack/test-image.sh tests how real images are built.
package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// docker is the script. It appends its arguments to a file, one per line.
const docker = `#!/bin/sh
printf '%s\n' "$@" >>"${ARGUMENTS}"
`

// flags returns the arguments that hack/image.sh passes to docker. settings are environment
// variables of the form "NAME=value".
func flags(t *testing.T, settings ...string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	record := filepath.Join(dir, "arguments")
	command := exec.Command("../../image.sh", "--metadata-file", "m.json")
	command.Env = append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ARGUMENTS="+record, "ENGINE=docker",
		"IMAGE=registry.example/k8s-controller:v1", "VERSION=v1", "COMMIT=c", "DATE=d", "LDFLAGS=-s"), settings...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	arguments, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(arguments), "\n")
}

func TestPushedImageHasBillOfMaterialsAndProvenance(t *testing.T) {
	got := flags(t, "PUSH=1", "PLATFORMS=linux/amd64,linux/arm64")
	for _, want := range []string{"--push", "--sbom=true", "--provenance=mode=max", "linux/amd64,linux/arm64", "m.json"} {
		if !slices.Contains(got, want) {
			t.Errorf("flags of docker %q do not include %s", got, want)
		}
	}
}

func TestImageThatIsNotPushedHasNoBillOfMaterials(t *testing.T) {
	got := flags(t, "PUSH=")
	if !slices.Contains(got, "--load") || slices.Contains(got, "--push") || slices.Contains(got, "--sbom=true") {
		t.Errorf("flags of docker are %q", got)
	}
}
