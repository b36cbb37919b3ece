package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/cert"
)

// noResult is what Prometheus answers while no alert fires.
const noResult = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// asking returns a function that asks a Prometheus, with a file of these lines as
// -prometheus-config.
func asking(t *testing.T, url, dir string, lines ...string) (func(context.Context) ([]string, error), error) {
	t.Helper()
	c := Config{PrometheusURL: url, PrometheusQuery: "ALERTS"}
	if len(lines) > 0 {
		c.PrometheusConfig = filepath.Join(dir, "config.yaml")
		write(t, c.PrometheusConfig, strings.Join(lines, "\n"))
	}
	client, err := prometheusClient(c)
	return firingAlerts(c, client), err
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Prometheus is asked the query, by its own clock. A result is the name of an alert, or a series.
// Only a complete vector is an answer.
func TestPrometheusIsAsked(t *testing.T) {
	const query = `ALERTS{alertstate="firing",severity="critical"} or up{job="etcd"} == 0`
	answer, status := "", http.StatusOK
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prometheus/api/v1/query" || r.FormValue("query") != query || r.FormValue("time") != "" {
			t.Errorf("asked %s for %v", r.URL.Path, r.Form)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	defer prometheus.Close()
	config := Config{PrometheusURL: prometheus.URL + "/prometheus", PrometheusQuery: query}
	client, err := prometheusClient(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := firingAlerts(config, client)
	for _, tt := range []struct {
		name, answer, wantErr string
		status                int
		want                  []string
	}{
		{name: "no result", answer: noResult},
		{
			name: "alerts and a series",
			answer: `{"status":"success","data":{"resultType":"vector","result":[
				{"metric":{"__name__":"up","job":"etcd"},"value":[1782907200,"0"]},
				{"metric":{"__name__":"ALERTS","alertname":"EtcdNoLeader","instance":"a"},"value":[1782907200,"1"]},
				{"metric":{"__name__":"ALERTS","alertname":"EtcdNoLeader","instance":"b"},"value":[1782907200,"1"]},
				{"metric":{"__name__":"ALERTS","alertname":"Disk1"},"value":[1782907200,"1"]}]}}`,
			want: []string{"Disk1", "EtcdNoLeader", `up{job="etcd"}`},
		},
		{
			name:    "a part of the answer",
			answer:  `{"status":"success","warnings":["store 2 is down"],"data":{"resultType":"vector","result":[]}}`,
			wantErr: "the response has warnings: store 2 is down",
		},
		{
			name:    "a number",
			answer:  `{"status":"success","data":{"resultType":"scalar","result":[1782907200,"0"]}}`,
			wantErr: "the result is a scalar, not a vector",
		},
		{
			name:    "no series over time",
			answer:  `{"status":"success","data":{"resultType":"matrix","result":[]}}`,
			wantErr: "the result is a matrix, not a vector",
		},
		{
			name:    "not PromQL",
			answer:  `{"status":"error","errorType":"bad_data","error":"unexpected character"}`,
			status:  http.StatusBadRequest,
			wantErr: "bad_data: unexpected character",
		},
		{name: "no answer", status: http.StatusServiceUnavailable, wantErr: "503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer, status = tt.answer, max(tt.status, http.StatusOK)
			got, err := ask(t.Context())
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, results (-want +got):\n%s", err, diff)
			}
		})
	}
}

// newCertificate returns a certificate for 127.0.0.1, and PEM that has its authority.
func newCertificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, string(chain)
}

