package main

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// noAlerts is what Prometheus answers while no alert fires.
const noAlerts = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// ask returns which alerts fire, by a Prometheus.
func ask(t *testing.T, c Config) ([]string, error) {
	t.Helper()
	client, err := prometheusClient(c)
	if err != nil {
		t.Fatal(err)
	}
	return firingAlerts(c, client)(t.Context())
}

// Prometheus is asked for the alerts that fire, by their whole names.
func TestPrometheusIsAsked(t *testing.T) {
	answer, warnings, status := "", "", http.StatusOK
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if query := r.FormValue("query"); r.URL.Path != "/prometheus/api/v1/query" || query != `ALERTS{alertstate="firing",alertname=~"Etcd.*|Disk\\\\d"}` {
			t.Errorf("asked %s for %s", r.URL.Path, query)
		}
		if r.FormValue("time") != "" {
			t.Error("Prometheus is told the time")
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":"success","warnings":[`+warnings+`],"data":{"resultType":"vector","result":[%s]}}`, answer)
	}))
	defer prometheus.Close()
	config := parse(t, []string{"-prometheus-url=" + prometheus.URL + "/prometheus", `-alerts=Etcd.*|Disk\\d`})
	for _, tt := range []struct {
		name   string
		firing []string
		warns  string
		status int
		want   []string
	}{
		{"some fire", []string{"EtcdNoLeader", "Disk1", "Disk1"}, "", http.StatusOK, []string{"Disk1", "EtcdNoLeader"}},
		{"none fires", nil, "", http.StatusOK, nil},
		{"a part of the answer", nil, `"store 2 is down"`, http.StatusOK, nil},
		{"no answer", nil, "", http.StatusServiceUnavailable, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var series []string
			for _, name := range tt.firing {
				series = append(series, fmt.Sprintf(`{"metric":{"__name__":"ALERTS","alertname":%q,"alertstate":"firing","severity":"critical"},"value":[1782907200,"1"]}`, name))
			}
			answer, warnings, status = strings.Join(series, ","), tt.warns, tt.status
			got, err := ask(t, config)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.status == http.StatusOK && tt.warns == "") {
				t.Errorf("error %v, alerts (-want +got):\n%s", err, diff)
			}
		})
	}
}

// Prometheus is asked for its alerting rules, too, by their whole names.
func TestPrometheusIsAskedForRules(t *testing.T) {
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prometheus/api/v1/rules" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		rule := func(kind, name string) string {
			return fmt.Sprintf(`{"type":%q,"name":%q,"query":"up","health":"ok","evaluationTime":0,"lastEvaluation":"2026-07-01T12:00:00Z","state":"inactive","duration":0,"alerts":[]}`, kind, name)
		}
		rules := []string{rule("alerting", "EtcdSlow"), rule("recording", "EtcdSum"), rule("alerting", "NoEtcd"), rule("alerting", "EtcdDown"), rule("alerting", "EtcdDown")}
		fmt.Fprintf(w, `{"status":"success","data":{"groups":[{"name":"g","file":"f","interval":30,"rules":[%s]}]}}`, strings.Join(rules, ","))
	}))
	defer prometheus.Close()
	for path, want := range map[string][]string{"/prometheus": {"EtcdDown", "EtcdSlow"}, "/elsewhere": nil} {
		config := Config{PrometheusURL: prometheus.URL + path, Alerts: "Etcd.*|x"}
		client, err := prometheusClient(config)
		if err != nil {
			t.Fatal(err)
		}
		got, err := alertRules(config, client)(t.Context())
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%s: error %v, rules (-want +got):\n%s", path, err, diff)
		}
	}
}

// newCertificate returns a certificate for 127.0.0.1, and PEM that has its authority.
func newCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, chain
}

