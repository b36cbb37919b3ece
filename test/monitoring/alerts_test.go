// Package monitoring tests artifacts/monitoring: that alerts fire when they should
// and only then, and that every query of an alert or of the dashboard is about
// something that a real controller serves to a real Prometheus.
package monitoring

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const artifacts = "../../artifacts/monitoring/"

// promQL is the language without what Prometheus calls experimental.
var promQL = parser.NewParser(parser.Options{})

// scrapeInterval is that of the series in these tests, and of the evaluation.
const scrapeInterval = 30 * time.Second

// The two replicas of the controller in these tests. The first one leads.
const (
	a = `job="k8s-controller-metrics", namespace="k8s-controller-system", pod="a", instance="192.0.2.1:8443"`
	b = `job="k8s-controller-metrics", namespace="k8s-controller-system", pod="b", instance="192.0.2.2:8443"`
)

// healthy is what a controller says for two hours when all is well: values as
// promqltest writes them, by series. The replica that does not lead has a queue that
// it does not work on.
var healthy = map[string]string{
	`up{` + a + `}`: "1x240",
	`up{` + b + `}`: "1x240",
	`leader_election_master_status{` + a + `}`:                                                                 "1x240",
	`leader_election_master_status{` + b + `}`:                                                                 "0x240",
	`workqueue_depth{name="icecream", ` + a + `}`:                                                              "0 7 30 0x237",
	`workqueue_depth{name="icecream", ` + b + `}`:                                                              "100+5x240",
	`workqueue_longest_running_processor_seconds{name="icecream", ` + a + `}`:                                  "0 0.02x239",
	`workqueue_longest_running_processor_seconds{name="icecream", ` + b + `}`:                                  "0x240",
	`controller_sync_duration_seconds_count{controller="icecream", result="synced", ` + a + `}`:                "0+30x240",
	`controller_sync_duration_seconds_count{controller="icecream", result="synced", ` + b + `}`:                "0x240",
	`controller_sync_duration_seconds_count{controller="icecream", result="deferred", ` + a + `}`:              "0+10x240",
	`controller_sync_duration_seconds_count{controller="icecream", result="failed", ` + a + `}`:                "0x240",
	`controller_sync_duration_seconds_count{controller="icecream", result="gave_up", ` + a + `}`:               "0x240",
	`controller_sync_duration_seconds_count{controller="icecream", result="panicked", ` + a + `}`:              "0x240",
	`controller_sync_panics_total{controller="icecream", ` + a + `}`:                                           "0x240",
	`controller_sync_panics_total{controller="icecream", ` + b + `}`:                                           "0x240",
	`controller_stale_cache_waits_total{controller="icecream", ` + a + `}`:                                     "0+10x240",
	`controller_cache_last_heard_timestamp_seconds{controller="icecream", resource="pods", ` + a + `}`:         "0+30x240",
	`controller_cache_last_heard_timestamp_seconds{controller="icecream", resource="pods", ` + b + `}`:         "0+30x240",
	`icecream_objects{ready="True", reason="Available", ` + a + `}`:                                            "95x240",
	`icecream_objects{ready="True", reason="Available", ` + b + `}`:                                            "95x240",
	`icecream_objects{ready="False", reason="ImagePullBackOff", ` + a + `}`:                                    "5x240",
	`icecream_objects{ready="False", reason="ImagePullBackOff", ` + b + `}`:                                    "5x240",
	`secretsync_troubles{reason="CopyFailed", ` + a + `}`:                                                      "0x240",
	`secretsync_troubles{reason="CopyFailed", ` + b + `}`:                                                      "0x240",
	`secretsync_troubles{reason="DeletionsHeld", ` + a + `}`:                                                   "0x240",
	`secretsync_copies{` + a + `}`:                                                                             "100x240",
	`secretsync_copies{` + b + `}`:                                                                             "100x240",
	`secretsync_writes_total{action="create", ` + a + `}`:                                                      "0 100x239",
	`secretsync_writes_total{action="update", ` + a + `}`:                                                      "0x120 100x119",
	`nodereboot_unavailable_nodes{reason="Granted", ` + a + `}`:                                                "0x240",
	`nodereboot_unavailable_nodes{reason="Rebooting", ` + a + `}`:                                              "0x240",
	`nodereboot_unavailable_nodes{reason="Rebooting", ` + b + `}`:                                              "0x240",
	`nodereboot_waiting_nodes{reason="AgentSilent", ` + a + `}`:                                                "0x240",
	`nodereboot_waiting_nodes{reason="WindowClosed", ` + a + `}`:                                               "3x240",
	`nodereboot_unavailable_nodes{reason="NotReady", ` + a + `}`:                                               "1x240",
	`nodereboot_grants_total{` + a + `}`:                                                                       "0x240",
	`nodereboot_grants_total{` + b + `}`:                                                                       "0x240",
	`workqueue_depth{name="icecream", job="another", namespace="k8s-controller-system", instance="192.0.2.3"}`: "1000x240",
}

