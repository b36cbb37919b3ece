package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/test/lab"
)

// configuration is of Prometheus: it has the alerts, and three ways to scrape the
// one controller. The placeholder is its address.
const configuration = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: k8s-controller-metrics
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials_file: reader}
  static_configs: &target
  - targets: ["%s"]
    labels: {namespace: k8s-controller-system, pod: k8s-controller-0}
- job_name: without-token
  scheme: https
  tls_config: {insecure_skip_verify: true}
  static_configs: *target
- job_name: without-permission
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials_file: stranger}
  static_configs: *target
`

// testPrometheus has a real Prometheus scrape the controller, answer all queries and
// evaluate all alerts.
func testPrometheus(t *testing.T, n *lab.Namespace, reader, stranger string) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: there is no %s here (in Debian: apt-get install prometheus)", program)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"prometheus.yaml": fmt.Sprintf(configuration, n.Controller.Address(t, true)), "rules.yaml": string(ruleFile(t)), "reader": reader, "stranger": stranger,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if output, err := exec.CommandContext(t.Context(), "promtool", "check", "config", filepath.Join(dir, "prometheus.yaml")).CombinedOutput(); err != nil {
		t.Fatalf("promtool check config: %v\n%s", err, output)
	}
	p := startPrometheus(t, dir)

	n.Eventually(t, "Prometheus scrapes the controller, and only with a token that may", func(ctx context.Context) error {
		targets, err := p.targets(ctx)
		if err != nil {
			return err
		}
		return errors.Join(
			targets.expect("k8s-controller-metrics", "up", ""),
			targets.expect("without-token", "down", "HTTP status 401"),
			targets.expect("without-permission", "down", "HTTP status 403"))
	})
	n.Eventually(t, "Prometheus has counted requests to the API server", func(ctx context.Context) error {
		found, err := p.query(ctx, `sum(rest_client_requests_total{job="k8s-controller-metrics"}) > 0`)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("it found %v", found)
		}
		return err
	})
	n.Eventually(t, "Prometheus can answer every query of the dashboard", func(ctx context.Context) error {
		var errs []error
		for _, q := range dashboardQueries(t) {
			found, err := p.query(ctx, q.expr)
			if err == nil && len(found) == 0 && !q.isEvent && !strings.Contains(q.expr, "ALERTS{") {
				err = errors.New("nothing found")
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w\n%s", q.where, err, q.expr))
			}
		}
		return errors.Join(errs...)
	})
	n.Eventually(t, "Prometheus has evaluated every alert, and none has anything to say", func(ctx context.Context) error {
		return p.expectAlerts(ctx, len(alerts(t)))
	})
	n.Controller.Stop(t)
	n.Eventually(t, "Prometheus notices that the controller has gone", func(ctx context.Context) error {
		return p.expectAlerts(ctx, len(alerts(t)), "IcecreamControllerNotLeading", "IcecreamControllerTargetDown")
	})
}

// prometheus is a running one, by the URL of its API.
type prometheus string

// startPrometheus runs Prometheus with the configuration in dir until the test ends.
func startPrometheus(t *testing.T, dir string) prometheus {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.CommandContext(t.Context(), "prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address="+address)
	command.Dir, command.Stdout, command.Stderr = dir, log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Wait() // the end of the test's context has ended it
		if content, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log of Prometheus:\n%s", content[max(0, len(content)-4000):])
		}
	})
	return prometheus("http://" + address + "/api/v1/")
}

// ask reads the data of an answer.
func (p prometheus) ask(ctx context.Context, path string, data any) error {
	code, body, err := lab.Get(ctx, string(p)+path, "")
	if err != nil {
		return err
	}
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return expect(code, http.StatusOK)
}

func (p prometheus) query(ctx context.Context, expr string) ([]json.RawMessage, error) {
	var data struct{ Result []json.RawMessage }
	err := p.ask(ctx, "query?query="+url.QueryEscape(expr), &data)
	return data.Result, err
}

type targets []struct {
	ScrapePool, Health, LastError string
}

func (p prometheus) targets(ctx context.Context) (targets, error) {
	var data struct{ ActiveTargets targets }
	err := p.ask(ctx, "targets", &data)
	return data.ActiveTargets, err
}

// expect is an error unless the only target of the job is in that state of health.
func (all targets) expect(job, health, lastError string) error {
	for _, one := range all {
		if one.ScrapePool == job && one.Health == health && strings.Contains(one.LastError, lastError) {
			return nil
		}
	}
	return fmt.Errorf("target %s is not %s %s: %v", job, health, lastError, all)
}

// expectAlerts is an error unless that many rules have been evaluated without an
// error, and these alerts and no others are pending.
func (p prometheus) expectAlerts(ctx context.Context, rules int, pending ...string) error {
	var data struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError, State string
				LastEvaluation                 time.Time
			}
		}
	}
	if err := p.ask(ctx, "rules", &data); err != nil {
		return err
	}
	var found []string
	for _, group := range data.Groups {
		rules -= len(group.Rules)
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				return fmt.Errorf("%s: %s: %s", rule.Name, rule.Health, rule.LastError)
			}
			if rule.State != "inactive" {
				found = append(found, rule.Name)
			}
		}
	}
	slices.Sort(found)
	if rules != 0 || !slices.Equal(found, pending) {
		return fmt.Errorf("%v, want %v; %d rules are missing", found, pending, rules)
	}
	return nil
}
