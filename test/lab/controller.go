package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stopTimeout is how long a controller may take to exit after SIGTERM.
const stopTimeout = 30 * time.Second

// alone is a default flag, because most tests run a single controller in their namespace.
// Without leader election, the controller keeps running even if the API server is
// unavailable for longer than a lease lasts.
const alone = "-leader-elect=false"

// agentPrefix is the prefix of every controller's user agent.
const agentPrefix = "controller-"

// Controller is the real binary, running as a process of its own under a service account
// of its own. Its methods, except Log, are not safe for concurrent use.
type Controller struct {
	// User is the user name of the controller's service account, as in the audit log.
	User string
	// Agent is the controller's user agent in the audit log, up to the slash. Every start
	// gets a new one.
	Agent string

	number int64
	starts int
	binary string
	args   []string
	log    string // the path of the log file; every start appends to it

	process *os.Process // nil while the controller is not running
	exited  chan error  // receives the result of the process, and is then closed
	logged  int         // the length of the log at the last start
}

// lastNumber is the number of the controller that was created last.
var lastNumber atomic.Int64

// StartController starts the program with the permissions of its manifests and stops it at
// the end of the test. The test fails if the controller does not stop cleanly on request,
// or if its log contains a data race or a panic.
func (l *Lab) StartController(t testing.TB, flags ...string) *Controller {
	t.Helper()
	c, err := l.NewController(t.Context(), l.program.Namespace, l.program.Account, flags...)
	if err != nil {
		t.Fatal(err)
	}
	c.StartForTest(t)
	return c
}

// StartController starts a controller that is restricted to the namespace. Its only
// permissions are those of a Role in the namespace, with the rules of the manifests. If a
// test starts several controllers in a namespace with -leader-elect, one of them leads.
// The controller stops at the end of the test; see [Lab.StartController].
func (n *Namespace) StartController(t testing.TB, flags ...string) *Controller {
	t.Helper()
	return n.start(t, func(kubeconfig string) string { return kubeconfig }, flags...)
}

// start starts a controller that is restricted to the namespace. edited returns the path of the kubeconfig to use in
// place of that of its account.
func (n *Namespace) start(t testing.TB, edited func(kubeconfig string) string, flags ...string) *Controller {
	t.Helper()
	if err := n.grant(t.Context()); err != nil {
		t.Fatalf("granting the controller its Role: %v", err)
	}
	account := n.Lab.program.Account
	kubeconfig, err := n.Lab.ServiceAccountKubeconfig(t.Context(), n.Name, account)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"-kubeconfig=" + edited(kubeconfig), "-namespace=" + n.Name, "-leader-elect-resource-namespace=" + n.Name}
	c := n.Lab.NewControllerWith(append(all, flags...)...)
	c.User = "system:serviceaccount:" + n.Name + ":" + account
	n.Controller = c
	c.StartForTest(t)
	return c
}

// NewController returns a controller that runs under the given service account. It does
// not start the controller.
func (l *Lab) NewController(ctx context.Context, namespace, account string, flags ...string) (*Controller, error) {
	kubeconfig, err := l.ServiceAccountKubeconfig(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	c := l.NewControllerWith(append([]string{"-kubeconfig=" + kubeconfig}, flags...)...)
	c.User = "system:serviceaccount:" + namespace + ":" + account
	return c, nil
}

// NewControllerWith returns a controller with the given flags. The controller has no
// kubeconfig unless a flag names one. NewControllerWith does not start the controller.
func (l *Lab) NewControllerWith(flags ...string) *Controller {
	return l.NewProgram(l.binary, append([]string{alone, "-bind-address="}, flags...)...)
}

// NewProgram returns another program that can be started and stopped like a controller,
// with exactly the given flags. It does not start the program.
func (l *Lab) NewProgram(binary string, flags ...string) *Controller {
	return NewProgram(l.Dir(), binary, flags...)
}

// NewProgram is [Lab.NewProgram] for a program that needs no cluster of its own, and has its
// log in dir.
func NewProgram(dir, binary string, flags ...string) *Controller {
	number := lastNumber.Add(1)
	return &Controller{number: number, binary: binary, args: flags, log: filepath.Join(dir, fmt.Sprintf("k8s-controller-%d.log", number))}
}

// Launch starts the process.
func (c *Controller) Launch() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process inherits a file descriptor of its own
	c.starts++
	c.logged = len(c.Log())
	c.Agent = fmt.Sprintf("%s%d-%d", agentPrefix, c.number, c.starts)
	command := exec.Command(c.binary, c.args...)
	command.Args[0] = c.Agent // client-go uses this name as the beginning of the user agent
	command.Stdout, command.Stderr = log, log
	if err := startChild(command); err != nil {
		return fmt.Errorf("starting the controller: %w", err)
	}
	exited := make(chan error, 1)
	go func() {
		exited <- command.Wait()
		close(exited)
	}()
	c.process, c.exited = command.Process, exited
	return nil
}

