package pace_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

var (
	now     = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)
	wish    = pace.Wish{Digest: "cherry", Scale: 3}
	scaled  = pace.Wish{Digest: "cherry", Scale: 5}
	other   = pace.Wish{Digest: "lemon", Scale: 3}
	refusal = forbidden("exceeded quota")
	errLost = errors.New("connection refused")
)

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New(why))
}

// write is one of a row of writes, that long after the one before.
type write struct {
	wish    pace.Wish
	failure error
	after   time.Duration
}

// row returns the last of these writes, and when it was.
func row(writes ...write) (last pace.Attempt, at time.Time) {
	at = now
	for _, w := range writes {
		at = at.Add(w.after)
		last = last.Then(w.wish, w.failure, at)
	}
	return last, at
}

func accepted(after time.Duration) write { return write{wish, nil, after} }
func refused(after time.Duration) write  { return write{wish, refusal, after} }
func failed(after time.Duration) write   { return write{wish, errLost, after} }

// The same wish waits longer each time, whether it is refused or reverted.
func TestWaitDoubles(t *testing.T) {
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300}
	for _, outcome := range []error{nil, refusal} {
		var last pace.Attempt
		var got []time.Duration
		at := now
		for range want {
			last = last.Then(wish, outcome, at)
			wait := last.Wait(wish, at)
			at = at.Add(wait)
			got = append(got, wait/time.Second)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %v, it waits %d seconds, want %d", outcome, got, want)
		}
	}
	last, _ := row(refused(0))
	if last.Count = 1 << 60; last.Wait(wish, now) != 5*time.Minute {
		t.Errorf("after very many writes, it waits %s", last.Wait(wish, now))
	}
}

// What continues a row of writes with the same outcome, and what is written at once.
func TestRows(t *testing.T) {
	for name, test := range map[string]struct {
		writes []write
		next   pace.Wish
		count  int
		wait   time.Duration
	}{
		"none":                                 {nil, wish, 0, 0},
		"none, and an empty wish":              {nil, pace.Wish{}, 0, 0},
		"an empty wish":                        {[]write{{pace.Wish{}, nil, 0}}, pace.Wish{}, 1, time.Second},
		"a refusal after two":                  {[]write{accepted(0), accepted(1), refused(1)}, wish, 1, time.Second},
		"a write after two refusals":           {[]write{refused(0), refused(1), accepted(1)}, wish, 1, time.Second},
		"after ten quiet minutes":              {[]write{accepted(0), accepted(1), accepted(10 * time.Minute)}, wish, 1, time.Second},
		"after almost ten":                     {[]write{accepted(0), accepted(1), accepted(10*time.Minute - 1)}, wish, 3, 4 * time.Second},
		"another wish":                         {[]write{accepted(0), accepted(1)}, other, 2, 0},
		"another wish was written":             {[]write{accepted(0), accepted(1), {other, nil, 1}}, other, 1, time.Second},
		"another wish was refused":             {[]write{refused(0), refused(1), {other, refusal, 1}}, other, 1, time.Second},
		"another scale after a refusal":        {[]write{refused(0), refused(1)}, scaled, 2, 0},
		"another scale was refused":            {[]write{refused(0), refused(1), {scaled, refusal, 1}}, scaled, 3, 4 * time.Second},
		"another scale was written":            {[]write{accepted(0), accepted(1), {scaled, nil, 1}}, scaled, 1, time.Second},
		"a failure of the server is not paced": {[]write{failed(0), failed(1)}, wish, 2, 0},
		"a failure among refusals":             {[]write{refused(0), refused(1), failed(1)}, wish, 2, 2*time.Second - 1},
		"a refusal after that":                 {[]write{refused(0), refused(1), failed(1), refused(1)}, wish, 3, 4 * time.Second},
		"a refusal after failures":             {[]write{failed(0), failed(1), refused(1)}, wish, 1, time.Second},
		"the clock was set back a year":        {[]write{refused(0), refused(-365 * 24 * time.Hour)}, wish, 2, 2 * time.Second},
	} {
		last, at := row(test.writes...)
		if wait := last.Wait(test.next, at); last.Count != test.count || wait != test.wait {
			t.Errorf("%s: %d in a row, waits %s; want %d, %s", name, last.Count, wait, test.count, test.wait)
		}
	}
	last, at := row(refused(0), refused(1))
	for elapsed, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, 2 * time.Second: 0, time.Hour: 0, -time.Hour: 2 * time.Second, // set back
	} {
		if wait := last.Wait(wish, at.Add(elapsed)); wait != want {
			t.Errorf("%s later, it waits %s, want %s", elapsed, wait, want)
		}
	}
}

