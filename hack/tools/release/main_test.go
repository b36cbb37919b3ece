package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var dist = flag.String("dist", "", "The output directory of hack/release.sh. If it is empty, the test builds a program of its own.")

const suffix = ".cdx.json"

// TestBillsOfMaterials checks that every bill of materials is valid by CycloneDX's schema,
// and lists the binary, its version and the modules that `go version -m` reports.
func TestBillsOfMaterials(t *testing.T) {
	if *dist == "" {
		*dist = buildProgram(t)
	}
	files, err := filepath.Glob(filepath.Join(*dist, "*"+suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("no bill of materials in %s (%v)", *dist, err)
	}
	schema := cycloneDXSchema(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content := read(t, file)
			document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(document); err != nil {
				t.Error(err)
			}
			var bom cdx.BOM
			if err := json.Unmarshal(content, &bom); err != nil {
				t.Fatal(err)
			}
			checkBinary(t, strings.TrimSuffix(file, suffix), &bom)
		})
	}
}

func checkBinary(t *testing.T, binary string, bom *cdx.BOM) {
	t.Helper()
	if strings.Contains(binary, "_windows_") {
		binary += ".exe"
	}
	main := bom.Metadata.Component
	if want := fmt.Sprintf("%x", sha256.Sum256(read(t, binary))); (*main.Hashes)[0].Value != want {
		t.Errorf("the digest is %s, but the digest of %s is %s", (*main.Hashes)[0].Value, binary, want)
	}
	if name := filepath.Base(binary); !strings.Contains(name, "_"+main.Version+"_") {
		t.Errorf("the version of %s is %q", name, main.Version)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.Name+" "+c.Version)
		if c.Licenses == nil || len(*c.Licenses) == 0 {
			t.Errorf("%s has no license", c.Name)
		}
	}
	if diff := cmp.Diff(modulesOf(t, binary), got); diff != "" {
		t.Errorf("modules (-go version -m +bill of materials):\n%s", diff)
	}
}

// modulesOf returns the modules that go version -m reports for a binary, as "name version".
func modulesOf(t *testing.T, binary string) []string {
	t.Helper()
	var modules []string
	for line := range strings.Lines(goCommand(t, ".", "version", "-m", binary)) {
		switch fields := strings.Fields(line); {
		case strings.HasSuffix(fields[0], ":"):
			modules = append(modules, "stdlib "+strings.TrimPrefix(fields[1], "go"))
		case fields[0] == "dep":
			modules = append(modules, fields[1]+" "+fields[2])
		case fields[0] == "=>":
			modules[len(modules)-1] = fields[1] + " " + fields[2]
		}
	}
	slices.Sort(modules)
	return modules
}

func TestUnknownLicense(t *testing.T) {
	dir := t.TempDir()
	save(t, filepath.Join(dir, "LICENSE"), "All of it is mine.\n")
	if licenses, err := licensesIn(dir); err == nil {
		t.Errorf("licenses are %v, want an error", licenses)
	}
}

// buildProgram builds this program and its bill of materials, and returns their directory.
func buildProgram(t *testing.T) string {
	t.Helper()
	source, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"../go.mod", "../go.sum", "main.go"} {
		save(t, filepath.Join(source, filepath.Base(name)), string(read(t, name)))
	}
	save(t, filepath.Join(source, "LICENSE"), string(read(t, "../../../LICENSE")))
	binary := filepath.Join(out, "controller_v1.2.3_test")
	goCommand(t, source, "build", "-o", binary, ".")

	t.Chdir(source)
	var bom [2]bytes.Buffer
	for i := range bom {
		if err := write(&bom[i], binary, "v1.2.3", "2026-01-02T03:04:05Z"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(bom[0].String(), bom[1].String()); diff != "" {
		t.Errorf("two bills of materials of the same binary differ:\n%s", diff)
	}
	save(t, binary+suffix, bom[0].String())
	return out
}

// cycloneDXSchema returns the schema that the module of the CycloneDX library contains.
func cycloneDXSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir := strings.TrimSpace(goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go"))
	name := "http://cyclonedx.org/schema/bom-" + specVersion.String() + ".schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for url, file := range map[string]string{
		name: "bom-" + specVersion.String() + ".schema.json",
		"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, filepath.Join(dir, "schema", file))))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(url, document); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func save(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
