// Package vulncheck tests hack/vulncheck.sh on a small program. It uses its own databases of
// vulnerabilities, because the real one may not be reachable.
package vulncheck

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// calling is a program that calls url.Parse.
var calling = map[string]string{
	"go.mod":  "module example.com/calling\n\ngo 1.26.0\n",
	"main.go": "package main\n\nimport \"net/url\"\n\nfunc main() { _, _ = url.Parse(\"x\") }\n",
}

// advisories returns the files of a database with a single vulnerability: it is in the given
// function of package net/url, in every version of Go.
func advisories(function string) map[string]string {
	const modified = `"2026-11-01T00:00:00Z"`
	return map[string]string{
		"index/db.json":      `{"modified":` + modified + `}`,
		"index/modules.json": `[{"path":"stdlib","vulns":[{"id":"GO-2026-0001","modified":` + modified + `}]}]`,
		"ID/GO-2026-0001.json": `{"schema_version":"1.3.1","id":"GO-2026-0001","modified":` + modified + `,"published":` + modified + `,
			"summary":"Made up","details":"Made up.","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
			"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"net/url","symbols":["` + function + `"]}]}}],
			"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2026-0001"}}`,
	}
}

// write writes files to a temporary directory and returns the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestVulncheck(t *testing.T) {
	program := write(t, calling)
	broken := write(t, map[string]string{"go.mod": calling["go.mod"], "main.go": "package main\n\nfunc main() { nobody() }\n"})
	incomplete := advisories("Parse")
	incomplete["ID/GO-2026-0001.json"] = strings.Replace(incomplete["ID/GO-2026-0001.json"], "database_specific", "unknown", 1)
	for name, test := range map[string]struct {
		address, program string
		isFailure        bool
		want             string
	}{
		"the program calls a vulnerable function":           {"file://" + write(t, advisories("Parse")), program, true, "main.go:5:31: calling.main calls url.Parse"},
		"the program does not call the vulnerable function": {"file://" + write(t, advisories("JoinPath")), program, false, "vulncheck: no known vulnerabilities"},
		"the database cannot be reached":                    {"http://127.0.0.1:1", program, false, "vulncheck: skipped: http://127.0.0.1:1 cannot be reached"},
		"the scan breaks off":                               {"file://" + write(t, incomplete), program, true, "More info:"},
		"the program does not compile":                      {"file://" + write(t, advisories("Parse")), broken, true, "undefined: nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command("../../vulncheck.sh", test.program)
			command.Env = append(os.Environ(), "GOVULNDB="+test.address)
			output, err := command.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if (err != nil) != test.isFailure || !strings.Contains(string(output), test.want) {
				t.Errorf("error %v, want an error: %t; want %q in the output:\n%s", err, test.isFailure, test.want, output)
			}
		})
	}
}
