package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
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
	// AgentNamespace is the namespace of the agents' Leases.
	AgentNamespace string
	// Windows are the times at which reboots may be granted, in the time zone Zone (UTC if
	// nil). Without any, they may always be.
	Windows []Window
	Zone    *time.Location
	// PrometheusURL is where to ask for alerts. While an alert is firing whose name the
	// regular expression Alerts matches, nothing is granted.
	PrometheusURL, Alerts string
	// PrometheusCAFile has the authorities that vouch for that Prometheus, as PEM. If it is
	// empty, those of the system do.
	PrometheusCAFile string
	// PrometheusTokenFile has the bearer token for that Prometheus; empty for none.
	PrometheusTokenFile string
	// PrometheusUser and the password in PrometheusPasswordFile are basic credentials for
	// that Prometheus; the file is empty for none.
	PrometheusUser, PrometheusPasswordFile string
	// PrometheusCertFile and PrometheusKeyFile have a client certificate for that Prometheus
	// and its key; empty for none.
	PrometheusCertFile, PrometheusKeyFile string
	// PrometheusHeaders are sent to that Prometheus.
	PrometheusHeaders map[string]string
	// BlockingPods are label selectors. A node on which such a Pod runs is granted nothing.
	BlockingPods []string
}

// addFlags adds the controller's flags and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	c.MaxUnavailable = intstr.FromInt32(1)
	flags.Func("max-unavailable", "How many nodes may be unavailable, including those that are rebooting: a number, or a percentage of all nodes, rounded down but at least 1. 0 stops all reboots. Of the control plane, at most one node may be unavailable. (default 1)", func(text string) (err error) {
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
	flags.StringVar(&c.PrometheusURL, "prometheus-url", "", "URL of the Prometheus in which to look for -alerts before each reboot. If it does not respond, nodes wait.")
	flags.StringVar(&c.PrometheusCAFile, "prometheus-ca-file", "", "File with the CA certificates (PEM) that verify Prometheus. It is read again when it changes. Default: the system's.")
	flags.StringVar(&c.PrometheusTokenFile, "prometheus-token-file", "", "File with the bearer token for Prometheus. It is read again when it changes.")
	flags.StringVar(&c.PrometheusUser, "prometheus-user", "", "User name for basic authentication at Prometheus. It requires -prometheus-password-file.")
	flags.StringVar(&c.PrometheusPasswordFile, "prometheus-password-file", "", "File with the password of -prometheus-user. It is read again for each request.")
	flags.StringVar(&c.PrometheusCertFile, "prometheus-cert-file", "", "File with the client certificate (PEM) for Prometheus. It is read again when it changes.")
	flags.StringVar(&c.PrometheusKeyFile, "prometheus-key-file", "", "File with the private key (PEM) of -prometheus-cert-file.")
	addRepeatable(flags, "prometheus-header", "Header to send to Prometheus, such as 'X-Scope-OrgID: team' for Mimir or Cortex.", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t") {
			return fmt.Errorf("%q is not a header, such as 'X-Scope-OrgID: team'", text)
		}
		if c.PrometheusHeaders == nil {
			c.PrometheusHeaders = map[string]string{}
		}
		c.PrometheusHeaders[name] = strings.TrimSpace(value)
		return nil
	})
	flags.StringVar(&c.Alerts, "alerts", "", "Regular expression, anchored. No reboot is granted while an alert whose name matches is firing.")
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
	flags.StringVar(&c.AgentNamespace, "agent-namespace", "nodereboot-agent", "The namespace of nodereboot's agents. A node may reboot only if its agent has renewed its Lease there within the last two minutes.")
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
	if (c.PrometheusURL == "") != (c.Alerts == "") {
		return errors.New("-prometheus-url and -alerts must be set together")
	}
	if (c.PrometheusUser == "") != (c.PrometheusPasswordFile == "") {
		return errors.New("-prometheus-user and -prometheus-password-file must be set together")
	}
	if (c.PrometheusCertFile == "") != (c.PrometheusKeyFile == "") {
		return errors.New("-prometheus-cert-file and -prometheus-key-file must be set together")
	}
	if c.PrometheusTokenFile != "" && c.PrometheusPasswordFile != "" {
		return errors.New("-prometheus-token-file and -prometheus-password-file must not be set together")
	}
	for name, file := range map[string]string{"ca": c.PrometheusCAFile, "token": c.PrometheusTokenFile, "password": c.PrometheusPasswordFile, "cert": c.PrometheusCertFile} {
		if file != "" && !strings.HasPrefix(strings.ToLower(c.PrometheusURL), "https://") {
			return fmt.Errorf("-prometheus-%s-file needs a -prometheus-url that begins with https://", name)
		}
	}
	if len(c.PrometheusHeaders) > 0 && c.PrometheusURL == "" {
		return errors.New("-prometheus-header needs -prometheus-url")
	}
	if _, err := regexp.Compile(c.Alerts); err != nil {
		return fmt.Errorf("-alerts: %w", err)
	}
	if len(validation.IsDNS1123Label(c.AgentNamespace)) > 0 {
		return fmt.Errorf("-agent-namespace=%q is not the name of a namespace", c.AgentNamespace)
	}
	return nil
}
