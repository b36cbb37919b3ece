package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"nicoleh.io/k8s-controller/internal/text"
)

const (
	// holdPeriod is how long what holds reboots back is not asked for again.
	holdPeriod = time.Minute
	// maxError is how much of an error a note has, in bytes.
	maxError = 512
	// prometheusTimeout is how long Prometheus may take to answer.
	prometheusTimeout = 10 * time.Second
)

// Hold is what holds reboots back and is neither on a Node nor in the flags.
type Hold struct {
	Until time.Time // after which the answer is no longer used
	// Reason and Note say why no node may reboot; empty if nothing speaks against it.
	Reason, Note string
	// Pods has the Pods that must not be disturbed, by the name of their node.
	Pods map[string]string
}

// holds reports whether any node waits because of that.
func (h Hold) holds() bool { return h.Reason != "" || len(h.Pods) > 0 }

// prometheusClient returns a client of Prometheus. The files with its authorities and with
// the token are read again when they change, the first within five minutes and the second
// within one. So are those with the client's certificate and its key, and the password.
func prometheusClient(c Config) (api.Client, error) {
	if c.PrometheusCAFile != "" {
		if _, err := cert.NewPool(c.PrometheusCAFile); err != nil { // the transport takes an empty file for none
			return nil, err
		}
	}
	transport, err := rest.TransportFor(&rest.Config{
		Host: c.PrometheusURL,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   c.PrometheusCAFile,
			CertFile: c.PrometheusCertFile,
			KeyFile:  c.PrometheusKeyFile,
		},
		BearerTokenFile: c.PrometheusTokenFile,
		WrapTransport:   func(base http.RoundTripper) http.RoundTripper { return prometheusTransport{base, c} },
	})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	if c.PrometheusTokenFile != "" || c.PrometheusPasswordFile != "" || len(c.PrometheusHeaders) > 0 {
		// The transport would send the credentials to wherever the redirection leads.
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return api.NewClient(api.Config{Address: c.PrometheusURL, Client: client})
}

// prometheusTransport adds headers, and a user with the password that the file has now.
type prometheusTransport struct {
	http.RoundTripper
	Config
}

// RoundTrip implements http.RoundTripper.
func (p prometheusTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range p.PrometheusHeaders {
		r.Header.Set(name, value)
	}
	if p.PrometheusPasswordFile != "" {
		password, err := os.ReadFile(p.PrometheusPasswordFile)
		if err != nil {
			return nil, fmt.Errorf("reading the password: %w", err)
		}
		r.SetBasicAuth(p.PrometheusUser, strings.TrimSpace(string(password)))
	}
	return p.RoundTripper.RoundTrip(r)
}

// firingAlerts returns a function that asks Prometheus which alerts are firing whose whole
// name matches the regular expression.
func firingAlerts(c Config, client api.Client) func(context.Context) ([]string, error) {
	query := fmt.Sprintf("ALERTS{alertstate=\"firing\",alertname=~%q}", c.Alerts)
	return func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, prometheusTimeout)
		defer cancel()
		answer, warnings, err := prometheus.NewAPI(client).Query(ctx, query, time.Time{}) // by the clock of Prometheus
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			return nil, fmt.Errorf("%w: it is not among %s", err, cmp.Or(c.PrometheusCAFile, "those of the system, and -prometheus-ca-file names no others"))
		}
		if err != nil {
			return nil, err
		}
		if len(warnings) > 0 { // such as that a part of the data was not there
			return nil, fmt.Errorf("the response has warnings: %s", strings.Join(warnings, "; "))
		}
		series, ok := answer.(model.Vector)
		if !ok {
			return nil, fmt.Errorf("the response is a %s, not a vector", answer.Type())
		}
		var alerts []string
		for _, s := range series {
			alerts = append(alerts, string(s.Metric[model.AlertNameLabel]))
		}
		slices.Sort(alerts)
		return slices.Compact(alerts), nil
	}
}

// alertRules returns a function that asks Prometheus for which alerts it has rules whose whole
// name matches the regular expression.
func alertRules(c Config, client api.Client) func(context.Context) ([]string, error) {
	name := regexp.MustCompile("^(?:" + c.Alerts + ")$") // it was validated
	return func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, prometheusTimeout)
		defer cancel()
		answer, err := prometheus.NewAPI(client).Rules(ctx, nil)
		if err != nil {
			return nil, err
		}
		var alerts []string
		for _, group := range answer.Groups {
			for _, rule := range group.Rules {
				if alert, isAlert := rule.(prometheus.AlertingRule); isAlert && name.MatchString(alert.Name) {
					alerts = append(alerts, alert.Name)
				}
			}
		}
		slices.Sort(alerts)
		return slices.Compact(alerts), nil
	}
}

// blockingPods returns, by node, one running Pod that must not be disturbed, as
// namespace/name.
func (c *Controller) blockingPods(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, selector := range c.config.BlockingPods {
		list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return c.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		}
		running := metav1.ListOptions{LabelSelector: selector, FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
		err := eachOf(ctx, list, running, func(pod *corev1.Pod) { found[pod.Spec.NodeName] = pod.Namespace + "/" + pod.Name })
		if err != nil {
			return nil, fmt.Errorf("listing Pods with %s: %w", selector, err)
		}
	}
	return found, nil
}

// askHold finds out what holds reboots back now, if anything can. If Prometheus or the API
// server does not answer, all nodes wait.
func (c *Controller) askHold(ctx context.Context) Hold {
	var hold Hold
	if c.firingAlerts != nil {
		switch alerts, err := c.firingAlerts(ctx); {
		case err != nil:
			hold.Reason, hold.Note = AlertsUnknown, "Prometheus does not say whether alerts are firing: "+text.Clip(err.Error(), maxError)
		case len(alerts) > 0:
			hold.Reason, hold.Note = AlertFires, "these alerts are firing: "+strings.Join(alerts[:min(len(alerts), maxListed)], ", ")
		}
	}
	if len(c.config.BlockingPods) > 0 && hold.Reason == "" {
		var err error
		if hold.Pods, err = c.blockingPods(ctx); err != nil {
			hold.Reason, hold.Note = PodsUnknown, "it is not known which Pods run: "+text.Clip(err.Error(), maxError)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	hold.Until = time.Now().Add(holdPeriod)
	c.hold = hold
	return hold
}
