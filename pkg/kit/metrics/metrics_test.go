package metrics_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

var errMelted = errors.New("melted")

// names are new each time: the counts are the process's, and tests run repeatedly.
var names atomic.Int64

func newName() string { return fmt.Sprintf("test-%d", names.Add(1)) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape is what Prometheus gets to see.
func scrape(t *testing.T) string {
	t.Helper()
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// series are those whose line contains part, with their values.
func series(t *testing.T, part string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(scrape(t)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "} ")
		if ok && strings.Contains(line, part) && !strings.Contains(line, "_bucket{") && !strings.HasPrefix(line, "#") {
			found[name+"}"] = value
		}
	}
	return found
}

// zero is every series of a controller that has done nothing.
func zero(controller string) map[string]string {
	return map[string]string{
		`controller_stale_cache_waits_total{controller="` + controller + `"}`:                       "0",
		`controller_status_writes_total{controller="` + controller + `",result="conflict"}`:         "0",
		`controller_status_writes_total{controller="` + controller + `",result="error"}`:            "0",
		`controller_status_writes_total{controller="` + controller + `",result="success"}`:          "0",
		`controller_sync_duration_seconds_count{controller="` + controller + `",result="deferred"}`: "0",
		`controller_sync_duration_seconds_count{controller="` + controller + `",result="failed"}`:   "0",
		`controller_sync_duration_seconds_count{controller="` + controller + `",result="gave_up"}`:  "0",
		`controller_sync_duration_seconds_count{controller="` + controller + `",result="panicked"}`: "0",
		`controller_sync_duration_seconds_count{controller="` + controller + `",result="synced"}`:   "0",
		`controller_sync_duration_seconds_sum{controller="` + controller + `",result="deferred"}`:   "0",
		`controller_sync_duration_seconds_sum{controller="` + controller + `",result="failed"}`:     "0",
		`controller_sync_duration_seconds_sum{controller="` + controller + `",result="gave_up"}`:    "0",
		`controller_sync_duration_seconds_sum{controller="` + controller + `",result="panicked"}`:   "0",
		`controller_sync_duration_seconds_sum{controller="` + controller + `",result="synced"}`:     "0",
	}
}

// A rate cannot see the step from nothing to one.
func TestEverySeriesStartsAtZero(t *testing.T) {
	metrics.For("idle")
	if diff := cmp.Diff(zero("idle"), series(t, `controller="idle"`)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

func TestCounts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "gadgets"}, "vanilla", errMelted)
	sync := func(result metrics.Result, took time.Duration) func(metrics.Controller) {
		return func(c metrics.Controller) { c.Sync(result, took) }
	}
	wrote := func(err error) func(metrics.Controller) {
		return func(c metrics.Controller) { c.StatusWrite(err) }
	}
	tests := []struct {
		name string
		do   []func(metrics.Controller)
		want map[string]string // what differs from zero; NAME stands for the controller
	}{{
		name: "syncs are counted and timed by their result",
		do: []func(metrics.Controller){
			sync(metrics.Synced, 250*time.Millisecond), sync(metrics.Synced, 2*time.Second), sync(metrics.Failed, time.Minute),
		},
		want: map[string]string{
			`controller_sync_duration_seconds_count{controller="NAME",result="synced"}`: "2",
			`controller_sync_duration_seconds_sum{controller="NAME",result="synced"}`:   "2.25",
			`controller_sync_duration_seconds_count{controller="NAME",result="failed"}`: "1",
			`controller_sync_duration_seconds_sum{controller="NAME",result="failed"}`:   "60",
		},
	}, {
		name: "other results",
		do:   []func(metrics.Controller){sync(metrics.Panicked, time.Second), sync(metrics.GaveUp, time.Second), sync(metrics.Deferred, time.Second)},
		want: map[string]string{
			`controller_sync_duration_seconds_count{controller="NAME",result="panicked"}`: "1",
			`controller_sync_duration_seconds_sum{controller="NAME",result="panicked"}`:   "1",
			`controller_sync_duration_seconds_count{controller="NAME",result="gave_up"}`:  "1",
			`controller_sync_duration_seconds_sum{controller="NAME",result="gave_up"}`:    "1",
			`controller_sync_duration_seconds_count{controller="NAME",result="deferred"}`: "1",
			`controller_sync_duration_seconds_sum{controller="NAME",result="deferred"}`:   "1",
		},
	}, {
		name: "waits for a stale cache",
		do:   []func(metrics.Controller){metrics.Controller.StaleCacheWait, metrics.Controller.StaleCacheWait},
		want: map[string]string{`controller_stale_cache_waits_total{controller="NAME"}`: "2"},
	}, {
		name: "a status that was written",
		do:   []func(metrics.Controller){wrote(nil), wrote(nil)},
		want: map[string]string{`controller_status_writes_total{controller="NAME",result="success"}`: "2"},
	}, {
		name: "a status that somebody else wrote first",
		do:   []func(metrics.Controller){wrote(fmt.Errorf("writing: %w", conflict))},
		want: map[string]string{`controller_status_writes_total{controller="NAME",result="conflict"}`: "1"},
	}, {
		name: "a status that could not be written",
		do:   []func(metrics.Controller){wrote(errMelted), wrote(apierrors.NewInternalError(errMelted)), wrote(errMelted)},
		want: map[string]string{`controller_status_writes_total{controller="NAME",result="error"}`: "3"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := newName()
			c := metrics.For(name)
			for _, do := range tt.do {
				do(c)
			}
			want := zero(name)
			for series, value := range tt.want {
				want[strings.ReplaceAll(series, "NAME", name)] = value
			}
			if diff := cmp.Diff(want, series(t, `controller="`+name+`"`)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCountIsCalledAtEachScrape(t *testing.T) {
	cones := map[string]float64{"vanilla": 2, "chocolate": 1}
	metrics.Count("test_cones", "Cones by flavor.", []string{"flavor", "size"}, func(add func(float64, ...string)) {
		for flavor, n := range cones {
			add(n, flavor, "big")
		}
	})
	want := map[string]string{
		`test_cones{flavor="chocolate",size="big"}`: "1",
		`test_cones{flavor="vanilla",size="big"}`:   "2",
	}
	if diff := cmp.Diff(want, series(t, "test_cones")); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}

	cones = map[string]float64{"vanilla": 5}
	want = map[string]string{`test_cones{flavor="vanilla",size="big"}`: "5"}
	if diff := cmp.Diff(want, series(t, "test_cones")); diff != "" {
		t.Errorf("series after a change (-want +got):\n%s", diff)
	}
}

func TestSecondCountReplacesTheFirst(t *testing.T) {
	for i := range 3 {
		metrics.Count("test_spoons", "Spoons.", []string{"of"}, func(add func(float64, ...string)) { add(float64(i), "wood") })
	}
	want := map[string]string{`test_spoons{of="wood"}`: "2"}
	if diff := cmp.Diff(want, series(t, "test_spoons")); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// Everything that is served obeys Prometheus' conventions: ours, client-go's, and
// those of the Go runtime and the process.
func TestPromlintFindsNothing(t *testing.T) {
	metrics.For("linted")
	metrics.Build("v0.0.0", "none")
	metrics.Count("gadget_objects", "Gadgets by status and reason of their Ready condition.", []string{"ready", "reason"},
		func(add func(float64, ...string)) { add(1, "True", "Available") })
	text := scrape(t)
	for _, name := range []string{
		"controller_sync_duration_seconds", "controller_stale_cache_waits_total",
		"controller_status_writes_total", "controller_build_info", "gadget_objects", "go_goroutines", "process_start_time_seconds",
	} {
		if !strings.Contains(text, "# TYPE "+name+" ") {
			t.Errorf("%s is not there", name)
		}
	}
	problems, err := testutil.NewPromLinter(bytes.NewBufferString(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem.String())
	}
}

func TestTotal(t *testing.T) {
	plain, labeled := strings.ReplaceAll(newName(), "-", "_")+"_total", strings.ReplaceAll(newName(), "-", "_")+"_total"
	metrics.NewTotal(plain, "Scoops.", "")
	metrics.NewTotal(labeled, "Scoops, by flavor.", "flavor", "vanilla", "mint")
	require := func(want ...string) {
		t.Helper()
		found := scrape(t)
		for _, line := range want {
			if !strings.Contains(found, "\n"+line+"\n") {
				t.Errorf("there is no %q in\n%s", line, found)
			}
		}
	}
	require(plain+" 0", labeled+`{flavor="vanilla"} 0`, labeled+`{flavor="mint"} 0`)
	metrics.NewTotal(plain, "Scoops.", "").Inc()
	metrics.NewTotal(labeled, "Scoops, by flavor.", "flavor", "vanilla", "mint").Inc("mint")
	require(plain+" 1", labeled+`{flavor="vanilla"} 0`, labeled+`{flavor="mint"} 1`)
}
