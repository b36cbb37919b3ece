package agent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Config is what an operator can choose.
type Config struct {
	// NodeName is the name of the Node that the agent runs on.
	NodeName string
	// BootIDFile has a different content after each boot.
	BootIDFile string
	// SentinelFile requests a reboot by existing; empty for no such file.
	SentinelFile string
	// SentinelState, if not empty, is the file in which WatchSentinel says whether the
	// sentinel file exists, so that the agent itself needs no access to its directory.
	SentinelState string
	// LookEvery is how often these two are read.
	LookEvery time.Duration
	Limits    Limits
	// Drain evicts the node's Pods before the reboot.
	Drain bool
	// Force also evicts Pods that no controller will re-create.
	Force bool
	// DeleteEmptyDirData also evicts Pods with an emptyDir, whose content is lost.
	DeleteEmptyDirData bool
	// WatchSentinel makes the process only write SentinelState.
	WatchSentinel bool
}

// AddFlags adds the agent's flags and sets the defaults.
func AddFlags(flags *flag.FlagSet, c *Config) {
	flags.StringVar(&c.NodeName, "node-name", os.Getenv("NODE_NAME"), "The name of the Node that the agent runs on. Default: $NODE_NAME.")
	flags.StringVar(&c.BootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "A file whose content is different after each boot.")
	flags.StringVar(&c.SentinelFile, "sentinel-file", "/var/run/reboot-required", "Request a reboot while this file exists. If the reboot does not remove it, it requests no other until it is modified. Empty disables it.")
	flags.StringVar(&c.SentinelState, "sentinel-state", "", "The file in which another process, with -watch-sentinel, records whether -sentinel-file exists. If empty, the agent checks itself.")
	flags.BoolVar(&c.WatchSentinel, "watch-sentinel", false, "Only write to -sentinel-state whether -sentinel-file exists. This needs no privileges and no API server.")
	flags.DurationVar(&c.LookEvery, "look-every", time.Minute, "How often to check -sentinel-file or -sentinel-state, and -boot-id-file.")
	flags.DurationVar(&c.Limits.Drain, "drain-timeout", 15*time.Minute, "How long to drain the node before the agent uncordons it and gives up the reboot. Pods that are ending are waited for longer.")
	flags.DurationVar(&c.Limits.RetryAfter, "retry-after", time.Hour, "How long to wait after a drain that took too long, before the next attempt. It doubles with each in a row, up to a day.")
	flags.DurationVar(&c.Limits.Reboot, "reboot-timeout", 10*time.Minute, "How long to wait for the reboot command to end, and for the system to go down. After that, the reboot has failed.")
	flags.BoolVar(&c.Drain, "drain", true, "Evict the node's Pods before a reboot. If false, they end with the system. Use false in a cluster of one node, where evicted Pods cannot run elsewhere.")
	flags.BoolVar(&c.Force, "drain-force", false, "Also evict Pods that no controller will re-create.")
	flags.BoolVar(&c.DeleteEmptyDirData, "drain-delete-emptydir-data", true, "Also evict Pods with an emptyDir, whose content is lost.")
}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error {
	switch limits := c.Limits; {
	case c.WatchSentinel && (c.SentinelFile == "" || c.SentinelState == "" || c.LookEvery <= 0):
		return errors.New("-watch-sentinel needs -sentinel-file, -sentinel-state, and a positive -look-every")
	case c.WatchSentinel:
		return nil
	case len(validation.IsDNS1123Subdomain(c.NodeName)) > 0:
		return fmt.Errorf("-node-name or $NODE_NAME must name the node that the agent runs on, and is %q", c.NodeName)
	case c.LookEvery <= 0 || limits.Drain <= 0 || limits.Reboot <= 0 || limits.RetryAfter <= 0:
		return errors.New("-look-every, -drain-timeout, -reboot-timeout and -retry-after must be positive")
	case limits.RetryAfter > MaxRetryAfter:
		return fmt.Errorf("-retry-after must not be longer than %s", MaxRetryAfter)
	}
	return nil
}
