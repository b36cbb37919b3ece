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

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// stopsWithin is how long a controller may take to end after SIGTERM.
const stopsWithin = 30 * time.Second

// alone is for the many tests whose controller is the only one in its namespace.
// It goes on, then, when the API server is away for longer than a lease.
const alone = "-leader-elect=false"

// agentPrefix is what the user agents of all controllers begin with.
const agentPrefix = "controller-"

// Controller is the real binary, run as a process of its own under a service
// account of its own. Its methods are for one goroutine at a time, except Log.
type Controller struct {
	// User is who it is to the API server, as the audit log names it.
	User string
	// Agent is the beginning of its user agent there, up to the slash. It is
	// another one after every start.
	Agent string

	number int64
	starts int
	binary string
	args   []string
	log    string // path, written on by every start

	process *os.Process // nil while it is not running
	exited  chan error  // closed with the process, after what became of it
	logged  int         // the length of the log when it was started
}

var controllers atomic.Int64

// StartController starts a controller with the rights of artifacts/ and ends it
// with the test, which then fails if the controller did not stop cleanly when
// told to or its log holds a race or a panic.
func (l *Lab) StartController(t testing.TB, flags ...string) *Controller {
	t.Helper()
	c, err := l.NewController(t.Context(), SystemNamespace, ServiceAccount, flags...)
	if err != nil {
		t.Fatal(err)
	}
	c.Attend(t)
	return c
}

