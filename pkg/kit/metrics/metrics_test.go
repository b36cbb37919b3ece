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

// all is every series of a controller, with its value in TestCounts.
func all(controller string) map[string]string {
	series := map[string]string{}
	for line, value := range map[string]string{
		`stale_cache_waits_total{controller="NAME"}`:                       "4",
		`status_writes_total{controller="NAME",result="conflict"}`:         "1",
		`status_writes_total{controller="NAME",result="error"}`:            "3",
		`status_writes_total{controller="NAME",result="success"}`:          "2",
		`sync_duration_seconds_count{controller="NAME",result="deferred"}`: "1",
		`sync_duration_seconds_count{controller="NAME",result="failed"}`:   "1",
		`sync_duration_seconds_count{controller="NAME",result="gave_up"}`:  "1",
		`sync_duration_seconds_count{controller="NAME",result="panicked"}`: "1",
		`sync_duration_seconds_count{controller="NAME",result="synced"}`:   "2",
		`sync_duration_seconds_sum{controller="NAME",result="deferred"}`:   "3",
		`sync_duration_seconds_sum{controller="NAME",result="failed"}`:     "60",
		`sync_duration_seconds_sum{controller="NAME",result="gave_up"}`:    "4",
		`sync_duration_seconds_sum{controller="NAME",result="panicked"}`:   "5",
		`sync_duration_seconds_sum{controller="NAME",result="synced"}`:     "2.25",
	} {
		series["controller_"+strings.ReplaceAll(line, "NAME", controller)] = value
	}
	return series
}

// Every series begins at zero: a rate cannot see the step from nothing to one.
func TestCounts(t *testing.T) {
	name := newName()
	c := metrics.For(name)
	want := all(name)
	for line := range want {
		want[line] = "0"
	}
	if diff := cmp.Diff(want, series(t, `controller="`+name+`"`)); diff != "" {
		t.Errorf("series at first (-want +got):\n%s", diff)
	}
	for range 4 {
		c.StaleCacheWait()
	}
	for _, err := range []error{
		nil, nil, errMelted, apierrors.NewInternalError(errMelted), errMelted,
		fmt.Errorf("writing: %w", apierrors.NewConflict(schema.GroupResource{Resource: "gadgets"}, "vanilla", errMelted)),
	} {
		c.StatusWrite(err)
	}
	c.Sync(metrics.Synced, 250*time.Millisecond)
	c.Sync(metrics.Synced, 2*time.Second)
	c.Sync(metrics.Failed, time.Minute)
	c.Sync(metrics.Deferred, 3*time.Second)
	c.Sync(metrics.GaveUp, 4*time.Second)
	c.Sync(metrics.Panicked, 5*time.Second)
	if diff := cmp.Diff(all(name), series(t, `controller="`+name+`"`)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// A gauge is counted at each scrape. A second one of that name replaces the first.
func TestCount(t *testing.T) {
	cones := map[string]float64{"vanilla": 2, "chocolate": 1}
	require := func(want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, series(t, "test_cones")); diff != "" {
			t.Errorf("series (-want +got):\n%s", diff)
		}
	}
	metrics.Count("test_cones", "Cones by flavor.", []string{"flavor", "size"}, func(add func(float64, ...string)) {
		for flavor, n := range cones {
			add(n, flavor, "big")
		}
	})
	require(map[string]string{`test_cones{flavor="chocolate",size="big"}`: "1", `test_cones{flavor="vanilla",size="big"}`: "2"})
	cones = map[string]float64{"vanilla": 5}
	require(map[string]string{`test_cones{flavor="vanilla",size="big"}`: "5"})
	metrics.Count("test_cones", "Cones by flavor.", []string{"flavor", "size"}, func(add func(float64, ...string)) { add(7, "mint", "small") })
	require(map[string]string{`test_cones{flavor="mint",size="small"}`: "7"})
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
