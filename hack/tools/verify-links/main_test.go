package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const other = "# Other page\n\n## Same\n## Same\n\n<a id=\"old-name\"></a>\n"
	for _, tc := range []struct {
		name, text string
		want       string // the end of the only complaint; if empty, there must be none
	}{
		{name: "a file", text: "[a](other.md)"},
		{name: "a directory", text: "[a](dir/)"},
		{name: "a title after the file", text: `[a](other.md "the other page")`},
		{name: "an image in a link", text: "[![a](other.md)](missing.md)", want: "missing.md: no such file"},
		{name: "a missing file", text: "\n\n[a](missing.md)", want: "README.md:3: missing.md: no such file"},
		{name: "a heading", text: "[a](other.md#other-page)"},
		{name: "a heading's second occurrence", text: "[a](other.md#same-1)"},
		{name: "a third occurrence", text: "[a](other.md#same-2)", want: "no such heading"},
		{name: "an HTML anchor", text: "[a](other.md#old-name)"},
		{name: "a heading of this file", text: "# `go test`, and [more](other.md)!\n[a](#go-test-and-more)"},
		{name: "a missing heading of this file", text: "[a](#nowhere)", want: "#nowhere: no such heading"},
		{name: "a reference", text: "[a][b]\n\n[b]: missing.md", want: "missing.md: no such file"},
		{name: "HTML", text: `<img src="missing.svg">`, want: "missing.svg: no such file"},
		{name: "a picture for dark pages", text: `<source srcset="missing.svg">`, want: "missing.svg: no such file"},
		{name: "another host", text: "[a](https://example.com/missing.md)"},
		{name: "mail", text: "[a](mailto:somebody@example.com)"},
		{name: "code", text: "`[a](missing.md)`"},
		{name: "a code block", text: "```\n[a](missing.md)\n# not a heading\n```\n"},
		{name: "a heading in a code block", text: "```\n# nowhere\n```\n[a](#nowhere)", want: "no such heading"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "other.md", other)
			write(t, filepath.Join("dir", "file"), "")
			write(t, "README.md", tc.text)
			complaints, err := check("README.md")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(complaints, "\n")
			if tc.want == "" && got != "" || !strings.HasSuffix(got, tc.want) || len(complaints) > 1 {
				t.Errorf("complaints %q, want one that ends in %q", got, tc.want)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
