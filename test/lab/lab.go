package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// Patience is how long a test waits for what has to come about. It is far more
// than anything takes, so that a machine with other things to do fails no test.
const Patience = 4 * time.Minute

// Names in artifacts/rbac-icecream.yaml.
const (
	SystemNamespace = "k8s-controller-system"
	ServiceAccount  = "k8s-controller"
	// IcecreamRole is the ClusterRole with the rules of the Icecream controller.
	IcecreamRole = "k8s-controller-icecream"
)

// Kubernetes' own controllers allow themselves 20 requests a second by default.
// Here they are not what a test should have to wait for.
var unthrottled = []string{"--kube-api-qps=500", "--kube-api-burst=1000"}

// Options say what Lab to open.
type Options struct {
	// Binary is the controller to run; see BuildController.
	Binary string
	// Nodes is the number of nodes; 0 is the default of package cluster.
	Nodes int
	// AuditBodies has the audit log hold the bodies of requests and answers.
	AuditBodies bool
	// Bare leaves the cluster without the artifacts, for a test of installing them.
	Bare bool
	// Privileges, if there are any, learn what controllers did in the Lab when it
	// is closed.
	Privileges *Privileges
	// Log receives how the boot goes; nil discards it.
	Log io.Writer
}

// Lab is a cluster to test the controller on.
type Lab struct {
	*cluster.Cluster

	// Kube, Icecreams and Dynamic are clients of an administrator.
	Kube      kubernetes.Interface
	Icecreams versioned.Interface
	Dynamic   dynamic.Interface

	binary     string
	root       string // of the repository
	witness    *witness
	privileges *Privileges

	mu       sync.Mutex
	starts   []span // of the API server, when it was started again
	audit    cluster.AuditReader
	requests Requests // that it has read
}

// span is from when to when something lasted.
type span struct{ from, to time.Time }

// StartComponent starts a component again; see cluster.StartComponent.
func (l *Lab) StartComponent(ctx context.Context, component cluster.Component) error {
	from := time.Now()
	err := l.Cluster.StartComponent(ctx, component)
	if component == cluster.APIServer {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.starts = append(l.starts, span{from, time.Now()})
	}
	return err
}

// wasStarting is true of a time at which the API server did not know all roles yet.
func (l *Lab) wasStarting(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.starts, func(s span) bool { return !at.Before(s.from) && !at.After(s.to) })
}

// Open boots a Lab, which the caller has to Close.
func Open(ctx context.Context, o Options) (*Lab, error) {
	root, err := repository(ctx)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes:       o.Nodes,
		AuditUsers:  []string{cluster.AllUsers},
		AuditBodies: o.AuditBodies,
		ExtraArgs:   map[cluster.Component][]string{cluster.ControllerManager: unthrottled, cluster.Scheduler: unthrottled},
		Log:         o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the cluster: %w", err)
	}
	l := &Lab{Cluster: c, binary: o.Binary, root: root, privileges: o.Privileges, audit: cluster.AuditReader{Path: c.AuditLog()}}
	if err := l.furnish(ctx, o.Bare); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return l, nil
}

// New opens a Lab for one test, and closes it when the test ends. What the
// witness has found fails the test.
func New(t testing.TB, o Options) *Lab {
	t.Helper()
	l, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Close ends the cluster. Its error says what was wrong with the statuses that were
// written in it, and which policies of artifacts/ were in a controller's way.
func (l *Lab) Close() error {
	err := errors.Join(l.witness.verdict(), l.requireObedience())
	err = errors.Join(err, l.LearnPrivileges())
	if died := l.Err(); died != nil {
		err = errors.Join(err, fmt.Errorf("the cluster came to harm: %w", died))
	}
	return errors.Join(err, l.Stop())
}

// LearnPrivileges tells Options.Privileges what controllers did so far, for the last
// time. A test that takes roles away calls it before that; otherwise Close does.
func (l *Lab) LearnPrivileges() error {
	if l.privileges == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := l.privileges.read(ctx, l)
	l.privileges = nil
	return err
}

// furnish makes the clients, applies the artifacts and calls the witness.
func (l *Lab) furnish(ctx context.Context, isBare bool) (err error) {
	if l.Kube, err = kubernetes.NewForConfig(l.RESTConfig()); err != nil {
		return err
	}
	// Tests may look at Icecreams that do not fit their type.
	custom, err := lenient.RESTClientFor(l.RESTConfig(), schema.GroupVersion(v1alpha1.GroupVersion), scheme.Codecs)
	if err != nil {
		return err
	}
	l.Icecreams = versioned.New(custom)
	if l.Dynamic, err = dynamic.NewForConfig(l.RESTConfig()); err != nil {
		return err
	}
	l.witness = observe(l.Dynamic)
	if isBare {
		return nil
	}
	for _, artifact := range []string{"artifacts/examples/crd-icecream.yaml", "artifacts/rbac-icecream.yaml"} {
		if _, err := l.TryKubectl(ctx, "", "apply", "-f", l.Path(artifact)); err != nil {
			return err
		}
	}
	if _, err := l.TryKubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/icecreams.controller.nicoleh.io"); err != nil {
		return err
	}
	return l.awaitPolicy(ctx)
}

// Path is that of a file of the repository, named from its root.
func (l *Lab) Path(name string) string { return filepath.Join(l.root, name) }

// NewNamespace makes a namespace for the test, which is deleted when it ends.
func (l *Lab) NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	made, err := l.Kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: labelOf(t.Name()) + "-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	n := &Namespace{Name: made.Name, Lab: l}
	t.Cleanup(func() {
		for _, err := range l.witness.take(n.Name) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.Kube.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			t.Logf("deleting namespace %s: %v", n.Name, err)
		}
	})
	// Without its service account no Pod could be made.
	n.Eventually(t, "the namespace has its service account", func(ctx context.Context) error {
		_, err := l.Kube.CoreV1().ServiceAccounts(n.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return n
}

// labelOf makes the beginning of an object's name of a test's name.
func labelOf(test string) string {
	label := []byte{}
	for _, char := range []byte(test) {
		switch {
		case 'a' <= char && char <= 'z' || '0' <= char && char <= '9':
			label = append(label, char)
		case 'A' <= char && char <= 'Z':
			label = append(label, char-'A'+'a')
		default:
			label = append(label, '-')
		}
	}
	return string(label[:min(len(label), 40)])
}
