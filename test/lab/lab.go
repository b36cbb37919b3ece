package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// Timeout is how long a test waits for a condition before it fails. It is much longer
// than necessary, so that no test fails because the machine is busy.
const Timeout = 4 * time.Minute

// Options configure a Lab.
type Options struct {
	// Program is the program to test. The zero value means Icecream.
	Program Program
	// Binary is the path of the program's binary; see [Build].
	Binary string
	// Nodes is the number of nodes. Zero means the default of package cluster.
	Nodes int
	// Bare skips the installation of the manifests, for tests that install them.
	Bare bool

	// privileges, if not nil, records which permissions of the accounts were used in the Lab,
	// when the Lab is closed.
	privileges *privileges
	accounts   []string
}

// Lab is a cluster to test a program on.
type Lab struct {
	*cluster.Cluster

	// Kube, Icecreams and Dynamic are clients with an administrator's permissions.
	Kube      kubernetes.Interface
	Icecreams versioned.Interface
	Dynamic   dynamic.Interface

	program    Program
	binary     string
	root       string            // the root directory of the repository
	invariants *invariantChecker // nil without Icecreams
	privileges *privileges
	accounts   []string

	mu          sync.Mutex
	audit       cluster.AuditReader
	requests    Requests // everything that audit has read so far
	mayBeDenied sync.Map // the namespaces in which a policy may deny what a controller requests

	hasRestarted atomic.Bool // whether the API server has, which knows no roles at first
}

// StartComponent restarts a component; see [cluster.Cluster.StartComponent].
func (l *Lab) StartComponent(ctx context.Context, component cluster.Component) error {
	l.hasRestarted.Store(l.hasRestarted.Load() || component == cluster.APIServer)
	return l.Cluster.StartComponent(ctx, component)
}

// Open starts a Lab. The caller must Close it.
func Open(ctx context.Context, o Options) (*Lab, error) {
	if o.Program.Main == "" {
		o.Program = Icecream
	}
	root, err := repository()
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: o.Nodes, Audit: true})
	if err != nil {
		return nil, fmt.Errorf("starting the cluster: %w", err)
	}
	l := &Lab{
		Cluster:    c,
		program:    o.Program,
		binary:     o.Binary,
		root:       root,
		privileges: o.privileges,
		accounts:   o.accounts,
		audit:      cluster.AuditReader{Path: c.AuditLog()},
	}
	if err := l.setUp(ctx, o.Bare); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return l, nil
}

// New opens a Lab for one test and closes it at the end of the test. The test fails if
// Close returns an error.
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

// Close stops the cluster. It returns an error for each wrong status that was written in
// the cluster, and for each request of a controller that a policy of its manifests denied.
func (l *Lab) Close() error {
	err := errors.Join(l.checkDenials(), l.LearnPrivileges())
	if l.invariants != nil {
		err = errors.Join(err, l.invariants.stop())
	}
	if died := l.Err(); died != nil {
		err = errors.Join(err, fmt.Errorf("a component of the cluster exited: %w", died))
	}
	return errors.Join(err, l.Stop())
}

// LearnPrivileges records for the [Suite] which permissions have been used so far. Only the
// first call has an effect. A test that deletes roles must call it before it does so; otherwise
// Close calls it.
func (l *Lab) LearnPrivileges() (err error) {
	if l.privileges == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	for _, account := range l.accounts {
		err = errors.Join(err, l.privileges.read(ctx, l, account))
	}
	l.privileges = nil
	return err
}

// setUp creates the clients, installs the program's manifests unless the Lab is bare, and starts
// the invariant checker if there will be Icecreams.
func (l *Lab) setUp(ctx context.Context, isBare bool) (err error) {
	if l.Kube, err = kubernetes.NewForConfig(l.RESTConfig()); err != nil {
		return err
	}
	// Some tests read Icecreams that cannot be decoded completely.
	if l.Icecreams, err = lenient.ClientsetFor(l.RESTConfig(), schema.GroupVersion(v1alpha1.GroupVersion), scheme.Scheme, versioned.New); err != nil {
		return err
	}
	if l.Dynamic, err = dynamic.NewForConfig(l.RESTConfig()); err != nil {
		return err
	}
	if !isBare {
		if err := l.install(ctx); err != nil {
			return err
		}
	}
	if l.program.hasIcecreams() {
		l.invariants, err = startInvariantChecker(l.Dynamic)
	}
	return err
}

// install installs the program's manifests, and waits until they are in force.
func (l *Lab) install(ctx context.Context) error {
	if l.program.hasIcecreams() {
		if err := InstallCRD(l.Cluster); err != nil {
			return err
		}
	}
	for _, manifest := range l.program.Manifests {
		if _, err := l.TryKubectl(ctx, "", "apply", "-f", l.Path(manifest)); err != nil {
			return err
		}
	}
	return l.waitForPolicies(ctx)
}

// InstallCRD installs the CustomResourceDefinition of Icecreams in a cluster, and waits until
// they are served.
func InstallCRD(c *cluster.Cluster) error {
	root, err := repository()
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(c.RESTConfig(), envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(root, "artifacts", "examples", "crd-icecream.yaml")},
		ErrorIfPathMissing: true,
		MaxTime:            Timeout,
	})
	return err
}

// Path returns the path of a file of the repository. name is relative to the root of the
// repository.
func (l *Lab) Path(name string) string { return filepath.Join(l.root, name) }

// NewNamespace creates a namespace for the test and deletes it at the end of the test. The
// test fails if a status in the namespace has violated an invariant.
func (l *Lab) NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	made, err := l.Kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: labelOf(t.Name()) + "-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	n := &Namespace{Name: made.Name, Lab: l}
	t.Cleanup(func() {
		if l.invariants != nil {
			for _, err := range l.invariants.takeViolations(n.Name) {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.Kube.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			t.Logf("deleting namespace %s: %v", n.Name, err)
		}
	})
	// Pods cannot be created before the namespace has its default service account.
	n.Eventually(t, "the namespace has its service account", func(ctx context.Context) error {
		_, err := l.Kube.CoreV1().ServiceAccounts(n.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return n
}

// labelOf derives the beginning of an object's name from the name of a test.
func labelOf(test string) string {
	label := notInLabels.ReplaceAllString(strings.ToLower(test), "-")
	return label[:min(len(label), 40)]
}

var notInLabels = regexp.MustCompile(`[^a-z0-9]`)
