package main

import (
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none
)

func parsed(t *testing.T, texts []string) (windows []Window) {
	t.Helper()
	for _, text := range texts {
		w, err := ParseWindow(text)
		if err != nil {
			t.Fatal(err)
		}
		windows = append(windows, w)
	}
	return windows
}

func TestWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		t.Helper()
		at, err := time.ParseInLocation("2006-01-02 15:04", text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, tt := range []struct {
		name    string
		windows []string
		now     string // in Berlin; 2026-07-01 is a Wednesday
		want    time.Duration
	}{
		{"no window is always", nil, "2026-07-01 12:00", 0},
		{"before it opens", []string{"Mon-Fri 22:00-04:00"}, "2026-07-01 12:00", 10 * time.Hour},
		{"when it opens", []string{"Mon-Fri 22:00-04:00"}, "2026-07-01 22:00", 0},
		{"after midnight", []string{"Mon-Fri 22:00-04:00"}, "2026-07-02 03:59", 0},
		{"when it closes", []string{"Mon-Fri 22:00-04:00"}, "2026-07-02 04:00", 18 * time.Hour},
		{"Friday's goes on on Saturday", []string{"Mon-Fri 22:00-04:00"}, "2026-07-04 03:00", 0},
		{"but Saturday has none", []string{"Mon-Fri 22:00-04:00"}, "2026-07-04 22:00", 48 * time.Hour},
		{"whole days", []string{"sat,SUN"}, "2026-07-05 23:59", 0},
		{"until whole days", []string{"Sat,Sun"}, "2026-07-03 23:00", time.Hour},
		{"days over the end of the week", []string{"Fri-Mon"}, "2026-07-06 12:00", 0},
		{"every day", []string{"01:00-05:30"}, "2026-07-01 05:29", 0},
		{"until midnight", []string{"Wed 22:00-24:00"}, "2026-07-01 23:59", 0},
		{"a week later", []string{"Wed 10:00-11:00"}, "2026-07-01 11:00", 7*24*time.Hour - time.Hour},
		{"the first of several", []string{"Sat", "Thu 08:00-09:00"}, "2026-07-01 12:00", 20 * time.Hour},
		{"either of several", []string{"Sat", "Wed 08:00-19:00"}, "2026-07-01 12:00", 0},
		// On 2026-03-29 Berlin's clocks go from 02:00 to 03:00, on 2026-10-25 from 03:00 to 02:00.
		{"a short night", []string{"Sun 04:00-05:00"}, "2026-03-29 00:00", 3 * time.Hour},
		{"a long night", []string{"Sun 04:00-05:00"}, "2026-10-25 00:00", 5 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := untilOpen(parsed(t, tt.windows), berlin, at(tt.now).UTC()); got != tt.want {
				t.Errorf("open in %s, want %s", got, tt.want)
			}
		})
	}
}

// A grant knows when no window is open any more, however many follow each other.
func TestWindowsClose(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		windows []string
		now     string // in Berlin
		want    string // empty for never
	}{
		{"no window", nil, "2026-07-01 03:53:21", ""},
		{"over midnight", []string{"Wed 22:00-04:00"}, "2026-07-01 22:00:00", "2026-07-02 04:00:00"},
		{"the last second", []string{"Wed 03:00-04:00"}, "2026-07-01 03:59:59", "2026-07-01 04:00:00"},
		{"the next window follows", []string{"Wed 04:00-05:00", "Wed 03:00-04:00"}, "2026-07-01 03:53:21", "2026-07-01 05:00:00"},
		{"the next window follows too late", []string{"Wed 03:00-04:00", "Wed 04:01-05:00"}, "2026-07-01 03:53:21", "2026-07-01 04:00:00"},
		{"days", []string{"Sat-Mon"}, "2026-07-04 12:00:00", "2026-07-07 00:00:00"},
		{"most of the week", []string{"Mon-Sat", "Sun 00:00-23:59"}, "2026-07-06 00:00:00", "2026-07-12 23:59:00"},
		{"always", []string{"00:00-24:00"}, "2026-07-01 12:00:00", ""},
		{"a short night", []string{"Sun 01:00-04:00"}, "2026-03-29 01:30:00", "2026-03-29 04:00:00"},
		{"none is open", []string{"Wed 03:00-04:00"}, "2026-07-01 04:00:00", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, err := time.ParseInLocation(time.DateTime, tt.now, berlin)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if closes := closesAt(parsed(t, tt.windows), berlin, now.UTC()); !closes.IsZero() {
				got = closes.In(berlin).Format(time.DateTime)
			}
			if got != tt.want {
				t.Errorf("closes at %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWindowsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "Mon 1 2", "Mo", "Mon-", "22:00", "22:00-", "22-04", "25:00-26:00", "04:00-04:00", "24:00-04:00", "Mon Tue", "22:00-04:00 Mon", "Mon 22:00-04:00-05:00"} {
		if w, err := ParseWindow(text); err == nil {
			t.Errorf("%q is taken for %+v", text, w)
		}
	}
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