// A Prometheus may have a certificate of its own authority, and want a token. Both files are
// read again when they change. An authority that is missing is named.
func TestPrometheusBehindTLS(t *testing.T) {
	var certificate tls.Certificate
	token := "first"
	prometheus := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch sent := r.Header.Get("Authorization"); {
		case token == "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case sent != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			fmt.Fprint(w, noAlerts)
		}
	}))
	prometheus.Config.SetKeepAlivesEnabled(false) // a bubble's time stands still while a connection is open
	prometheus.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{certificate}}, nil
	}}
	prometheus.StartTLS()
	defer prometheus.Close()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		caFile, tokenFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
		write := func(path string, content []byte) {
			t.Helper()
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var authority []byte
		certificate, authority = newCertificate(t) // valid at the time of the bubble
		write(caFile, authority)
		write(tokenFile, []byte("first\n"))
		config := Config{PrometheusURL: prometheus.URL, Alerts: "x", PrometheusCAFile: caFile, PrometheusTokenFile: tokenFile}
		client, err := prometheusClient(config)
		if err != nil {
			t.Fatal(err)
		}
		require := func(when, want string) {
			t.Helper()
			_, err := firingAlerts(config, client)(t.Context())
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", when, err, want)
			}
		}
		require("a private authority and a token", "")

		token = "second"
		require("another token", "401")
		write(tokenFile, []byte("second\n"))
		time.Sleep(time.Minute)
		require("it was written to the file", "")

		certificate, authority = newCertificate(t)
		require("another authority", "certificate signed by unknown authority")
		require("another authority", "it is not among "+caFile)
		write(caFile, authority)
		time.Sleep(5 * time.Minute)
		require("it was written to the file", "")

		token = "redirect"
		require("the token goes nowhere else", "307")

		config.PrometheusCAFile = ""
		if client, err = prometheusClient(config); err != nil {
			t.Fatal(err)
		}
		require("no file", "it is not among those of the system, and -prometheus-ca-file names no others")
	})
}

// A file that cannot be read, or that would be of no use, is an error at the start.
func TestPrometheusFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]Config{
		"no CA file":    {PrometheusURL: "https://prometheus", PrometheusCAFile: "/no/such/file"},
		"no token":      {PrometheusURL: "https://prometheus", PrometheusTokenFile: "/no/such/file"},
		"an empty one":  {PrometheusURL: "https://prometheus", PrometheusTokenFile: empty},
		"no authority":  {PrometheusURL: "https://prometheus", PrometheusCAFile: "hold_test.go"},
		"an empty file": {PrometheusURL: "https://prometheus", PrometheusCAFile: empty},
	} {
		if _, err := prometheusClient(config); err == nil {
			t.Errorf("%s: there is no error", name)
		}
	}
	for name, tt := range map[string]struct {
		config Config
		want   string
	}{
		"a token in the clear":        {Config{PrometheusURL: "http://prometheus", PrometheusTokenFile: "x"}, "https://"},
		"a CA for nothing":            {Config{PrometheusURL: "http://prometheus", PrometheusCAFile: "x"}, "https://"},
		"no Prometheus":               {Config{PrometheusCAFile: "x"}, "https://"},
		"a user without a password":   {Config{PrometheusURL: "https://prometheus", PrometheusUser: "x"}, "must be set together"},
		"a certificate without a key": {Config{PrometheusURL: "https://prometheus", PrometheusCertFile: "x"}, "must be set together"},
		"a password in the clear":     {Config{PrometheusURL: "http://prometheus", PrometheusUser: "x", PrometheusPasswordFile: "x"}, "https://"},
		"a token and a password":      {Config{PrometheusURL: "https://prometheus", PrometheusTokenFile: "x", PrometheusUser: "x", PrometheusPasswordFile: "x"}, "must not be set together"},
		"a header for nobody":         {Config{PrometheusHeaders: map[string]string{"x": "y"}}, "needs -prometheus-url"},
		"an URL in other cases":       {Config{PrometheusURL: "HTTPS://prometheus", PrometheusCAFile: "x", PrometheusTokenFile: "y"}, ""},
	} {
		if tt.config.PrometheusURL != "" {
			tt.config.Alerts = "x"
		}
		tt.config.AgentNamespace = "agents"
		if err := tt.config.Validate(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A Prometheus may want basic credentials, a client certificate, and headers.
func TestPrometheusCredentials(t *testing.T) {
	dir := t.TempDir()
	chain, key, err := cert.GenerateSelfSignedCertKey("client", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	prometheus := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "nodereboot" || password != "secret" || r.Header.Get("X-Scope-OrgID") != "team" || len(r.TLS.PeerCertificates) == 0 {
			t.Errorf("asked by %s:%s, of %q, with %d certificates", user, password, r.Header.Get("X-Scope-OrgID"), len(r.TLS.PeerCertificates))
		}
		fmt.Fprint(w, noAlerts)
	}))
	prometheus.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	prometheus.StartTLS()
	defer prometheus.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: prometheus.Certificate().Raw})
	for name, content := range map[string][]byte{"ca": authority, "cert": chain, "key": key, "password": []byte("secret\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := parse(t, []string{
		"-prometheus-url=" + prometheus.URL, "-alerts=x", "-prometheus-header=X-Scope-OrgID: team",
		"-prometheus-user=nodereboot", "-prometheus-password-file=" + filepath.Join(dir, "password"),
		"-prometheus-ca-file=" + filepath.Join(dir, "ca"),
		"-prometheus-cert-file=" + filepath.Join(dir, "cert"), "-prometheus-key-file=" + filepath.Join(dir, "key"),
	})
	if _, err := ask(t, config); err != nil {
		t.Error(err)
	}
}