// TestAlerts evaluates every rule over two hours of series. Of each alert it wants
// to know when it fires for the first time; what is not named must not fire at all.
func TestAlerts(t *testing.T) {
	const (
		leader   = `leader_election_master_status{` + a + `}`
		standby  = `leader_election_master_status{` + b + `}`
		depth    = `workqueue_depth{name="icecream", ` + a + `}`
		depthB   = `workqueue_depth{name="icecream", ` + b + `}`
		longest  = `workqueue_longest_running_processor_seconds{name="icecream", ` + a + `}`
		synced   = `controller_sync_duration_seconds_count{controller="icecream", result="synced", ` + a + `}`
		deferred = `controller_sync_duration_seconds_count{controller="icecream", result="deferred", ` + a + `}`
		failed   = `controller_sync_duration_seconds_count{controller="icecream", result="failed", ` + a + `}`
		gaveUp   = `controller_sync_duration_seconds_count{controller="icecream", result="gave_up", ` + a + `}`
		panicked = `controller_sync_duration_seconds_count{controller="icecream", result="panicked", ` + a + `}`
		panics   = `controller_sync_panics_total{controller="icecream", ` + a + `}`
		stale    = `controller_stale_cache_waits_total{controller="icecream", ` + a + `}`
		heard    = `controller_cache_last_heard_timestamp_seconds{controller="icecream", resource="pods", ` + a + `}`
		heardB   = `controller_cache_last_heard_timestamp_seconds{controller="icecream", resource="pods", ` + b + `}`
		ready    = `icecream_objects{ready="True", reason="Available", ` + a + `}`
		broken   = `icecream_objects{ready="False", reason="ImagePullBackOff", ` + a + `}`
		troubles = `secretsync_troubles{reason="CopyFailed", ` + a + `}`
		holds    = `secretsync_troubles{reason="DeletionsHeld", ` + a + `}`
		copies   = `secretsync_copies{` + a + `}`
		copiesB  = `secretsync_copies{` + b + `}`
		creates  = `secretsync_writes_total{action="create", ` + a + `}`
		updates  = `secretsync_writes_total{action="update", ` + a + `}`
		granted  = `nodereboot_unavailable_nodes{reason="Granted", ` + a + `}`
		reboots  = `nodereboot_unavailable_nodes{reason="Rebooting", ` + a + `}`
		rebootsB = `nodereboot_unavailable_nodes{reason="Rebooting", ` + b + `}`
		silent   = `nodereboot_waiting_nodes{reason="AgentSilent", ` + a + `}`
		notReady = `nodereboot_unavailable_nodes{reason="NotReady", ` + a + `}`
		grants   = `nodereboot_grants_total{` + a + `}`
		grantsB  = `nodereboot_grants_total{` + b + `}`
		starting = `icecream_objects{ready="Unknown", reason="", ` + a + `}`

		refused   = `apiserver_validating_admission_policy_check_total{policy="k8s-controller-icecream-writes", enforcement_action="deny", job="apiserver"}`
		elsewhere = `apiserver_validating_admission_policy_check_total{policy="k8s-controller-reboot-agent", enforcement_action="deny", job="apiserver"}`
	)
	type series map[string]string // in place of those in healthy; no values: no series
	type firing map[string]time.Duration
	const gone = ""
	for _, test := range []struct {
		name string
		with series
		want firing
	}{
		{name: "all is well"},

		{
			name: "a policy refuses something for the first time, and what is not ours",
			with: series{refused: "_x20 1x100 2x120", elsewhere: "_x10 1x100 2x120"},
			want: firing{"IcecreamControllerWritesRefused": 10 * time.Minute},
		},
		{
			name: "nobody leads for less than two minutes",
			with: series{leader: "1x19 0x220", standby: "0x23 1x216", depth: "0x20 0+1x219", depthB: "100x25 0x214"},
		},
		{
			name: "nobody leads for two minutes",
			with: series{leader: "1x19 0x220", standby: "0x24 1x215", depth: "0x20 0+1x219", depthB: "100x26 0x213"},
			want: firing{"IcecreamControllerNotLeading": 12 * time.Minute},
		},
		{
			name: "nobody is there at all",
			with: series{leader: gone, standby: gone, depth: gone, depthB: gone},
			want: firing{"IcecreamControllerNotLeading": 2 * time.Minute},
		},
		{
			name: "a leader dies, and its last word stays for a while",
			with: series{leader: "1x22 _ stale", standby: "0x19 1x220", depth: gone, depthB: "100x20 0x219"},
		},
		{
			name: "two lead",
			with: series{standby: "0x19 1x220", depthB: "100x20 0x219"},
			want: firing{"IcecreamControllerSeveralLeaders": 12 * time.Minute},
		},

		{name: "a replica out of reach for less than 10 minutes", with: series{`up{` + b + `}`: "1x19 0x19 1x200"}},
		{
			name: "a replica out of reach for 10 minutes",
			with: series{`up{` + b + `}`: "1x19 0x20 1x200"},
			want: firing{"IcecreamControllerTargetDown": 20 * time.Minute},
		},

		{name: "syncs that take two minutes", with: series{longest: "120x240"}},
		{name: "a sync that takes a little longer", with: series{longest: "0x19 30 60 90 120 150 0x210"}},
		{
			name: "a sync that does not end",
			with: series{longest: "0x19 121x220"},
			want: firing{"IcecreamControllerWorkerStuck": 11 * time.Minute},
		},

		{name: "a queue that is empty once in a while", with: series{depth: "10x29 0 10x29 0 10x29 0 10x29 0 10x29 0x60"}},
		{
			name: "a queue with one object that nobody takes",
			with: series{depth: "0x19 1x220"},
			want: firing{"IcecreamControllerQueueNotDraining": 25 * time.Minute},
		},
		{
			name: "a full queue is taken over and worked on",
			with: series{leader: "1x99 0x140", standby: "0x100 1x139", depth: "0x99 0+1x140", depthB: "100+5x99 300 100 0x138"},
		},
		{
			name: "a full queue without leader election",
			with: series{leader: gone, standby: gone, depth: "3x240", depthB: gone},
			want: firing{
				"IcecreamControllerNotLeading":       2 * time.Minute, // which README.md says to leave out then
				"IcecreamControllerQueueNotDraining": 15 * time.Minute,
			},
		},

		{name: "a tenth of the syncs fails", with: series{synced: "0+180x240", deferred: gone, stale: gone, failed: "0+20x240"}},
		{
			name: "more than a tenth of the syncs fails",
			with: series{synced: "0+178x240", deferred: gone, stale: gone, failed: "0+20x240"},
			want: firing{"IcecreamControllerSyncErrors": 15*time.Minute + 2*scrapeInterval},
		},
		{
			name: "giving up and panicking is failing, too",
			with: series{synced: "0+178x240", deferred: gone, stale: gone, gaveUp: "0+10x240", panicked: "0+10x240"},
			want: firing{"IcecreamControllerSyncErrors": 15*time.Minute + 2*scrapeInterval},
		},
		{name: "one quiet object fails for ever", with: series{synced: "0x240", deferred: gone, stale: gone, failed: "0+0.5x240"}},
		{name: "a few quiet objects fail for ever", with: series{synced: "0x240", deferred: gone, stale: gone, failed: "0+1.4x240"}},
		{
			name: "several quiet objects fail for ever",
			with: series{synced: "0x240", deferred: gone, stale: gone, failed: "0+1.6x240"},
			want: firing{"IcecreamControllerSyncErrors": 9*time.Minute + 30*time.Second + 15*time.Minute}, // the rate of 10 minutes needs 9 to see so many
		},
		{name: "everything fails for three minutes", with: series{synced: "0x240", deferred: gone, stale: gone, failed: "0x19 0+100x6 600x220"}},

		{
			name: "one panic",
			with: series{panics: "0x19 1x220"},
			want: firing{"IcecreamControllerPanics": 10 * time.Minute},
		},
		{name: "a restart forgets panics", with: series{panics: "1x19 0x220"}},

		{name: "half of the syncs wait for the cache", with: series{synced: "0+10x240", deferred: "0+10x240", stale: "0+10x240"}},
		{
			name: "more than half of the syncs wait for the cache",
			with: series{synced: "0+9x240", deferred: "0+10x240", stale: "0+10x240"},
			want: firing{"IcecreamControllerStaleCache": 15*time.Minute + scrapeInterval},
		},
		{name: "all syncs wait for the cache for three minutes", with: series{synced: "0x240", deferred: "0x19 0+10x6 60x220", stale: "0x19 0+10x6 60x220"}},

		{name: "a cache hears by bookmarks alone", with: series{heard: "0x1 60x1 120x1 180+30x234"}},
		{name: "a cache hears nothing for five minutes", with: series{heard: "0+30x19 570x9 900+30x210"}},
		{
			name: "a cache hears nothing for longer",
			with: series{heard: "0+30x19 570x220"},
			want: firing{"IcecreamControllerCacheSilent": 570*time.Second + 5*time.Minute + scrapeInterval + time.Minute},
		},
		{
			name: "a cache of a replica that does not lead hears nothing",
			with: series{heardB: "0+30x19 570x220"},
			want: firing{"IcecreamControllerCacheSilent": 570*time.Second + 5*time.Minute + scrapeInterval + time.Minute},
		},

		{name: "a fifth of the Icecreams is not Ready", with: series{ready: "80x240", broken: "20x240"}},
		{
			name: "more than a fifth of the Icecreams is not Ready",
			with: series{ready: "79x240", broken: "20x240", starting: "1x240"},
			want: firing{"IcecreamControllerIcecreamsNotReady": 30 * time.Minute},
		},
		{name: "four of four are not Ready", with: series{ready: gone, broken: "4x240"}},
		{
			name: "five of five are not Ready",
			with: series{ready: gone, broken: "5x240"},
			want: firing{"IcecreamControllerIcecreamsNotReady": 30 * time.Minute},
		},
		{name: "many are not Ready for less than half an hour", with: series{ready: "100x19 50x59 100x160", broken: "0x19 50x59 0x160"}},
		{
			name: "a standby that sees it otherwise",
			with: series{`icecream_objects{ready="True", reason="Available", ` + b + `}`: gone, `icecream_objects{ready="False", reason="ImagePullBackOff", ` + b + `}`: "100x240"},
		},

		{
			name: "the controllers that can be off are off",
			with: series{
				troubles: gone, `secretsync_troubles{reason="CopyFailed", ` + b + `}`: gone,
				holds: gone, copies: gone, copiesB: gone, creates: gone, updates: gone,
				granted: gone, reboots: gone, rebootsB: gone, notReady: gone, grants: gone, grantsB: gone,
			},
		},
		{name: "a Secret that is not copied for less than half an hour", with: series{troubles: "0x19 1x59 0x160"}},
		{
			name: "a Secret that is not copied for half an hour",
			with: series{troubles: "0x19 1x60 0x160"},
			want: firing{"IcecreamControllerSecretsNotCopied": 40 * time.Minute},
		},
		{
			name: "deletions are held",
			with: series{holds: "0x19 80x220"},
			want: firing{"IcecreamControllerSecretDeletionsHeld": 11 * time.Minute},
		},
		{name: "all copies are rotated twice in half an hour", with: series{updates: "0x40 100x40 200x159"}},
		{
			name: "each copy is written every five minutes",
			with: series{updates: "0x20 0+10x219"},
			want: firing{"IcecreamControllerSecretWrites": 10*time.Minute + scrapeInterval + 3*time.Minute + 30*time.Minute},
		},
		{
			name: "one copy of one is written every five minutes",
			with: series{copies: "1x240", copiesB: "1x240", updates: "0x19 0+0.1x220"},
			want: firing{"IcecreamControllerSecretWrites": 10*time.Minute + 3*time.Minute + 30*time.Minute},
		},
		{name: "a tenth of them is", with: series{updates: "0x20 0+1x219"}},

		{name: "an agent that is silent for less than an hour", with: series{silent: "0x19 1x119 0x100"}},
		{
			name: "an agent that is silent for an hour",
			with: series{silent: "0x19 1x220"},
			want: firing{"IcecreamControllerNodesCannotReboot": 70 * time.Minute},
		},
		{name: "one node reboots after the other", with: series{reboots: "1x240", rebootsB: "1x240", grants: "0+0.1x240"}},
		{
			name: "so they do while the leader changes",
			with: series{reboots: "1x240", rebootsB: "1x240", grants: "0x9 1x90 1x139", grantsB: "0x120 0+0.1x119"},
		},
		{name: "a node that takes an hour for it", with: series{reboots: "0x19 1x120 0x100", grants: "0x19 1x220"}},
		{
			name: "a node that does not come back",
			with: series{reboots: "0x19 1x220", rebootsB: "0x19 1x220", grants: "0x19 1x220"},
			want: firing{"IcecreamControllerNodeNotBack": 10*time.Minute + 59*time.Minute + 30*time.Second + 15*time.Minute},
		},
		{
			name: "a node without an agent",
			with: series{granted: "0x19 1x220", grants: "0x19 1x220"},
			want: firing{"IcecreamControllerNodeNotBack": 10*time.Minute + 59*time.Minute + 30*time.Second + 15*time.Minute},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var load strings.Builder
			fmt.Fprintf(&load, "load %s\n", scrapeInterval)
			now := maps.Clone(healthy)
			maps.Copy(now, test.with)
			for metric, values := range now {
				if values != gone {
					fmt.Fprintf(&load, "  %s %s\n", metric, values)
				}
			}
			want := test.want
			if want == nil {
				want = firing{}
			}
			if diff := cmp.Diff(want, firing(fire(t, load.String()))); diff != "" {
				t.Errorf("when alerts fire (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	runbook, err := os.ReadFile(artifacts + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range alerts(t) {
		if want := "artifacts/monitoring/README.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if !strings.Contains(string(runbook), "\n### "+rule.Alert+"\n") {
			t.Errorf("%s: the README has no such heading", rule.Alert)
		}
		for _, name := range []string{"summary", "description"} {
			if rule.Annotations[name] == "" {
				t.Errorf("%s: no %s", rule.Alert, name)
			}
		}
		if severity := rule.Labels["severity"]; !slices.Contains([]string{"critical", "warning"}, severity) {
			t.Errorf("%s: severity is %q", rule.Alert, severity)
		}
	}
}

// alerts reads the rules of alerts.yaml, and has Prometheus' own library check them.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(ruleFile(t), false, model.LegacyValidation, promQL, promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var found []rulefmt.Rule
	for _, group := range groups.Groups {
		found = append(found, group.Rules...)
	}
	for _, rule := range found {
		if rule.Alert == "" {
			t.Errorf("%s is no alert", rule.Record)
		}
	}
	return found
}

// ruleFile is the spec of alerts.yaml, which is what Prometheus itself reads.
func ruleFile(t *testing.T) []byte {
	t.Helper()
	manifest, err := os.ReadFile(artifacts + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(manifest, &object); err != nil {
		t.Fatal(err)
	}
	if object.APIVersion != "monitoring.coreos.com/v1" || object.Kind != "PrometheusRule" {
		t.Fatalf("alerts.yaml is a %s of %s", object.Kind, object.APIVersion)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// usesLabel matches what a template takes from the labels of its alert.
var usesLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// fire evaluates all rules over the series for two hours, and returns when each
// alert fired for the first time.
func fire(t *testing.T, load string) map[string]time.Duration {
	t.Helper()
	storage := promqltest.LoadedStorage(t, load)
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery), storage)
	fired := map[string]time.Duration{}
	for _, alert := range alerts(t) {
		expr, err := promQL.ParseExpr(alert.Expr)
		if err != nil {
			t.Fatal(err)
		}
		rule := rules.NewAlertingRule(alert.Alert, expr, time.Duration(alert.For), time.Duration(alert.KeepFiringFor),
			labels.FromMap(alert.Labels), labels.FromMap(alert.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
		for since := time.Duration(0); since <= 2*time.Hour; since += scrapeInterval {
			if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(since), query, nil, 0); err != nil {
				t.Fatalf("%s: %v", alert.Alert, err)
			}
			firing := slices.DeleteFunc(rule.ActiveAlerts(), func(active *rules.Alert) bool { return active.State != rules.StateFiring })
			if len(firing) > 0 {
				fired[alert.Alert] = since
				checkWords(t, alert, firing)
				break
			}
		}
	}
	return fired
}

// checkWords requires that templates could be filled in.
func checkWords(t *testing.T, alert rulefmt.Rule, active []*rules.Alert) {
	t.Helper()
	for _, instance := range active {
		instance.Annotations.Range(func(l labels.Label) {
			if strings.Contains(l.Value, "error expanding") || strings.Contains(l.Value, "<no value>") {
				t.Errorf("%s: %s is %q", alert.Alert, l.Name, l.Value)
			}
			for _, label := range usesLabel.FindAllStringSubmatch(alert.Annotations[l.Name], -1) {
				if instance.Labels.Get(label[1]) == "" {
					t.Errorf("%s: %s is about label %q, which %s has not", alert.Alert, l.Name, label[1], instance.Labels)
				}
			}
		})
	}
}