// StartController starts a controller that is restricted to the namespace and has
// no more rights than a Role in it gives, with the rules of artifacts/. Of those
// that are started in one namespace with -leader-elect, one leads. It ends with the
// test like one of the Lab.
func (n *Namespace) StartController(t testing.TB, flags ...string) *Controller {
	t.Helper()
	if err := n.grant(t.Context()); err != nil {
		t.Fatalf("granting the controller its Role: %v", err)
	}
	c, err := n.Lab.NewController(t.Context(), n.Name, ServiceAccount, append([]string{"-namespace=" + n.Name}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	n.Controller = c
	c.Attend(t)
	return c
}

// NewController makes a controller of that service account, and does not start it.
func (l *Lab) NewController(ctx context.Context, namespace, account string, flags ...string) (*Controller, error) {
	kubeconfig, err := l.ServiceAccountKubeconfig(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	c := l.NewControllerWith(append([]string{"-kubeconfig=" + kubeconfig}, flags...)...)
	c.User = "system:serviceaccount:" + namespace + ":" + account
	return c, nil
}

// NewControllerWith makes a controller with nothing but those flags, and does not
// start it.
func (l *Lab) NewControllerWith(flags ...string) *Controller {
	number := controllers.Add(1)
	return &Controller{
		number: number,
		binary: l.binary,
		args:   append([]string{alone, "-bind-address="}, flags...),
		log:    filepath.Join(l.Dir(), fmt.Sprintf("k8s-controller-%d.log", number)),
	}
}

// NewProgram makes another program that is started and stopped as a controller is,
// with nothing but those flags, and does not start it.
func (l *Lab) NewProgram(binary string, flags ...string) *Controller {
	c := l.NewControllerWith()
	c.binary, c.args = binary, flags
	return c
}

// Launch starts the process.
func (c *Controller) Launch() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own handle
	c.starts++
	c.logged = len(c.Log())
	c.Agent = fmt.Sprintf("%s%d-%d", agentPrefix, c.number, c.starts)
	command := exec.Command(c.binary, c.args...)
	command.Args[0] = c.Agent // client-go's user agent begins with it
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

// Terminate sends SIGTERM and returns when the process has ended. Its error says
// what was unclean about that, and about what the process has logged in its life.
func (c *Controller) Terminate() error {
	if c.process == nil {
		return nil
	}
	for end := time.Now().Add(stopsWithin); ; time.Sleep(pollEvery) {
		select {
		case err := <-c.exited:
			c.process = nil
			return errors.Join(fmt.Errorf("the controller ended by itself: %w", err), c.complaints())
		default:
		}
		if c.takesSignals() || time.Now().After(end) {
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
			err = fmt.Errorf("the controller was told to stop and ended with: %w", err)
		}
		return errors.Join(err, c.complaints())
	case <-time.After(stopsWithin):
		// Its stacks say what it waits for.
		return errors.Join(fmt.Errorf("the controller was told to stop, and ran on for %s", stopsWithin), c.end(syscall.SIGQUIT), c.complaints())
	}
}

// takesSignals is true once the process has said that it starts. Earlier a signal
// ends it as it ends any process.
func (c *Controller) takesSignals() bool {
	log := c.Log()
	return strings.Contains(log[min(c.logged, len(log)):], `"Starting"`)
}

// Start starts the controller again.
func (c *Controller) Start(t testing.TB) {
	t.Helper()
	if c.process != nil {
		t.Fatal("the controller runs already")
	}
	if err := c.Launch(); err != nil {
		t.Fatal(err)
	}
}

// Stop asks the controller to stop, by SIGTERM, and requires it to end cleanly.
func (c *Controller) Stop(t testing.TB) {
	t.Helper()
	if err := c.Terminate(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the controller as a crash would, by SIGKILL.
func (c *Controller) Kill(t testing.TB) {
	t.Helper()
	if c.process == nil {
		t.Fatal("the controller is not running")
	}
	if err := c.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Starts is how often it was started.
func (c *Controller) Starts() int { return c.starts }

// Freeze makes the controller stand still, as a machine without a processor to
// spare would.
func (c *Controller) Freeze(t testing.TB) { c.signal(t, syscall.SIGSTOP) }

// Thaw ends a Freeze.
func (c *Controller) Thaw(t testing.TB) { c.signal(t, syscall.SIGCONT) }

func (c *Controller) signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := c.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Fails waits until the controller has ended by itself, and returns the line in
// which it says why.
func (c *Controller) Fails(t testing.TB) string {
	t.Helper()
	select {
	case err := <-c.exited:
		c.process = nil
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Fatalf("the controller ended with %v, want exit code 1", err)
		}
	case <-time.After(Patience):
		t.Fatalf("the controller did not end within %s:\n%s", Patience, difftest.Clip(lastLines(c.Log(), 50)))
	}
	lines := strings.Split(strings.TrimSpace(c.Log()), "\n")
	return lines[len(lines)-1]
}

// Address is where the controller serves, by HTTPS or plain HTTP, after its last
// start.
func (c *Controller) Address(t testing.TB, tls bool) string {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(pollEvery) {
		if all := serves.FindAllStringSubmatch(c.Log(), -1); len(all) > 0 {
			for _, found := range slices.Backward(all) {
				if found[2] == strconv.FormatBool(tls) {
					return found[1]
				}
			}
		}
	}
	t.Fatalf("the controller does not say where it serves:\n%s", difftest.Clip(lastLines(c.Log(), 50)))
	return ""
}

var serves = regexp.MustCompile(`"Serving" address="([^"]+)" tls=(true|false)`)

// Log is all that the controller has logged, from its first start on.
func (c *Controller) Log() string {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// Errors are the lines of the log that report an error.
func (c *Controller) Errors() []string {
	var found []string
	for line := range strings.Lines(c.Log()) {
		if reportsError.MatchString(line) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// reportsError matches the header of an error in klog's text format.
var reportsError = regexp.MustCompile(`^[EF]\d{4} `)

// isAlarming matches what no log may hold, whatever the test is about.
var isAlarming = regexp.MustCompile(`DATA RACE|panic|^goroutine \d+ \[|fatal error: `)

func (c *Controller) complaints() error {
	var errs []error
	for line := range strings.Lines(c.Log()) {
		if isAlarming.MatchString(line) {
			errs = append(errs, fmt.Errorf("the controller's log says: %s", strings.TrimSpace(line)))
		}
	}
	return errors.Join(errs...)
}

// Attend starts the controller and ends it with the test, which then fails if the
// controller did not stop cleanly when told to or its log holds a race or a panic.
func (c *Controller) Attend(t testing.TB) {
	t.Helper()
	c.Start(t)
	t.Cleanup(func() {
		if err := c.Terminate(); err != nil {
			t.Error(err)
		} else if err := c.complaints(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", c.User, difftest.Clip(lastLines(c.Log(), 50)))
		}
	})
}

// end sends a signal that ends the process, and returns when it has.
func (c *Controller) end(signal os.Signal) error {
	if err := c.process.Signal(signal); err != nil {
		return fmt.Errorf("sending signal %v: %w", signal, err)
	}
	<-c.exited
	c.process = nil
	return nil
}

// grant gives a service account of the namespace, by a Role, the rules that
// artifacts/ has in a ClusterRole.
func (n *Namespace) grant(ctx context.Context) error {
	rules, err := n.Lab.Kube.RbacV1().ClusterRoles().Get(ctx, IcecreamRole, metav1.GetOptions{})
	if err != nil {
		return err
	}
	lease, err := n.Lab.Kube.RbacV1().Roles(SystemNamespace).Get(ctx, ServiceAccount+"-leader-election", metav1.GetOptions{})
	if err != nil {
		return err
	}
	account, rbac, name := n.Lab.Kube.CoreV1().ServiceAccounts(n.Name), n.Lab.Kube.RbacV1(), metav1.ObjectMeta{Name: ServiceAccount}
	_, err = account.Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // for an earlier controller
	} else if err != nil {
		return err
	}
	if _, err := rbac.Roles(n.Name).Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: append(rules.Rules, lease.Rules...)}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = rbac.RoleBindings(n.Name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: ServiceAccount},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: n.Name, Name: ServiceAccount}},
	}, metav1.CreateOptions{})
	return err
}
