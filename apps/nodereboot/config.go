package main

import (
	"errors"
	"flag"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Config is what an operator can choose.
type Config struct {
	// MaxUnavailable is how many nodes may be unavailable: a number, or a percentage of
	// all nodes. Zero grants nothing.
	MaxUnavailable intstr.IntOrString
	// Pools have budgets of their own, each in addition to all others that a node belongs
	// to.
	Pools []Pool
	// MinInterval is the shortest time between two grants.
	MinInterval time.Duration
	// Settle is how long a node still counts as unavailable after it has become available.
	Settle time.Duration
	// Windows are the times at which reboots may be granted, in the time zone Zone (UTC if
	// nil). Without any, they may always be.
	Windows []Window
	Zone    *time.Location
	// PrometheusURL is where to ask PrometheusQuery. While that has a result, nothing is
	// granted. Both are empty if Prometheus is not asked.
	PrometheusURL, PrometheusQuery string
	// PrometheusConfig is a file in Prometheus' http_config format, for the connection.
	PrometheusConfig string
	// BlockingPods are label selectors. A node on which such a Pod runs is granted nothing.
	BlockingPods []string
}

// addFlags adds the controller's flags and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	c.MaxUnavailable = intstr.FromInt32(1)
	flags.Func("max-unavailable", "How many nodes can be unavailable, counting rebooting ones: a number, or a percentage of all nodes, rounded down but at least 1. With 0, no reboot is granted. Of the control plane, one node at most. (default 1)", func(text string) (err error) {
		c.MaxUnavailable, err = ParseMaxUnavailable(text)
		return err
	})
	addRepeatable(flags, "pool", "Another limit, for the nodes of a pool. A reboot is granted only if both this and -max-unavailable have room. A label selector, '=', and a number or percentage, such as pool=db=1.", func(text string) error {
		pool, err := ParsePool(text)
		c.Pools = append(c.Pools, pool)
		return err
	})
	addRepeatable(flags, "window", "When nodereboot may let nodes reboot: days of the week, times, or both, such as 'Mon-Fri 22:00-04:00' or 'Sat,Sun'. Always if there is none.", func(text string) error {
		window, err := ParseWindow(text)
		c.Windows = append(c.Windows, window)
		return err
	})
	flags.Func("time-zone", "The time zone of -window, such as Europe/Berlin. (default UTC)", func(text string) (err error) {
		c.Zone, err = time.LoadLocation(text)
		return err
	})
	flags.StringVar(&c.PrometheusURL, "prometheus-url", "", "URL of the Prometheus that answers -prometheus-query. If it does not respond, nodes wait.")
	flags.StringVar(&c.PrometheusQuery, "prometheus-query", "", "PromQL. While it has a result, no reboot is granted, such as 'ALERTS{alertstate=\"firing\",severity=\"critical\"}'.")
	flags.StringVar(&c.PrometheusConfig, "prometheus-config", "", "File in the format of Prometheus' http_config (YAML), with the CA, credentials and headers for -prometheus-url. The files that it names are read again for each request. Redirects are never followed.")
	addRepeatable(flags, "blocking-pods", "A label selector of Pods, in all namespaces. A node on which such a Pod runs waits.", func(text string) error {
		selector, err := labels.Parse(text)
		if err == nil && selector.Empty() {
			err = errors.New("the selector is empty, which selects all Pods")
		}
		if err != nil {
			return err
		}
		c.BlockingPods = append(c.BlockingPods, text)
		return nil
	})
	flags.DurationVar(&c.MinInterval, "min-interval", 0, "Minimum time between two grants of reboots.")
	flags.DurationVar(&c.Settle, "settle", 5*time.Minute, "How long a node that is back after a reboot, or any node of the control plane that has become Ready, still counts as unavailable.")
}

// addRepeatable adds a flag that may be given more than once, or with several values.
func addRepeatable(flags *flag.FlagSet, name, usage string, add func(text string) error) {
	flags.Func(name, usage+" May be repeated; ';' separates several.", func(text string) error {
		for one := range strings.SplitSeq(text, ";") {
			if err := add(strings.TrimSpace(one)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error {
	if c.MinInterval < 0 || c.Settle < 0 {
		return errors.New("-min-interval and -settle must not be negative")
	}
	if (c.PrometheusURL == "") != (c.PrometheusQuery == "") {
		return errors.New("-prometheus-url and -prometheus-query must be set together")
	}
	if c.PrometheusConfig != "" && c.PrometheusURL == "" {
		return errors.New("-prometheus-config needs -prometheus-url")
	}
	u, err := url.Parse(c.PrometheusURL)
	if c.PrometheusURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return errors.New("-prometheus-url is not a URL without a user, such as https://prometheus.monitoring:9090")
	}
	return nil
}
