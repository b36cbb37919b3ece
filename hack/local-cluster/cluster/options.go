package cluster

import (
	"fmt"
	"io"
	"slices"
)

// Component names one process of a cluster.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok" // the kubelets
)

// Components returns every component in the order in which they start.
func Components() []Component {
	return []Component{Etcd, APIServer, ControllerManager, Scheduler, Kwok}
}

// AllUsers among [Options.AuditUsers] stands for everybody.
const AllUsers = "*"

// DefaultNodes is the number of nodes of a cluster that asks for none.
const DefaultNodes = 3

// Options say what cluster to start. The zero value is a good one.
type Options struct {
	// Dir holds everything the cluster writes. It is kept, and a later cluster
	// of the same Dir carries on with the same objects and certificates. If
	// empty, a fresh directory is made, which Stop removes.
	Dir string
	// Nodes is the number of nodes, named node-1, node-2, ...; 0 stands for
	// DefaultNodes, a negative number for none.
	Nodes int
	// FeatureGates is given to every Kubernetes component, e.g. "A=true,B=false".
	FeatureGates string
	// WithoutControllerManager starts no controllers: Deployments stay without
	// Pods and namespaces without service accounts, until StartComponent.
	WithoutControllerManager bool
	// AuditUsers are the names of the users whose requests are recorded.
	AuditUsers []string
	// AuditBodies records the bodies of requests and responses too.
	AuditBodies bool
	// ExtraArgs are appended to the arguments of a component.
	ExtraArgs map[Component][]string
	// SchedulerConfig has fields of the scheduler's configuration, as YAML: those of
	// KubeSchedulerConfiguration in kubescheduler.config.k8s.io/v1.
	SchedulerConfig string
	// Log receives a line per step of the boot, and the progress of a build of
	// the parts. Nil discards it.
	Log io.Writer
}

func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	switch {
	case o.Nodes == 0:
		o.Nodes = DefaultNodes
	case o.Nodes < 0:
		o.Nodes = 0
	}
	for component := range o.ExtraArgs {
		if !slices.Contains(Components(), component) {
			return o, fmt.Errorf("extra arguments for %q, which is no component", component)
		}
	}
	return o, nil
}
