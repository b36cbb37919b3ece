package nodereboot

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// addFlags adds the controller's flags, and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	c.MaxUnavailable = intstr.FromInt32(1)
	flags.Func("nodereboot-max-unavailable", "How many nodes may be unavailable for nodereboot to let another one reboot, or which percentage of all: rounded down, but 1 at least. 0 lets none. Of the control plane it is never more than one. (default 1)", func(text string) (err error) {
		c.MaxUnavailable, err = ParseMaxUnavailable(text)
		return err
	})
	several(flags, "nodereboot-pool", "How many nodes of a pool may be unavailable, in addition to -nodereboot-max-unavailable: a label selector, '=', and a number or percentage, such as pool=db=1.", func(text string) error {
		pool, err := ParsePool(text)
		c.Pools = append(c.Pools, pool)
		return err
	})
	several(flags, "nodereboot-window", "When nodereboot may let nodes reboot: days of the week, and times, such as 'Mon-Fri 22:00-04:00' or 'Sat,Sun'. Always if there is none.", func(text string) error {
		window, err := ParseWindow(text)
		c.Windows = append(c.Windows, window)
		return err
	})
	flags.Func("nodereboot-time-zone", "The time zone of -nodereboot-window, such as Europe/Berlin. (default UTC)", func(text string) (err error) {
		c.Zone, err = time.LoadLocation(text)
		return err
	})
	flags.StringVar(&c.PrometheusURL, "nodereboot-prometheus-url", "", "Where to ask Prometheus, before nodereboot lets a node reboot, whether alerts fire that hold it back. If it does not answer, nodes wait.")
	flags.StringVar(&c.Alerts, "nodereboot-alerts", "", "The names of these alerts: a regular expression that matches all of a name.")
	several(flags, "nodereboot-blocking-pods", "A label selector of Pods, in all namespaces. A node on which one of them runs is not rebooted.", func(text string) error {
		selector, err := labels.Parse(text)
		if err == nil && selector.Empty() {
			err = errors.New("it selects all Pods")
		}
		if err != nil {
			return err
		}
		c.BlockingPods = append(c.BlockingPods, text)
		return nil
	})
	flags.StringVar(&c.AgentNamespace, "nodereboot-agent-namespace", "k8s-controller-reboot-agent", "The namespace of nodereboot's agents. Only to a node whose agent has reported there, by a Lease, within the last two minutes, a reboot is granted.")
	flags.DurationVar(&c.MinInterval, "nodereboot-min-interval", 0, "The least time between two nodes that nodereboot lets reboot.")
	flags.DurationVar(&c.ControlPlaneSettle, "nodereboot-control-plane-settle", 5*time.Minute, "For how long a node of the control plane that has become Ready still counts as unavailable.")
}

// several adds a flag that may be given more than once, or with several values.
func several(flags *flag.FlagSet, name, usage string, add func(text string) error) {
	flags.Func(name, usage+" May be repeated; ';' separates several.", func(text string) error {
		for one := range strings.SplitSeq(text, ";") {
			if err := add(strings.TrimSpace(one)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Validate returns what is wrong with it.
func (c Config) Validate() error {
	if c.MinInterval < 0 || c.ControlPlaneSettle < 0 {
		return errors.New("-nodereboot-min-interval and -nodereboot-control-plane-settle must not be negative")
	}
	if (c.PrometheusURL == "") != (c.Alerts == "") {
		return errors.New("-nodereboot-prometheus-url and -nodereboot-alerts take each other")
	}
	if _, err := regexp.Compile(c.Alerts); err != nil {
		return fmt.Errorf("-nodereboot-alerts: %w", err)
	}
	if c.AgentNamespace == "" {
		return errors.New("-nodereboot-agent-namespace has to name a namespace")
	}
	return nil
}
