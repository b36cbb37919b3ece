package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const recording = "\x1b[1m== A cone\x1b[0m\nIt has scoops.\n\n" +
	"\x1b[1m$ make cone\x1b[0m\ncone <made> & filled\n\n" +
	"$ get cones\nNAME    SCOOPS\nsundae  1\n\nEvents, too:\n\n" +
	"== Another\n\n$ eat cone\r\ngone\r\n"

func TestChoose(t *testing.T) {
	steps, err := read(strings.NewReader(recording))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		wanted []string
		want   []line
	}{
		{"one", []string{"get"}, []line{{heading, "A cone"}, {prompt, "get cones"}, {header, "NAME    SCOOPS"}, {plain, "sundae  1"}}},
		{"two parts", []string{"make", "eat"}, []line{{heading, "A cone"}, {prompt, "make cone"}, {plain, "cone <made> & filled"}, {}, {heading, "Another"}, {prompt, "eat cone"}, {plain, "gone"}}},
		{"one that did not run", []string{"make", "melt"}, nil},
		{"another order", []string{"eat", "make"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := choose(steps, tt.wanted)
			if (err != nil) != (tt.want == nil) || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestDraw(t *testing.T) {
	long := strings.Repeat("é", columns+1)
	got := draw([]line{{prompt, "make <cone>"}, {}, {plain, long}}, dark)
	decoder := xml.NewDecoder(bytes.NewReader(got))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, got)
		}
	}
	for _, want := range []string{"make &lt;cone&gt;", long[:2*(columns-1)] + "…<", dark.background} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// A recording without the commands leaves the pictures as they are.
func TestRunWithoutTheDemo(t *testing.T) {
	dir := t.TempDir()
	if err := run(strings.NewReader(recording), []string{dir}); err == nil {
		t.Error("no error")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("it wrote %q", files)
	}
}

// The pictures of this repository are well-formed, and of the same run.
func TestPictures(t *testing.T) {
	var texts []string
	for _, theme := range []theme{light, dark} {
		content, err := os.ReadFile("../../../docs/demo-" + theme.name + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		var svg struct {
			Text []struct {
				Inner string `xml:",innerxml"`
			} `xml:"text"`
		}
		if err := xml.Unmarshal(content, &svg); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, line := range svg.Text {
			text.WriteString(line.Inner + "\n")
		}
		texts = append(texts, text.String())
	}
	if texts[0] == "" || texts[0] != texts[1] {
		t.Errorf("the pictures differ:\n%s\n%s", texts[0], texts[1])
	}
}
