package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReport runs the real go test on a package of one file in each case.
func TestReport(t *testing.T) {
	const head = "package a\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n\t\"time\"\n)\n\nvar _, _, _ = fmt.Sprint, os.Exit, time.Now\n\n"
	for _, tc := range []struct {
		name, source string
		args         []string
		code         int
		want         string // every duration is replaced by 1s
	}{{
		name:   "a test passes, and its output is not shown",
		source: `func TestA(t *testing.T) { t.Log("log"); fmt.Println("printed") }`,
		want:   "ok  \ttested/a\t1s\n",
	}, {
		name:   "a test passes, and its output is shown with -v",
		source: `func TestA(t *testing.T) { t.Log("log"); fmt.Println("printed") }`,
		args:   []string{"-v"},
		want:   "=== RUN   TestA\n    a_test.go:12: log\nprinted\n--- PASS: TestA (1s)\nPASS\nok  \ttested/a\t1s\n",
	}, {
		name: "the slowest tests are listed, the slowest first",
		source: `func TestA(t *testing.T) { time.Sleep(150 * time.Millisecond) }
func TestB(t *testing.T) { time.Sleep(300 * time.Millisecond) }
func TestC(t *testing.T) {}`,
		want: "ok  \ttested/a\t1s\nThe slowest tests:\n    1s  tested/a TestB\n    1s  tested/a TestA\n",
	}, {
		name: "a test fails",
		source: `func TestA(t *testing.T) { t.Log("fine") }
func TestB(t *testing.T) {
	t.Run("bad", func(t *testing.T) { t.Error("wrong\nand worse") })
	t.Run("good", func(t *testing.T) { t.Log("fine\ntoo") })
	t.Log("where it was")
}`,
		code: 1,
		want: "--- FAIL: TestB (1s)\n    a_test.go:16: where it was\n    --- FAIL: TestB/bad (1s)\n        a_test.go:14: wrong\n            and worse\nFAIL\nFAIL\ttested/a\t1s\n",
	}, {
		name: "a test fails after another one has printed something",
		source: `func TestA(t *testing.T) { t.Log("fine\ntoo"); fmt.Println("      printed"); t.Log("fine") }
func TestB(t *testing.T) { t.Error("wrong") }`,
		code: 1,
		want: "--- FAIL: TestB (1s)\n    a_test.go:13: wrong\n      printed\nFAIL\nFAIL\ttested/a\t1s\n",
	}, {
		name: "only TestMain fails",
		source: `func TestMain(m *testing.M) { m.Run(); fmt.Fprintln(os.Stderr, "too many privileges"); os.Exit(3) }
func TestA(t *testing.T) {}`,
		code: 1,
		want: "PASS\ntoo many privileges\nFAIL\ttested/a\t1s\n",
	}, {
		name:   "the process exits during a test",
		source: `func TestA(t *testing.T) { fmt.Println("goodbye"); os.Exit(3) }`,
		code:   1,
		want:   "--- TestA did not end:\ngoodbye\nFAIL\ttested/a\t1s\n",
	}, {
		name:   "the package does not compile",
		source: `func TestA(t *testing.T) { wrong }`,
		code:   1,
		want:   "# tested/a [tested/a.test]\na/a_test.go:12:28: undefined: wrong\nFAIL\ttested/a [build failed]\n",
	}, {
		name:   "tests have the caller's GOGC",
		source: `func TestA(t *testing.T) { fmt.Printf("GOGC=%q\n", os.Getenv("GOGC")) }`,
		args:   []string{"-v"},
		want:   "=== RUN   TestA\nGOGC=" + strconv.Quote(os.Getenv("GOGC")) + "\n--- PASS: TestA (1s)\nPASS\nok  \ttested/a\t1s\n",
	}, {
		name:   "the race detector needs cgo",
		source: `func TestA(t *testing.T) { fmt.Println("CGO_ENABLED=" + os.Getenv("CGO_ENABLED")) }`,
		args:   []string{"-v", "-race"},
		want:   "=== RUN   TestA\nCGO_ENABLED=1\n--- PASS: TestA (1s)\nPASS\nok  \ttested/a\t1s\n",
	}, {
		name:   "no test is selected",
		source: `func TestA(t *testing.T) {}`,
		args:   []string{"-run", "TestB"},
		want:   "ok  \ttested/a\t1s [no tests to run]\n",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module tested\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "a", "a_test.go"), head+tc.source+"\n")
			var out strings.Builder
			code, err := run(t.Context(), &out, append(append([]string{"-C", dir, "-count=1"}, tc.args...), "./..."))
			if err != nil {
				t.Error(err)
			}
			got := regexp.MustCompile(`\b\d+\.\d+s`).ReplaceAllString(out.String(), "1s")
			if code != tc.code || got != tc.want {
				t.Errorf("exit code %d, want %d; got output\n%s\nwant\n%s", code, tc.code, got, tc.want)
			}
		})
	}
}