// While an alert fires, or Prometheus does not answer, all nodes wait. Prometheus is asked
// once a minute, however often nodes change.
func TestAlerts(t *testing.T) { inCluster(t, nil, testAlerts) }

func testAlerts(t *testing.T, s *scripted) {
	asked := s.asked(func(n int64) ([]string, error) {
		switch n {
		case 1:
			return []string{"Disk1", "EtcdNoLeader"}, nil
		case 2:
			return nil, errors.New("no answer")
		default:
			return nil, nil
		}
	})
	requireWaiting := func(want int64, reason string) {
		t.Helper()
		told := s.events()
		if len(told) != 2 || !strings.HasPrefix(told[0], "Normal RebootWaiting Waiting to reboot ("+reason) || !strings.HasPrefix(told[1], "Normal RebootWaiting Waiting to reboot ("+reason) {
			t.Errorf("events %q, want %s", told, reason)
		}
		if n := s.node("a"); request.IsNext(n) || request.IsGranted(n) || asked.Load() != want {
			t.Errorf("asked %d times, it goes on with %v", asked.Load(), n.Annotations)
		}
	}
	s.Set(node("a", needed))
	s.Set(node("b", needed))
	s.run("a", "b")
	for range 10 {
		time.Sleep(time.Second)
		script.Edit(s.Cluster, "", "b", labeled("time", time.Now().Format("150405")))
	}
	requireWaiting(1, "AlertFires): these alerts are firing: Disk1, EtcdNoLeader")
	time.Sleep(holdPeriod)
	requireWaiting(2, "AlertsUnknown): Prometheus does not say whether alerts are firing: no answer")
	time.Sleep(holdPeriod)
	if n := s.node("a"); !request.IsGranted(n) || asked.Load() != 5 { // whether it still holds, then to choose a node, then to grant its reboot
		t.Errorf("asked %d times when no alert fires, and it has %v", asked.Load(), n.Annotations)
	}
}

// If an alert begins to fire between the two steps of a grant, the chosen node is passed
// over.
func TestAlertBetweenChooseAndGrant(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		asked := s.asked(func(n int64) ([]string, error) {
			if n == 2 {
				return etcdIsDown(n)
			}
			return nil, nil
		})
		s.Set(node("a", needed))
		s.Set(node("b", needed))
		s.run("a", "b")
		time.Sleep(holdPeriod / 2)
		if asked, patches := asked.Load(), s.Requests("patch nodes"); asked != 2 || patches != 2 {
			t.Errorf("asked %d times, and written %d times", asked, patches)
		}
		for _, name := range []string{"a", "b"} {
			if n := s.node(name); request.IsNext(n) || request.IsGranted(n) || !request.IsNeeded(n) {
				t.Errorf("%s is left with %v", n.Name, n.Annotations)
			}
		}
	})
}

// A node with a Pod that must not be disturbed waits, and another node takes its turn. A Pod that
// has ended, that has no node yet, or that no selector selects holds back nobody.
func TestBlockingPods(t *testing.T) {
	inCluster(t, []string{"-blocking-pods=job=training; app in (ci)"}, testBlockingPods)
}

