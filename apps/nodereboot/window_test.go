package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none

	"github.com/cockroachdb/datadriven"
)

// testdata/windows.txt says which windows there are, and when they open and close.
func TestWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	datadriven.RunTest(t, "testdata/windows.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		if d.Cmd == "parse" {
			_, err := ParseWindow(d.Input)
			return fmt.Sprint(err)
		}
		var windows []Window
		for line := range strings.Lines(d.Input) {
			w, err := ParseWindow(strings.TrimSpace(line))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			windows = append(windows, w)
		}
		now, err := time.ParseInLocation("2006-01-02T15:04:05", d.CmdArgs[0].Key, berlin)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		if d.Cmd == "opens" {
			return untilOpen(windows, berlin, now.UTC()).String()
		}
		if closes := closesAt(windows, berlin, now.UTC()); !closes.IsZero() {
			return closes.In(berlin).Format(time.DateTime)
		}
		return ""
	})
}

// What people write never panics, and what is accepted is open at some time of the week.
func FuzzParseWindow(f *testing.F) {
	for _, text := range []string{"Mon-Fri 22:00-04:00", "Sat,Sun", "01:00-05:30", "Wed 22:00-24:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWindow(text)
		if err != nil {
			return
		}
		if wait := untilOpen([]Window{w}, time.UTC, noon); untilOpen([]Window{w}, time.UTC, noon.Add(wait)) != 0 {
			t.Errorf("%q is not open after %s", text, wait)
		}
	})
}