// A Prometheus may have a certificate of its own authority, and want a token. Both files are
// read again. The token goes nowhere else: not to a server that the authority does not vouch for,
// nor where a redirect leads.
func TestPrometheusBehindTLS(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server is asked, with %v", r.Header)
	}))
	defer elsewhere.Close()
	var certificate tls.Certificate
	token, redirects, asked := "first", false, 0
	prometheus := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch sent := r.Header.Get("Authorization"); {
		case redirects:
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case sent != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			fmt.Fprint(w, noResult)
		}
	}))
	prometheus.Config.SetKeepAlivesEnabled(false) // each request sees the certificate
	prometheus.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{certificate}}, nil
	}}
	prometheus.StartTLS()
	defer prometheus.Close()

	dir := t.TempDir()
	var authority string
	certificate, authority = newCertificate(t)
	write(t, filepath.Join(dir, "ca.crt"), authority)
	write(t, filepath.Join(dir, "token"), "first\n")
	ask, err := asking(t, prometheus.URL, dir,
		"authorization: {credentials_file: token}", "tls_config: {ca_file: ca.crt}", "follow_redirects: true")
	if err != nil {
		t.Fatal(err)
	}
	require := func(when, want string) {
		t.Helper()
		_, err := ask(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
	}
	require("a private authority and a token", "")

	token = "second"
	require("another token", "401")
	write(t, filepath.Join(dir, "token"), "second\n")
	require("it was written to the file", "")

	asked = 0
	certificate, authority = newCertificate(t)
	require("another authority", "certificate signed by unknown authority")
	if asked > 0 {
		t.Error("a server that no authority vouches for got the token")
	}
	write(t, filepath.Join(dir, "ca.crt"), authority)
	require("it was written to the file", "")

	redirects = true
	require("a redirect", "307")
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
		fmt.Fprint(w, noResult)
	}))
	prometheus.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	prometheus.StartTLS()
	defer prometheus.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: prometheus.Certificate().Raw})
	for name, content := range map[string][]byte{"ca": authority, "cert": chain, "key": key, "password": []byte("secret\n")} {
		write(t, filepath.Join(dir, name), string(content))
	}
	ask, err := asking(t, prometheus.URL, dir,
		"basic_auth: {username: nodereboot, password_file: password}",
		"tls_config: {ca_file: ca, cert_file: cert, key_file: key}",
		"http_headers: {X-Scope-OrgID: {values: [team]}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t.Context()); err != nil {
		t.Error(err)
	}
}

// A file that is of no use is an error at the start, in one line. Credentials need TLS.
func TestPrometheusConfig(t *testing.T) {
	const (
		inTheClear = "need a -prometheus-url that begins with https://"
		token      = "authorization: {credentials_file: token}"
	)
	for _, tt := range []struct{ name, url, config, want string }{
		{"nothing", "http://prometheus", "", ""},
		{"an URL in other cases", "HTTPS://prometheus", token, ""},
		{"a tenant in the clear", "http://prometheus", "http_headers: {X-Scope-OrgID: {values: [team]}}", ""},
		{"a proxy", "http://prometheus", "proxy_from_environment: true", ""},
		{"a token in the clear", "http://prometheus", token, inTheClear},
		{"an old token in the clear", "http://prometheus", "bearer_token_file: token", inTheClear},
		{"a password in the clear", "http://prometheus", "basic_auth: {username: a, password: b}", inTheClear},
		{"a secret header in the clear", "http://prometheus", "http_headers: {X-Key: {secrets: [a]}}", inTheClear},
		{"a header's file in the clear", "http://prometheus", "http_headers: {X-Key: {files: [a]}}", inTheClear},
		{"a CA for nothing", "http://prometheus", "tls_config: {ca_file: ca}", inTheClear},
		{"another server for a token", "https://prometheus", "oauth2: {client_id: a, client_secret: b, token_url: https://c}", "oauth2 is not supported"},
		{"an unknown field", "https://prometheus", "token: a", "yaml: unmarshal errors: line 1: field token not found"},
		{"a token and a password", "https://prometheus", token + "\nbasic_auth: {username: a}", "at most one of basic_auth"},
		{"a certificate without a key", "https://prometheus", "tls_config: {cert_file: cert}", "exactly one of key or key_file"},
		{"no CA file", "https://prometheus", "tls_config: {ca_file: /no/such/file}", "/no/such/file"},
		{"an empty CA file", "https://prometheus", "tls_config: {ca_file: empty}", "unable to use specified CA cert"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "empty"), "")
			_, err := asking(t, tt.url, dir, tt.config)
			if tt.want == "" && err == nil {
				return
			}
			if err == nil || tt.want == "" || !strings.HasPrefix(err.Error(), "-prometheus-config="+dir) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, err := prometheusClient(Config{PrometheusURL: "https://prometheus", PrometheusConfig: "/no/such/file"}); err == nil || !strings.HasPrefix(err.Error(), "-prometheus-config=/no/such/file: ") {
		t.Errorf("no file: %v", err)
	}
}