// Terminate sends SIGTERM and waits until the process has exited. It returns an error if
// the process did not exit cleanly, or if its log contains a data race or a panic.
func (c *Controller) Terminate() error {
	if c.process == nil {
		return nil
	}
	for end := time.Now().Add(stopTimeout); ; time.Sleep(pollEvery) {
		select {
		case err := <-c.exited:
			c.process = nil
			return errors.Join(fmt.Errorf("the controller exited by itself: %w", err), c.checkLog())
		default:
		}
		if c.handlesSignals() || time.Now().After(end) {
			break
		}
	}
	if err := c.process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("sending SIGTERM: %w", err)
	}
	select {
	case err := <-c.exited:
		c.process = nil
		if err != nil {
			err = fmt.Errorf("the controller exited uncleanly after SIGTERM: %w", err)
		}
		return errors.Join(err, c.checkLog())
	case <-time.After(stopTimeout):
		// SIGQUIT logs the stacks of all goroutines, which show what the process waits for.
		return errors.Join(fmt.Errorf("the controller did not exit within %s after SIGTERM", stopTimeout), c.kill(syscall.SIGQUIT), c.checkLog())
	}
}

// handlesSignals reports whether the process has logged that it is starting. Until then it
// has no signal handler, and SIGTERM would end it immediately.
func (c *Controller) handlesSignals() bool {
	return strings.Contains(c.LogSinceStart(), `"Starting"`)
}

// Start starts the controller, which must not be running.
func (c *Controller) Start(t testing.TB) {
	t.Helper()
	if c.process != nil {
		t.Fatal("the controller is already running")
	}
	if err := c.Launch(); err != nil {
		t.Fatal(err)
	}
}

