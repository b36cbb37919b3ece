package nodereboot

import (
	"errors"
	"flag"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// AddFlags adds the controller's flags, and sets the defaults.
func (c *Config) AddFlags(flags *flag.FlagSet) {
	c.MaxUnavailable = intstr.FromInt32(1)
	flags.Func("nodereboot-max-unavailable", "How many nodes may be unavailable for nodereboot to let another one reboot, or which percentage of all: rounded down, but 1 at least. 0 lets none. Of the control plane it is never more than one. (default 1)", func(text string) (err error) {
		c.MaxUnavailable, err = ParseMaxUnavailable(text)
		return err
	})
	flags.Func("nodereboot-pool", "How many nodes of a pool may be unavailable, in addition to -nodereboot-max-unavailable: a label selector, '=', and a number or percentage, such as pool=db=1. May be repeated; ';' separates several.", func(text string) error {
		for one := range strings.SplitSeq(text, ";") {
			pool, err := ParsePool(one)
			if err != nil {
				return err
			}
			c.Pools = append(c.Pools, pool)
		}
		return nil
	})
	flags.StringVar(&c.AgentNamespace, "nodereboot-agent-namespace", "icecream-reboot-agent", "The namespace of nodereboot's agents. Only to a node whose agent has reported there, by a Lease, within the last two minutes, a reboot is granted.")
	flags.DurationVar(&c.MinInterval, "nodereboot-min-interval", 0, "The least time between two nodes that nodereboot lets reboot.")
	flags.DurationVar(&c.ControlPlaneSettle, "nodereboot-control-plane-settle", 5*time.Minute, "For how long a node of the control plane that has become Ready still counts as unavailable.")
}

// Validate returns what is wrong with it.
func (c Config) Validate() error {
	if c.MinInterval < 0 || c.ControlPlaneSettle < 0 {
		return errors.New("-nodereboot-min-interval and -nodereboot-control-plane-settle must not be negative")
	}
	if c.AgentNamespace == "" {
		return errors.New("-nodereboot-agent-namespace has to name a namespace")
	}
	return nil
}