// TestResultsAreRemembered checks that go test runs a test again only if something has
// changed.
func TestResultsAreRemembered(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module tested\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "a", "a_test.go"), "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Log("+strconv.Quote(dir)+") }\n") // a program that no earlier test compiled
	for _, want := range []string{"s\n", "(cached)\n"} {
		var out strings.Builder
		if code, err := run(t.Context(), &out, []string{"-C", dir, "./..."}); code != 0 || err != nil || !strings.HasSuffix(out.String(), want) {
			t.Errorf("exit code %d, error %v, and output %q, want the end %q", code, err, out.String(), want)
		}
	}
}

// TestPanicIsShown checks that the report contains the stacks of all goroutines if a test
// panics or times out.
func TestPanicIsShown(t *testing.T) {
	for name, tc := range map[string]struct{ source, timeout, want string }{
		"a panic":   {`func TestA(t *testing.T) { panic("oops") }`, "1m", "panic: oops"},
		"a timeout": {`func TestA(t *testing.T) { t.Log("on the way"); select {} }`, "1s", "panic: test timed out after 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module tested\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "a", "a_test.go"), "package a\n\nimport \"testing\"\n\n"+tc.source+"\n")
			var out strings.Builder
			code, err := run(t.Context(), &out, []string{"-C", dir, "-timeout", tc.timeout, "./..."})
			if got := out.String(); err != nil || code != 1 || !strings.Contains(got, tc.want) || !strings.Contains(got, "goroutine ") || !strings.Contains(got, "FAIL\ttested/a") {
				t.Errorf("exit code %d, error %v, and output\n%s", code, err, got)
			}
		})
	}
}

// TestDataRaceInPassedTest checks that a data race is shown even if go test attributes it to
// a test that passed: it attributes it to the test that printed last.
func TestDataRaceInPassedTest(t *testing.T) {
	const output = `{"Action":"output","Package":"a","Test":"TestA","Output":`
	events := strings.Join([]string{
		`{"Action":"run","Package":"a","Test":"TestA"}`,
		output + `"==================\n"}`, output + `"WARNING: DATA RACE\n"}`, output + `"Write at 0x1 by goroutine 8:\n"}`,
		output + `"  a.f()\n"}`, output + `"      /src/a.go:12 +0x44\n"}`, output + `"    a_test.go:1: logged\n"}`, output + `"        further\n"}`,
		output + `"--- PASS: TestA (0.00s)\n"}`, `{"Action":"pass","Package":"a","Test":"TestA"}`,
		`{"Action":"output","Package":"a","Output":"FAIL\ta\t0.1s\n"}`, `{"Action":"fail","Package":"a"}`, "go says more\n",
	}, "\n")
	var out strings.Builder
	if err := newReport(&out, false).read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	want := "==================\nWARNING: DATA RACE\nWrite at 0x1 by goroutine 8:\n  a.f()\n      /src/a.go:12 +0x44\nFAIL\ta\t0.1s\ngo says more\n"
	if out.String() != want {
		t.Errorf("output\n%s\nwant\n%s", out.String(), want)
	}
}

func TestIsVerbose(t *testing.T) {
	for args, want := range map[string]bool{
		"-race ./...": false, "-v": true, "--v ./...": true, "-test.v": true, "-v=true": true, "-v=false": false,
		"-run v": false, "-vet=off": false, "-bench=.": true,
	} {
		if got := isVerbose(strings.Fields(args)); got != want {
			t.Errorf("isVerbose(%q) = %t, want %t", args, got, want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
