// Package hack tests the scripts of this directory.
package hack

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Stand-ins for container engines print the commands that would build or push.
const (
	notRunning = "exit 1"
	podman     = `case "$*" in
info*) ;;
"buildx version") echo "buildah 1.39.3" ;;
*"build --help") printf '  --manifest string\n  --platform strings\n  --sbom string\n  --timestamp int\n' ;;
"manifest exists"*) exit 1 ;;
*) echo "$(basename "$0") $*"; [[ $* != *"--file -"* ]] || grep -e ENTRYPOINT ;;
esac`
	oldBuildx = `case "$*" in
info*) ;;
"buildx build --help") printf '      --load\n      --platform stringArray\n      --push\n' ;;
*) exit 1 ;;
esac`
)

// docker is Docker Engine with that store and that builder.
func docker(store, driver string) string {
	return `case "$*" in
"info --format"*) echo "[[driver-type ` + store + `]]" ;;
info) ;;
"buildx inspect") printf 'Name:   a\nDriver: ` + driver + `\n' ;;
"buildx build --help") printf -- '      --load\n      --platform stringArray\n      --provenance string\n      --push\n      --sbom string\n' ;;
*) echo "docker $*" ;;
esac`
}

const (
	classic    = "overlay2"
	containerd = "io.containerd.snapshotter.v1"
)

// An engine is used if it can do what is asked for, and not because a program has its name.
// If none can, one line says what to do.
func TestImage(t *testing.T) {
	const both = "PLATFORMS=linux/amd64,linux/arm64"
	for name, test := range map[string]struct {
		engines map[string]string
		env     string
		want    []string // in the output
		refused bool
	}{
		"docker":                             {engines: map[string]string{"docker": docker(classic, "docker")}, want: []string{"docker buildx build --tag x:1", "--load --provenance=false"}},
		"docker first":                       {engines: map[string]string{"docker": docker(classic, "docker"), "buildah": podman}, want: []string{"docker buildx build"}},
		"docker is podman":                   {engines: map[string]string{"docker": podman, "podman": podman}, want: []string{"podman build --timestamp", "--tag x:1"}},
		"docker is podman, next to buildah":  {engines: map[string]string{"docker": podman, "buildah": podman}, want: []string{"buildah build --timestamp"}},
		"docker is podman, and nothing else": {engines: map[string]string{"docker": podman}, refused: true, want: []string{"docker: 'docker buildx build' has no --provenance", "buildah: it is not installed; podman: it is not installed"}},
		"a program":                          {engines: map[string]string{"podman": podman}, env: "PROGRAM=apps/x", want: []string{"--build-arg PROGRAM=apps/x", `ENTRYPOINT ["/controller"]`}},
		"a part of a program":                {engines: map[string]string{"podman": podman}, env: "PROGRAM=apps/x/agent", want: []string{"--build-arg PROGRAM=apps/x/agent", `ENTRYPOINT ["/agent"]`}},
		"podman's docker is asked for":       {engines: map[string]string{"docker": podman, "podman": podman}, env: "ENGINE=docker", refused: true, want: []string{"unless docker is podman's name here"}},
		"docker does not run":                {engines: map[string]string{"docker": notRunning, "buildah": podman}, want: []string{"buildah build"}},
		"nothing runs":                       {engines: map[string]string{"docker": notRunning, "podman": notRunning}, refused: true, want: []string{"docker: 'docker info' fails: start its engine", "podman: 'podman info' fails"}},
		"nothing is there":                   {refused: true, want: []string{"docker: it is not installed"}},
		"an old buildx":                      {engines: map[string]string{"docker": oldBuildx}, refused: true, want: []string{"install buildx 0.10 or later"}},
		"two platforms":                      {engines: map[string]string{"docker": docker(classic, "docker-container")}, env: both, refused: true, want: []string{"set PUSH=1, or turn on its containerd image store"}},
		"two platforms, by containerd":       {engines: map[string]string{"docker": docker(containerd, "docker")}, env: both, want: []string{"docker buildx build", "--platform linux/amd64,linux/arm64", "--load"}},
		"two platforms, by buildah":          {engines: map[string]string{"docker": docker(classic, "docker"), "buildah": podman}, env: both, want: []string{"buildah build", "--manifest x:1"}},
		"a push":                             {engines: map[string]string{"docker": docker(classic, "docker-container")}, env: "PUSH=1", want: []string{"--platform linux/amd64,linux/arm64", "--push --sbom=generator=docker/buildkit-syft-scanner:", "@sha256:", "--provenance=mode=max"}},
		"a push, by containerd":              {engines: map[string]string{"docker": docker(containerd, "docker")}, env: "PUSH=1", want: []string{"docker buildx build", "--push"}},
		"a push, by podman":                  {engines: map[string]string{"podman": podman}, env: "PUSH=1", want: []string{"podman manifest push --all x:1 docker://x:1", "without a bill of materials"}},
		"a push by a builder that cannot":    {engines: map[string]string{"docker": docker(classic, "docker")}, env: "PUSH=1", refused: true, want: []string{"run 'docker buildx create --use'"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := runWith(t, test.engines, []string{"IMAGE=x:1", "VERSION=v1", "COMMIT=c", "DATE=d", "LDFLAGS=-w", test.env}, "./image.sh")
			if (err != nil) != test.refused || test.refused && strings.Count(output, "\n") != 1 {
				t.Errorf("the error is %v, and the output\n%s", err, output)
			}
			for _, want := range test.want {
				if !strings.Contains(output, want) {
					t.Errorf("no %q in\n%s", want, output)
				}
			}
		})
	}
}

