package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// Failure says that a process ended which should have run on.
type Failure struct {
	Name  string
	State string // e.g. "exit status 1", "signal: killed"
	Log   string // path of the whole log
	Tail  string // its last lines
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s ended (%s); the end of its log, %s:\n%s", f.Name, f.State, f.Log, f.Tail)
}

// PortTaken reports whether the process ended because somebody else listens
// on an address that it was given.
func (f *Failure) PortTaken() bool {
	return strings.Contains(f.Tail, "address already in use")
}

const (
	tailLines = 20
	tailBytes = 8 << 10
)

// tail returns the last lines of a file after the given offset, indented, or
// why it cannot be read.
func tail(path string, after int64) string {
	content, err := readEnd(path, after)
	if err != nil {
		return "\t" + err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	lines = lines[max(0, len(lines)-tailLines):]
	return "\t" + string(bytes.Join(lines, []byte("\n\t")))
}

func readEnd(path string, after int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	from := max(after, info.Size()-tailBytes)
	return io.ReadAll(io.NewSectionReader(file, from, tailBytes))
}