// Stop sends SIGTERM and waits until the controller has exited. The test fails if the
// controller did not exit cleanly.
func (c *Controller) Stop(t testing.TB) {
	t.Helper()
	if err := c.Terminate(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the controller by SIGKILL, as a crash would.
func (c *Controller) Kill(t testing.TB) {
	t.Helper()
	if c.process == nil {
		t.Fatal("the controller is not running")
	}
	if err := c.kill(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Starts returns how many times the controller has been started.
func (c *Controller) Starts() int { return c.starts }

// PID returns the ID of the process, which must be running.
func (c *Controller) PID() int { return c.process.Pid }

// Fails waits until the controller has exited by itself with exit code 1, and returns the
// last line of its log that is more than information, which gives the reason. Workers that
// stop at the same time may still log that they have.
func (c *Controller) Fails(t testing.TB) string {
	t.Helper()
	select {
	case err := <-c.exited:
		c.process = nil
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Fatalf("the controller exited with %v, want exit code 1", err)
		}
	case <-time.After(Timeout):
		t.Fatalf("the controller did not exit within %s:\n%s", Timeout, Clip(lastLines(c.Log(), 50)))
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(c.Log()), "\n"), informational.MatchString)
	if len(lines) == 0 {
		t.Fatalf("the controller gave no reason:\n%s", Clip(lastLines(c.Log(), 50)))
	}
	return lines[len(lines)-1]
}

// informational matches a line of a log in text format.
var informational = regexp.MustCompile(`^I[0-9]{4} `)

// Address waits until the controller serves HTTPS, or plain HTTP if tls is false, and
// returns the address. If the controller was restarted, this is the latest address.
func (c *Controller) Address(t testing.TB, tls bool) string {
	t.Helper()
	for end := time.Now().Add(Timeout); time.Now().Before(end); time.Sleep(pollEvery) {
		if all := servingLine.FindAllStringSubmatch(c.Log(), -1); len(all) > 0 {
			for _, found := range slices.Backward(all) {
				if found[2] == strconv.FormatBool(tls) {
					return found[1]
				}
			}
		}
	}
	t.Fatalf("the controller has not logged the address that it serves on:\n%s", Clip(lastLines(c.Log(), 50)))
	return ""
}

// servingLine matches the line that the controller logs when it begins to serve.
var servingLine = regexp.MustCompile(`"Serving" address="([^"]+)" tls=(true|false)`)

// Log returns everything that the controller has logged since its first start.
func (c *Controller) Log() string {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// LogSinceStart returns what the controller has logged since its last start.
func (c *Controller) LogSinceStart() string {
	log := c.Log()
	return log[min(c.logged, len(log)):]
}

// Errors returns the lines of the log that report an error.
func (c *Controller) Errors() []string {
	var found []string
	for line := range strings.Lines(c.Log()) {
		if errorLine.MatchString(line) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// errorLine matches the header of an error in klog's text format.
var errorLine = regexp.MustCompile(`^[EF]\d{4} `)

// alarmingLine matches lines that must not occur in any log, whatever the test is about.
var alarmingLine = regexp.MustCompile(`DATA RACE|panic|^goroutine \d+ \[|fatal error: `)

// checkLog returns an error for each line of the log that reports a data race or a panic.
func (c *Controller) checkLog() error {
	var errs []error
	for line := range strings.Lines(c.Log()) {
		if alarmingLine.MatchString(line) {
			errs = append(errs, fmt.Errorf("the controller's log contains: %s", strings.TrimSpace(line)))
		}
	}
	return errors.Join(errs...)
}

// StartForTest starts the controller and stops it at the end of the test. The test fails if
// the controller does not stop cleanly on request, or if its log contains a data race or a
// panic.
func (c *Controller) StartForTest(t testing.TB) {
	t.Helper()
	c.Start(t)
	t.Cleanup(func() {
		if err := c.Terminate(); err != nil {
			t.Error(err)
		} else if err := c.checkLog(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", c.User, Clip(lastLines(c.Log(), 50)))
		}
	})
}

// kill sends a signal that ends the process, and waits until the process has exited.
func (c *Controller) kill(signal os.Signal) error {
	if err := c.process.Signal(signal); err != nil {
		return fmt.Errorf("sending signal %v: %w", signal, err)
	}
	<-c.exited
	c.process = nil
	return nil
}

// grant creates a service account in the namespace, and a Role that grants it the rules of
// the ClusterRole in the manifests.
func (n *Namespace) grant(ctx context.Context) error {
	system, name := n.Lab.program.Namespace, n.Lab.program.Account
	rules, err := n.Lab.Kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	lease, err := n.Lab.Kube.RbacV1().Roles(system).Get(ctx, name+"-leader-election", metav1.GetOptions{})
	if err != nil {
		return err
	}
	account, rbac, named := n.Lab.Kube.CoreV1().ServiceAccounts(n.Name), n.Lab.Kube.RbacV1(), metav1.ObjectMeta{Name: name}
	_, err = account.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier controller of the namespace needed it, too
	} else if err != nil {
		return err
	}
	if _, err := rbac.Roles(n.Name).Create(ctx, &rbacv1.Role{ObjectMeta: named, Rules: append(rules.Rules, lease.Rules...)}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = rbac.RoleBindings(n.Name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: n.Name, Name: name}},
	}, metav1.CreateOptions{})
	return err
}