func testBlockingPods(t *testing.T, s *scripted) {
	pod := func(name, node, key, value string, phase corev1.PodPhase) {
		s.Set(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, Labels: map[string]string{key: value}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			Status:     corev1.PodStatus{Phase: phase},
		})
	}
	pod("training", "a", "job", "training", corev1.PodRunning)
	pod("built", "b", "app", "ci", corev1.PodSucceeded)
	pod("failed", "b", "job", "training", corev1.PodFailed)
	pod("other", "b", "job", "cleaning", corev1.PodRunning)
	pod("pending", "", "app", "ci", corev1.PodPending)
	s.Set(node("a", needed))
	s.Set(node("b", needed))
	s.run("a", "b")
	time.Sleep(10 * time.Second)
	if a, b := s.node("a"), s.node("b"); request.IsNext(a) || request.IsGranted(a) || !request.IsGranted(b) {
		t.Errorf("they have %v and %v", a.Annotations, b.Annotations)
	}
	if told := strings.Join(s.events(), "\n"); !strings.Contains(told, "Waiting to reboot (PodRuns): the Pod ml/training runs on the node and must not be disturbed") {
		t.Errorf("events %s", told)
	}
	script.Delete[corev1.Pod](s.Cluster, "ml", "training", metav1.DeletePropagationBackground)
	s.annotate("b")
	time.Sleep(holdPeriod)
	if a := s.node("a"); !request.IsGranted(a) {
		t.Errorf("it has %v when the Pod has ended", a.Annotations)
	}
}

// What is not known holds nodes back, and says so: nobody may list Pods.
func TestBlockingPodsUnknown(t *testing.T) {
	inCluster(t, []string{"-blocking-pods=job=training"}, func(t *testing.T, s *scripted) {
		s.Refuse(func(request string) error {
			if request == "list pods" {
				return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no permission"))
			}
			return nil
		})
		s.Set(node("a", needed))
		s.run("a")
		time.Sleep(time.Minute)
		if n := s.node("a"); request.IsNext(n) || request.IsGranted(n) {
			t.Errorf("it goes on with %v", n.Annotations)
		}
		if events := s.events(); len(events) != 1 || !strings.Contains(events[0], "Waiting to reboot (PodsUnknown): it is not known which Pods run") {
			t.Errorf("events %q", events)
		}
	})
}

// An answer counts for the whole sync in which it was asked for, however long that takes.
func TestHoldOutlastsASlowList(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.onList = func(url.Values) { time.Sleep(70 * time.Second) }
		s.asked(etcdIsDown)
		s.Set(node("a", needed))
		s.Set(node("b"))
		s.run("a", "b")
		time.Sleep(10 * time.Minute)
		if n := s.node("a"); request.IsNext(n) || request.IsGranted(n) {
			t.Errorf("it goes on with %v while an alert fires", n.Annotations)
		}
	})
}

// A decision by a stale cache that has nothing to do with alerts does not skip the question.
func TestAlertsAreAskedAfterTheLiveDecision(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		asked := s.asked(etcdIsDown)
		s.Set(node("a", needed, next))
		s.Set(node("b", ready(corev1.ConditionUnknown)))
		s.Hold("nodes")
		s.begin("a", "b") // its first list shows b as it was
		script.Edit(s.Cluster, "", "b", ready(corev1.ConditionTrue))
		time.Sleep(5 * time.Second)
		if n := s.node("a"); request.IsGranted(n) || asked.Load() == 0 {
			t.Errorf("asked %d times, and it goes on with %v", asked.Load(), n.Annotations)
		}
	})
}

// While an alert fires, Prometheus is asked once a minute, and nobody lists all nodes.
func TestNobodyListsNodesWhileAHoldLasts(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		asked := s.asked(etcdIsDown)
		s.Set(node("a", needed))
		s.run("a")
		time.Sleep(time.Minute)
		asked.Store(0)
		s.ForgetRequests()
		time.Sleep(time.Hour)
		if lists, asked := s.Requests("list nodes"), asked.Load(); lists > 0 || asked < 59 || asked > 61 {
			t.Errorf("asked %d times, and listed nodes %d times", asked, lists)
		}
	})
}
