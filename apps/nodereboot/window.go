package main

import (
	"errors"
	"fmt"
	"iter"
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

// closesAt returns when the windows that are open now in that time zone will be closed; zero if none is open, or
// they will not be within a week.
func closesAt(windows []Window, zone *time.Location, now time.Time) time.Time {
	end, isLonger := now, true
	for isLonger {
		isLonger = false
		for opens, closes := range periods(windows, zone, now) {
			if !opens.After(end) && closes.After(end) {
				end, isLonger = closes, true
			}
		}
	}
	if end.Equal(now) || end.Sub(now) > 7*24*time.Hour {
		return time.Time{}
	}
	return end.UTC()
}

// untilOpen returns how long it takes until one of the windows is open in that time zone;
// zero if one is open or there are none.
func untilOpen(windows []Window, zone *time.Location, now time.Time) (first time.Duration) {
	for opens, closes := range periods(windows, zone, now) {
		switch {
		case !now.Before(closes):
		case !now.Before(opens):
			return 0
		default:
			first = pace.Sooner(first, opens.Sub(now))
		}
	}
	return first
}

// periods yields when each window opens and closes, from yesterday to a week from now, in no order.
func periods(windows []Window, zone *time.Location, now time.Time) iter.Seq2[time.Time, time.Time] {
	if zone == nil {
		zone = time.UTC
	}
	year, month, today := now.In(zone).Date()
	return func(yield func(opens, closes time.Time) bool) {
		for _, w := range windows {
			for day := today - 1; day <= today+7; day++ {
				opens := time.Date(year, month, day, 0, w.from, 0, 0, zone)
				closes := time.Date(year, month, day, 0, w.to, 0, 0, zone)
				if w.to <= w.from {
					closes = time.Date(year, month, day+1, 0, w.to, 0, 0, zone)
				}
				midday := time.Date(year, month, day, 12, 0, 0, 0, zone) // exists on every day, even when clocks are changed
				if w.days[midday.Weekday()] && !yield(opens, closes) {
					return
				}
			}
		}
	}
}
