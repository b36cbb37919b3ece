package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/internal/text"
)

const (
	// holdPeriod is how long an answer about what holds reboots back is used.
	holdPeriod = time.Minute
	// maxError limits an error, or results, in a note, in bytes.
	maxError = 512
	// prometheusTimeout is how long Prometheus may take to answer.
	prometheusTimeout = 10 * time.Second
)

// Hold is what holds reboots back and is neither on a Node nor in the flags.
type Hold struct {
	Until time.Time // after which the answer is no longer used
	// Reason and Note say why no node may reboot; empty if nothing holds all nodes back.
	Reason, Note string
	// Pods contains one Pod that must not be disturbed for each node that has any, by the node's name.
	Pods map[string]string
}

// holds reports whether any node waits because of h.
func (h Hold) holds() bool { return h.Reason != "" || len(h.Pods) > 0 }

// prometheusClient returns a client of Prometheus. -prometheus-config is read now, and the
// files that it names again for each request. The client follows no redirects, because it would
// send the credentials along.
func prometheusClient(c Config) (api.Client, error) {
	options := promconfig.DefaultHTTPClientConfig
	if c.PrometheusConfig != "" {
		loaded, _, err := promconfig.LoadHTTPConfigFile(c.PrometheusConfig)
		if err != nil {
			return nil, configError(c, err)
		}
		options = *loaded
	}
	if options.OAuth2 != nil {
		return nil, configError(c, errors.New("oauth2 is not supported: the library follows redirects of token_url, and waits for it without end"))
	}
	if hasCredentials(options) && !strings.HasPrefix(strings.ToLower(c.PrometheusURL), "https://") {
		return nil, configError(c, errors.New("credentials, secret headers and tls_config need a -prometheus-url that begins with https://"))
	}
	options.FollowRedirects = false
	client, err := promconfig.NewClientFromConfig(options, Name)
	if err != nil {
		return nil, configError(c, err)
	}
	return api.NewClient(api.Config{Address: c.PrometheusURL, Client: client})
}

// configError returns an error of one line about -prometheus-config.
func configError(c Config, err error) error {
	return fmt.Errorf("-prometheus-config=%s: %s", c.PrometheusConfig, strings.Join(strings.Fields(err.Error()), " "))
}

// hasCredentials reports whether these options need TLS to authenticate the server. Over
// plain HTTP, a proxy and the values of headers are allowed: Mimir's X-Scope-OrgID is no secret.
func hasCredentials(c promconfig.HTTPClientConfig) bool {
	if c.HTTPHeaders != nil {
		for _, header := range c.HTTPHeaders.Headers {
			if len(header.Secrets)+len(header.Files) > 0 {
				return true
			}
		}
	}
	return c.BasicAuth != nil || c.Authorization != nil || c.TLSConfig != promconfig.TLSConfig{}
}

// firingAlerts returns a function that asks Prometheus for the results of -prometheus-query:
// the names of alerts, or series without such a name in PromQL's notation.
func firingAlerts(c Config, client api.Client) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, prometheusTimeout)
		defer cancel()
		answer, warnings, err := prometheus.NewAPI(client).Query(ctx, c.PrometheusQuery, time.Time{}) // by the clock of Prometheus
		if err != nil {
			return nil, err
		}
		if len(warnings) > 0 { // such as that a part of the data was not there
			return nil, fmt.Errorf("the response has warnings: %s", strings.Join(warnings, "; "))
		}
		series, ok := answer.(model.Vector)
		if !ok {
			return nil, fmt.Errorf("the result is a %s, not a vector", answer.Type())
		}
		var alerts []string
		for _, s := range series {
			alerts = append(alerts, cmp.Or(string(s.Metric[model.AlertNameLabel]), s.Metric.String()))
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
			hold.Reason, hold.Note = AlertsUnknown, "-prometheus-query failed: "+text.Clip(err.Error(), maxError)
		case len(alerts) > 0:
			hold.Reason, hold.Note = AlertFires, "-prometheus-query returns "+text.Clip(strings.Join(alerts[:min(len(alerts), maxListed)], ", "), maxError)
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