// Users hear of a refusal at once, and of other failures after ten seconds.
func TestIsWorthTelling(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		writes []write
		want   bool
	}{
		"nothing":                       {nil, false},
		"a write":                       {[]write{accepted(0)}, false},
		"a refusal":                     {[]write{refused(0)}, true},
		"a failure":                     {[]write{failed(0)}, false},
		"failures for nine seconds":     {[]write{failed(0), failed(9 * s)}, false},
		"failures for ten seconds":      {[]write{failed(0), failed(9 * s), failed(s)}, true},
		"failures while it is scaled":   {[]write{failed(0), {scaled, errLost, 5 * s}, failed(5 * s)}, true},
		"failures after a write":        {[]write{accepted(0), failed(20 * s)}, false},
		"failures with a write between": {[]write{failed(0), accepted(9 * s), failed(s)}, false},
	} {
		if last, _ := row(test.writes...); last.IsWorthTelling() != test.want {
			t.Errorf("%s: %t", name, last.IsWorthTelling())
		}
	}
}

// A wish is contested from the fourth accepted write in a row, until a minute has passed in which nobody reverts it.
func TestIsContested(t *testing.T) {
	four := []write{accepted(0), accepted(1), accepted(1), accepted(1)}
	for name, test := range map[string]struct {
		writes     []write
		isReverted bool
		after      time.Duration
		want       bool
		quietAfter time.Duration
	}{
		"three writes":                  {four[:3], true, 0, false, 0},
		"four":                          {four, false, 0, true, time.Minute},
		"four, reverted":                {four, true, 20 * time.Second, true, 40 * time.Second},
		"four, a quiet minute":          {four, false, time.Minute, false, 0},
		"four, reverted after a minute": {four, true, time.Minute, true, 0},
		"four, and an edit":             {append(slices.Clone(four), write{other, nil, 1}), true, 0, false, 0},
		"four refusals":                 {[]write{refused(0), refused(1), refused(1), refused(1)}, true, 0, false, 0},
		"the clock was set back":        {four, false, -time.Hour, true, time.Minute},
	} {
		last, at := row(test.writes...)
		if is, quietAfter := last.IsContested(test.isReverted, at.Add(test.after)); is != test.want || quietAfter != test.quietAfter {
			t.Errorf("%s: %t, quiet after %s; want %t, %s", name, is, quietAfter, test.want, test.quietAfter)
		}
	}
}

// A refusal is remembered in a kilobyte, and means the same.
func TestHugeRefusals(t *testing.T) {
	last, _ := row(write{wish, fmt.Errorf("writing: %w", forbidden(strings.Repeat("melted ", 100_000))), 0})
	if !response.IsRefusal(last.Failure) || len(last.Failure.Error()) > 1024 || !strings.HasPrefix(last.Failure.Error(), "writing: ") {
		t.Errorf("%d bytes: %.100s", len(last.Failure.Error()), last.Failure)
	}
}

func pod(uid types.UID) metav1.Object {
	return &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid}
}

