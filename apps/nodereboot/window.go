package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// Window is a period of the week in which reboots may be granted.
type Window struct {
	days [7]bool // the days on which the window opens, by time.Weekday
	// from and to are minutes since midnight, in local time. If to is not later than from,
	// it is on the next day.
	from, to int
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

const minutesPerDay = 24 * 60

// ParseWindow parses days of the week and times of day, either of which can be left out:
// "Mon-Fri 22:00-04:00", "Sat,Sun", "01:00-05:30".
func ParseWindow(text string) (Window, error) {
	w, err := parseWindow(strings.Fields(text))
	if err != nil {
		return w, fmt.Errorf("%q is not a window such as Mon-Fri 22:00-04:00: %w", text, err)
	}
	return w, nil
}

func parseWindow(words []string) (w Window, err error) {
	days, times := "sun-sat", "00:00-24:00"
	switch {
	case len(words) == 2:
		days, times = words[0], words[1]
	case len(words) == 1 && strings.Contains(words[0], ":"):
		times = words[0]
	case len(words) == 1:
		days = words[0]
	default:
		return w, errors.New("it needs days, times, or both")
	}
	if w.days, err = parseDays(days); err != nil {
		return w, err
	}
	w.from, w.to, err = parseTimes(times)
	return w, err
}

func parseDays(text string) (days [7]bool, err error) {
	parse := func(word string) (int, error) {
		day := slices.Index(weekdays, strings.ToLower(word))
		if day < 0 {
			return 0, fmt.Errorf("%q is not a day, which is one of %s", word, strings.Join(weekdays, ", "))
		}
		return day, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := parse(first)
		if err != nil {
			return days, err
		}
		to := from
		if isRange {
			if to, err = parse(last); err != nil {
				return days, err
			}
		}
		for day := from; ; day = (day + 1) % 7 {
			days[day] = true
			if day == to {
				break
			}
		}
	}
	return days, nil
}

func parseTimes(text string) (from, to int, err error) {
	parse := func(text string) (int, error) {
		if text == "24:00" {
			return minutesPerDay, nil
		}
		at, err := time.Parse("15:04", text)
		return at.Hour()*60 + at.Minute(), err
	}
	first, last, _ := strings.Cut(text, "-")
	if from, err = parse(first); err != nil {
		return 0, 0, err
	}
	if to, err = parse(last); err != nil {
		return 0, 0, err
	}
	if from == to || from == minutesPerDay {
		return 0, 0, errors.New("the window is never open")
	}
	return from, to, nil
}

// openUntil returns when the windows that are open now will be closed, but no later than
// after limit, which is short. A window opens and closes at whole minutes.
func openUntil(windows []Window, zone *time.Location, now time.Time, limit time.Duration) time.Time {
	end := now.Add(limit)
	for at := now; at.Before(end); at = at.Truncate(time.Minute).Add(time.Minute) {
		if untilOpen(windows, zone, at) > 0 {
			return at
		}
	}
	return end
}

// untilOpen returns how long it takes until one of the windows is open in that time zone;
// zero if one is open or there are none.
func untilOpen(windows []Window, zone *time.Location, now time.Time) time.Duration {
	if len(windows) == 0 {
		return 0
	}
	if zone == nil {
		zone = time.UTC
	}
	year, month, day := now.In(zone).Date()
	var first time.Duration
	for _, w := range windows {
		for offset := -1; offset <= 7; offset++ {
			opens := time.Date(year, month, day+offset, 0, w.from, 0, 0, zone)
			closes := time.Date(year, month, day+offset, 0, w.to, 0, 0, zone)
			if w.to <= w.from {
				closes = time.Date(year, month, day+offset+1, 0, w.to, 0, 0, zone)
			}
			midday := time.Date(year, month, day+offset, 12, 0, 0, 0, zone) // exists on every day, even when clocks are changed
			if !w.days[midday.Weekday()] || !now.Before(closes) {
				continue
			}
			if !now.Before(opens) {
				return 0
			}
			first = pace.Sooner(first, opens.Sub(now))
		}
	}
	return first
}
