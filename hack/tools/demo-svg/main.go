// Command demo-svg draws what "make demo" printed as a picture of a terminal, once for
// light and once for dark pages. It reads the recording from standard input:
//
//	make demo ONCE=1 | demo-svg DIRECTORY
//
// The whole tour is too long for a picture, so it shows some of the commands, each with
// all of its output, in the order in which they ran. It changes nothing in them except
// that it cuts lines that are too long. If one of the commands is missing, it draws
// nothing and fails.
package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// shown are the beginnings of the commands that the pictures show, in their order.
var shown = []string{
	"kubectl apply -f artifacts/examples/example-icecream.yaml",
	"kubectl get icecreams",
	"kubectl get icecreams -o wide",
	"kubectl get pods",
	"kubectl scale",
	"kubectl get pods",
	"kubectl delete",
	"kubectl events",
}

func main() {
	if err := run(os.Stdin, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo-svg:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the directory to write to, but got %d", len(args))
	}
	steps, err := read(in)
	if err != nil {
		return err
	}
	lines, err := choose(steps, shown)
	if err != nil {
		return err
	}
	for _, t := range []theme{light, dark} {
		if err := os.WriteFile(filepath.Join(args[0], "demo-"+t.name+".svg"), draw(lines, t), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// step is a command of the demo and what it printed.
type step struct {
	title   string // of the part of the demo
	command string
	output  []string
}

// escapes matches the control sequences by which a terminal changes the font.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// read returns the commands in a recording. A title is a line after "== ", a command one
// after "$ ", and its output ends with an empty line.
func read(in io.Reader) ([]step, error) {
	var steps []step
	title, inOutput := "", false
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		line := strings.TrimRight(escapes.ReplaceAllString(scanner.Text(), ""), " \r")
		if name, ok := strings.CutPrefix(line, "== "); ok {
			title, inOutput = name, false
		} else if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps, inOutput = append(steps, step{title: title, command: command}), true
		} else if line == "" {
			inOutput = false
		} else if inOutput {
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps, scanner.Err()
}

// style says how a line looks.
type style string

const (
	heading style = "heading"
	prompt  style = "prompt"
	header  style = "header" // of a table
	plain   style = "plain"
)

type line struct {
	style
	text string
}

// tableHeader matches the first line of a table by kubectl.
var tableHeader = regexp.MustCompile(`^[A-Z][A-Z -]*  +[A-Z -]+$`)

// choose returns the lines of the commands that begin as wanted, in that order.
func choose(steps []step, wanted []string) ([]line, error) {
	var lines []line
	title := ""
	for _, s := range steps {
		if len(wanted) == 0 {
			break
		}
		if !strings.HasPrefix(s.command, wanted[0]) {
			continue
		}
		wanted = wanted[1:]
		if len(lines) > 0 {
			lines = append(lines, line{})
		}
		if s.title != title {
			title = s.title
			lines = append(lines, line{heading, title})
		}
		lines = append(lines, line{prompt, s.command})
		for _, text := range s.output {
			look := plain
			if tableHeader.MatchString(text) {
				look = header
			}
			lines = append(lines, line{look, text})
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("the recording does not have the command %q where it is expected", wanted[0])
	}
	return lines, nil
}

// theme is a set of colors, those of GitHub's pages.
type theme struct {
	name, background, border, text, heading, prompt, header string
}

var (
	light = theme{"light", "#ffffff", "#d1d9e0", "#1f2328", "#0969da", "#1a7f37", "#59636e"}
	dark  = theme{"dark", "#0d1117", "#3d444d", "#e6edf3", "#4493f8", "#3fb950", "#9198a1"}
)

const (
	columns    = 128
	charWidth  = 7.25 // of the font below, in any of its fallbacks about 0.6 of its size
	lineHeight = 17
	margin     = 16
)

// draw returns an SVG of the lines.
func draw(lines []line, t theme) []byte {
	var b bytes.Buffer
	width, height := int(columns*charWidth)+2*margin, len(lines)*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="Output of make demo">
<!-- Drawn by hack/demo-svg.sh from a run of "make demo ONCE=1". -->
<style>
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: %s }
.heading { font-weight: bold; fill: %s }
.prompt { font-weight: bold }
.dollar { fill: %s }
.header { fill: %s }
</style>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="6" fill="%s" stroke="%s"/>
`, width, height, width, height, t.text, t.heading, t.prompt, t.header, width-1, height-1, t.background, t.border)
	for i, l := range lines {
		text := clip(l.text)
		if text == "" {
			continue
		}
		if l.style == prompt {
			text = `<tspan class="dollar">$</tspan> ` + text
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="%s" xml:space="preserve">%s</text>`+"\n", margin, margin+(i+1)*lineHeight-5, l.style, text)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// clip returns text as it is written in XML, cut to the width of the picture.
func clip(text string) string {
	if runes := []rune(text); len(runes) > columns {
		text = string(runes[:columns-1]) + "…"
	}
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a Buffer accepts everything
	return b.String()
}
