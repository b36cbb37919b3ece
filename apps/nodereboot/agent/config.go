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
	// LeaseNamespace is the namespace of the Lease by which the agent says that it runs.
	LeaseNamespace string
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
	// DryRun asks the API server whether each step would be allowed, logs it, and changes
	// nothing.
	DryRun bool
	// WatchSentinel makes the process only write SentinelState.
	WatchSentinel bool
}

// AddFlags adds the agent's flags and sets the defaults.
func AddFlags(flags *flag.FlagSet, c *Config) {
	flags.StringVar(&c.NodeName, "node-name", os.Getenv("NODE_NAME"), "The name of the Node that the agent runs on. Default: $NODE_NAME.")
	flags.StringVar(&c.LeaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "The namespace of the Lease by which the agent reports that it runs. Default: $POD_NAMESPACE.")
	flags.StringVar(&c.BootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "A file whose content is different after each boot.")
	flags.StringVar(&c.SentinelFile, "sentinel-file", "/var/run/reboot-required", "Request a reboot while this file exists. If it still exists after the reboot, request the next one after -retry-after. Empty disables it.")
	flags.StringVar(&c.SentinelState, "sentinel-state", "", "The file in which another process, with -watch-sentinel, records whether -sentinel-file exists. If empty, the agent checks itself.")
	flags.BoolVar(&c.WatchSentinel, "watch-sentinel", false, "Only write to -sentinel-state whether -sentinel-file exists. This needs no privileges and no API server.")
	flags.DurationVar(&c.LookEvery, "look-every", time.Minute, "How often to check -sentinel-file or -sentinel-state, and -boot-id-file.")
	flags.DurationVar(&c.Limits.Drain, "drain-timeout", 15*time.Minute, "How long to drain the node before the agent uncordons it and gives up the reboot.")
	flags.DurationVar(&c.Limits.RetryAfter, "retry-after", time.Hour, "When to request another reboot after one that was given up, or that did not remove the sentinel file.")
	flags.DurationVar(&c.Limits.Reboot, "reboot-timeout", 10*time.Minute, "How long to wait for the reboot command to end, and for the system to go down. After that, the reboot has failed.")
	flags.BoolVar(&c.Drain, "drain", true, "Evict the node's Pods before a reboot. If false, they end with the system. Use false in a cluster of one node, where evicted Pods cannot run elsewhere.")
	flags.BoolVar(&c.Force, "drain-force", false, "Also evict Pods that no controller will re-create.")
	flags.BoolVar(&c.DeleteEmptyDirData, "drain-delete-emptydir-data", true, "Also evict Pods with an emptyDir, whose content is lost.")
	flags.BoolVar(&c.DryRun, "dry-run", false, "Ask the API server whether it would allow each step, log the steps, and change nothing.")
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
	case len(validation.IsDNS1123Label(c.LeaseNamespace)) > 0:
		return fmt.Errorf("-lease-namespace or $POD_NAMESPACE must name the namespace of the agent's Lease, and is %q", c.LeaseNamespace)
	case c.LookEvery <= 0 || limits.Drain <= 0 || limits.Reboot <= 0 || limits.RetryAfter <= 0:
		return errors.New("-look-every, -drain-timeout, -reboot-timeout and -retry-after must be positive")
	}
	return nil
}