// An image with another binary than the release is found before it is signed, on whatever
// platform, and so is a release that says nothing about it.
func TestCompareImage(t *testing.T) {
	const engine = `case "$*" in
create*linux/amd64*) echo amd64 ;;
create*linux/arm64*) echo arm64 ;;
"inspect --format {{index .Config.Entrypoint 0}} a"*) echo /controller ;;
"cp amd64:/controller -") cd "${IMAGES}" && tar -cf - --transform s/amd64/controller/ amd64 ;;
"cp arm64:/controller -") cd "${IMAGES}" && tar -cf - --transform s/arm64/controller/ arm64 ;;
rm*) ;;
*) exit 1 ;;
esac`
	for name, test := range map[string]struct{ amd64, arm64, sums, want string }{
		"the same":           {amd64: "a", arm64: "b", want: "has the controller of the release, for 2 platforms"},
		"another":            {amd64: "x", arm64: "b", want: "for linux/amd64 has another controller"},
		"another for Arm":    {amd64: "a", arm64: "x", want: "for linux/arm64 has another controller"},
		"nothing to compare": {sums: "0  another_v1.2.3_linux_amd64\n", want: "has no controller for Linux"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if test.sums == "" {
				test.sums = fmt.Sprintf("%x  controller_v1.2.3_linux_amd64\n%x  controller_v1.2.3_linux_arm64\n0  controller_v1.2.3_linux_amd64.cdx.json\n0  controller_v1.2.3_darwin_arm64\n",
					sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b")))
			}
			for file, content := range map[string]string{"amd64": test.amd64, "arm64": test.arm64, "SHA256SUMS": test.sums} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			output, err := runWith(t, map[string]string{"docker": engine}, []string{"DIST=" + dir, "IMAGES=" + dir}, "./compare-image.sh", "x@sha256:1", "controller")
			if !strings.Contains(output, test.want) || (err == nil) != (name == "the same") {
				t.Errorf("%v:\n%s", err, output)
			}
		})
	}
}

// Each module and each tool is looked at, and each that has a vulnerability makes the check
// fail, but for Kubernetes.
func TestVulncheck(t *testing.T) {
	const goCommand = `case "$*" in
"tool -modfile="*) echo "tool:${*: -1}" ;;
*"list -modfile=go.mod "*) printf 'example/helm\nexample/linter\n' ;;
*"list -modfile=checks.mod "*) printf 'example/kube-score\n' ;;
*) exit 1 ;;
esac`
	files, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "--", "go.mod", "**/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, vulnerable := range []string{"", "-C . ", "-C test", "-C hack/local-cluster ", "-C hack/local-cluster/parts", "tool:linter", "tool:kube-score"} {
		t.Run(vulnerable, func(t *testing.T) {
			t.Parallel()
			programs := map[string]string{"curl": "", "go": goCommand, "tool:govulncheck": `echo "scan $*"; [[ -z ${BAD} || "$* " != *"${BAD}"* ]]`}
			output, err := runWith(t, programs, []string{"BAD=" + vulnerable}, "./vulncheck.sh")
			if want := vulnerable != "" && !strings.Contains(vulnerable, "parts"); (err != nil) != want {
				t.Errorf("the error is %v", err)
			}
			for file := range strings.FieldsSeq(string(files)) {
				if module := filepath.Dir(file); module != "hack/tools" && !strings.Contains(output, "scan -C "+module+" ") {
					t.Errorf("%s is not looked at:\n%s", module, output)
				}
			}
			for _, tool := range []string{"helm", "linter", "kube-score"} {
				if !strings.Contains(output, "scan -mode=binary tool:"+tool) {
					t.Errorf("%s is not looked at:\n%s", tool, output)
				}
			}
		})
	}
}

// runWith runs a script where there are these programs, and the usual tools, and no others.
func runWith(t *testing.T, programs map[string]string, env []string, script string, args ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/usr/bin/env bash\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"awk", "basename", "bash", "cat", "cut", "dirname", "env", "git", "go", "grep", "mktemp", "rm", "sed", "sha256sum", "tar"} {
		if _, isStandIn := programs[tool]; isStandIn {
			continue
		}
		at, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), script, args...)
	command.Env = append(append(os.Environ(), "PATH="+bin, "PLATFORMS=", "PUSH=", "ENGINE="), env...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// An image has all files that its programs are compiled from.
func TestImageContext(t *testing.T) {
	ignore, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	isIn := func(file string) bool {
		for line := range strings.Lines(string(ignore)) {
			pattern, isException := strings.CutPrefix(strings.TrimSpace(line), "!")
			if matched, _ := filepath.Match(pattern, file); isException && (matched || strings.HasPrefix(file, pattern+"/")) {
				return true
			}
		}
		return false
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	const files = "{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}}\n{{end}}{{range $.EmbedFiles}}{{$.Dir}}/{{.}}\n{{end}}{{end}}{{end}}"
	list := exec.Command("go", "list", "-deps", "-f", files, ".", "./hack/licenses")
	if apps, err := os.ReadDir("../apps"); err == nil && len(apps) > 0 {
		list.Args = append(list.Args, "./apps/...")
	}
	list.Dir, list.Stderr = root, os.Stderr
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.FieldsSeq(string(output)) {
		if file, err := filepath.Rel(root, file); err != nil || !isIn(file) {
			t.Errorf(".dockerignore leaves out %s (%v)", file, err)
		}
	}
}