// What is noted is of one object, not of the next one of its name.
func TestAttemptsAreOfOneObject(t *testing.T) {
	var attempts pace.Attempts
	last, _ := row(refused(0))
	attempts.Note(pod("1"), last)
	attempts.NoteReport(pod("1"), nil, "", now)
	if got := attempts.Last(pod("1")); got.Count != 1 || attempts.ReportAfter(pod("1"), false, now) == 0 {
		t.Errorf("noted: %+v", got)
	}
	if got := attempts.Last(pod("2")); got.Count != 0 || attempts.ReportAfter(pod("2"), false, now) != 0 {
		t.Errorf("another object has %+v", got)
	}
	attempts.Note(pod("2"), pace.Attempt{})
	if attempts.Last(pod("1")).Count != 0 {
		t.Error("the former object is still known")
	}
	attempts.Note(pod("2"), last)
	if attempts.Forget(cache.NewObjectName("shop", "web")); attempts.Last(pod("2")).Count != 0 {
		t.Error("a forgotten object is known")
	}
}

// A report waits until two seconds after the last one, unless it is urgent. None is urgent after a refusal.
func TestReportAfter(t *testing.T) {
	for name, test := range map[string]struct {
		isNoted, isUrgent bool
		refusal           error
		news              string
		after, want       time.Duration
	}{
		"the first":                            {want: 0},
		"another at once":                      {isNoted: true, want: 2 * time.Second},
		"another, later":                       {isNoted: true, after: 1500 * time.Millisecond, want: 500 * time.Millisecond},
		"another after two seconds":            {isNoted: true, after: 2 * time.Second, want: 0},
		"an urgent one":                        {isNoted: true, isUrgent: true, want: 0},
		"the last one was refused":             {isNoted: true, isUrgent: true, refusal: refusal, news: "Synced", want: 2 * time.Second},
		"the last one, without news, was, too": {isNoted: true, isUrgent: true, refusal: refusal, want: 2 * time.Second},
		"the clock was set back":               {isNoted: true, after: -time.Hour, want: 2 * time.Second},
	} {
		var attempts pace.Attempts
		if test.isNoted {
			attempts.NoteReport(pod("1"), test.refusal, test.news, now)
		}
		if got := attempts.ReportAfter(pod("1"), test.isUrgent, now.Add(test.after)); got != test.want {
			t.Errorf("%s: after %s, want %s", name, got, test.want)
		}
	}
}

// Of reports that are refused, the same news is told once. They are tried again later and later.
func TestRefusedReports(t *testing.T) {
	var attempts pace.Attempts
	for i, report := range []struct {
		refusal error
		news    string
		isNew   bool
		again   time.Duration
	}{
		{nil, "Synced", true, 0},
		{nil, "Synced", true, 0},
		{refusal, "Crash", true, time.Second},
		{refusal, "Crash", false, 2 * time.Second},
		{refusal, "Stalled", true, 4 * time.Second},
		{nil, "Stalled", true, 0},
		{refusal, "Stalled", true, time.Second},
	} {
		if isNew, again := attempts.NoteReport(pod("1"), report.refusal, report.news, now); isNew != report.isNew || again != report.again {
			t.Errorf("report %d: told: %t, and tried again after %s", i, isNew, again)
		}
	}
}

// Several workers note attempts for different objects.
func TestConcurrentUse(t *testing.T) {
	var attempts pace.Attempts
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			of := &metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(i), UID: "1"}
			for range 100 {
				attempts.Note(of, attempts.Last(of).Then(wish, refusal, now))
				attempts.NoteReport(of, nil, "", now)
			}
			if got := attempts.Last(of).Count; got != 100 {
				t.Errorf("%d in a row", got)
			}
		})
	}
	wait.Wait()
}

// What failed is past when nothing is left to write; what was written, and how often, is not.
func TestSettle(t *testing.T) {
	var attempts pace.Attempts
	obj := &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}
	for name, test := range map[string]struct {
		last pace.Attempt
		want int
	}{
		"refused": {pace.Attempt{}.Then(wish, refusal, now), 0},
		"written": {pace.Attempt{}.Then(wish, nil, now), 1},
	} {
		attempts.Note(obj, test.last)
		attempts.Settle(obj)
		if got := attempts.Last(obj); got.Count != test.want || got.Failure != nil {
			t.Errorf("%s: %d in a row, %v", name, got.Count, got.Failure)
		}
	}
}
