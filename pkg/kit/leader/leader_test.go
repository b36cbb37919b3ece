package leader

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// usual is how kube-controller-manager leads.
var usual = config.LeaderElectionConfiguration{
	LeaderElect:       true,
	LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
	RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
	RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
	ResourceLock:      "leases",
	ResourceName:      "gadget-controller",
	ResourceNamespace: "gadget-system",
}

// reach is how elections reach the lease.
func reach(client kubernetes.Interface) Client {
	return Client{Leases: func(namespace string) Leases { return client.CoordinationV1().Leases(namespace) }}
}

// process is a candidate that runs.
type process struct {
	*Election
	leads chan struct{} // closed when it begins to work
	stop  context.CancelFunc
	end   func()     // lets the work return
	ended chan error // what Run returned
}

// run starts a candidate whose work, once stopped, takes until end is called.
func run(t *testing.T, client *fake.Clientset, config config.LeaderElectionConfiguration) *process {
	t.Helper()
	return runWith(t, reach(client), config)
}

func runWith(t *testing.T, client Client, config config.LeaderElectionConfiguration, prepare ...func(*Election)) *process {
	t.Helper()
	e, err := New(config, client, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(e)
	}
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	mayEnd, end := context.WithCancel(context.Background())
	c := &process{Election: e, leads: make(chan struct{}), stop: stop, end: end, ended: make(chan error, 1)}
	go func() {
		c.ended <- e.Run(ctx, func(ctx context.Context) error {
			close(c.leads)
			<-ctx.Done()
			<-mayEnd.Done()
			return nil
		})
	}()
	t.Cleanup(func() { stop(); end() })
	return c
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// holder is who has the lease, by the API server.
func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("gadget-system").Get(t.Context(), "gadget-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// write sends a request of that method through the fence of the candidate.
func (c *process) write(method string) error { return c.send(method, nil) }

// send does the same, and the API server's response is lost if there is a failure.
func (c *process) send(method string, failure error) error {
	config := &rest.Config{}
	c.Fence(config)
	fence := config.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) {
		if failure != nil {
			return nil, failure
		}
		return &http.Response{Body: http.NoBody}, nil
	}))
	response, err := fence.RoundTrip(&http.Request{Method: method, Body: http.NoBody})
	if err == nil {
		response.Body.Close() //nolint:errcheck // nothing in it
	}
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func TestOneLeadsAndHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		// Looking for itself, the second would take its time.
		first, slow := usual, usual
		slow.RetryPeriod.Duration = 8 * time.Second
		a := run(t, client, first)
		synctest.Wait()
		if !isDone(a.leads) {
			t.Fatal("the only candidate does not lead at once")
		}
		b := run(t, client, slow)
		kittest.Pass(time.Minute)
		if isDone(b.leads) {
			t.Fatal("two lead")
		}
		if err := b.write(http.MethodPost); !errors.Is(err, errFenced) {
			t.Errorf("one that does not lead may write: %v", err)
		}
		if err := b.write(http.MethodGet); err != nil {
			t.Errorf("one that does not lead may not read: %v", err)
		}

		a.stop()
		kittest.Pass(time.Minute)
		if isDone(b.leads) || holder(t, client) != a.candidate.identity {
			t.Fatal("the lease was given away before the work was done")
		}
		if err := a.write(http.MethodPost); err != nil {
			t.Errorf("the last writes of the work are refused: %v", err)
		}
		a.end()
		start := time.Now()
		<-b.leads
		if took := time.Since(start); took > 0 {
			t.Errorf("the lease was free for %s", took)
		}
		if err := <-a.ended; err != nil {
			t.Errorf("a clean end is the error %v", err)
		}
		if err := a.write(http.MethodPost); !errors.Is(err, errFenced) {
			t.Errorf("one that has led may write: %v", err)
		}
		if err := b.write(http.MethodPost); err != nil {
			t.Errorf("the new leader may not write: %v", err)
		}
		b.end()
		b.stop()
		<-b.ended
		if holder(t, client) != "" {
			t.Error("nobody runs, and yet somebody has the lease")
		}
	})
}

// A write without a response may still be carried out. The lease must not be free before
// that can no longer happen.
func TestLeaseExpiresIfAWriteIsInDoubt(t *testing.T) {
	for _, test := range []struct {
		name     string
		method   string
		failure  error
		age      time.Duration // of the write, when the leader stops
		released bool
	}{
		{name: "a write was answered", method: http.MethodPost, released: true},
		{name: "a read was given up", method: http.MethodGet, failure: context.Canceled, released: true},
		{name: "a write was given up", method: http.MethodPost, failure: context.Canceled},
		{name: "a write was given up as long ago as a lease lasts", method: http.MethodPatch, failure: context.Canceled, age: usual.LeaseDuration.Duration, released: true},
		{name: "a connection broke just before that", method: http.MethodPut, failure: io.ErrUnexpectedEOF, age: usual.LeaseDuration.Duration - time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				c := run(t, client, usual)
				<-c.leads
				c.send(test.method, test.failure) //nolint:errcheck // it fails as it should
				kittest.Pass(test.age)
				c.stop()
				c.end()
				if err := <-c.ended; err != nil {
					t.Error(err)
				}
				if released := holder(t, client) == ""; released != test.released {
					t.Errorf("the lease is released: %t, want %t", released, test.released)
				}
			})
		})
	}
}

func TestOneThatWasNeverElectedTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := run(t, client, usual)
		<-a.leads
		b := run(t, client, usual)
		synctest.Wait()
		b.stop()
		if err := <-b.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if holder(t, client) != a.candidate.identity {
			t.Error("it took the lease along")
		}
		a.stop()
		a.end()
		<-a.ended
	})
}

func TestCrashedLeaderIsReplacedWhenItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(lease("somebody-who-crashed", 15))
		b := run(t, client, usual)
		start := time.Now()
		<-b.leads
		if took := time.Since(start); took < 15*time.Second || took > 20*time.Second {
			t.Errorf("took over after %s", took)
		}
		b.stop()
		b.end()
		<-b.ended
	})
}

// lead lets an election that does not run get the lease.
func (e *Election) lead(t *testing.T) {
	t.Helper()
	for range 3 {
		s, phase := e.next(e.clock.Now())
		if phase == leading {
			return
		}
		e.apply(e.send(t.Context(), s, e.write(s)))
	}
	t.Fatal("it does not lead")
}

// lease is one that somebody has.
func lease(holder string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gadget-system", Name: "gadget-controller"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: ptr.To(metav1.NowMicro())},
	}
}

func TestLeaderThatCannotRenewEndsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var isAway atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return isAway.Load(), nil, errors.New("connection refused")
		})
		a := run(t, client, usual)
		<-a.leads
		kittest.Pass(time.Minute)
		isAway.Store(true)
		start := time.Now()
		time.Sleep(5 * time.Second)
		if err := a.write(http.MethodPatch); err != nil {
			t.Errorf("after %s without an API server the leader may not write any more: %v", time.Since(start), err)
		}
		if err := a.Check(); err != nil {
			t.Errorf("Check = %v", err)
		}
		err := <-a.ended // although the work goes on
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "gadget-system/gadget-controller") {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(start); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("it noticed after %s", took)
		}
		if err := a.write(http.MethodPatch); !errors.Is(err, errFenced) {
			t.Errorf("it may still write: %v", err)
		}
		if err := a.Check(); err == nil {
			t.Error("Check finds nothing wrong with it")
		}
	})
}

func TestLeaderThatWasReplacedEndsWhenItSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := run(t, client, usual)
		<-a.leads
		synctest.Wait()
		// The API server knows of conflicts, unlike the fake.
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "gadget-controller", errors.New("it is another"))
		})
		if err := client.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease("another", 15), "gadget-system"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := <-a.ended; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "another process") {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(start); took > 0 { // it watches
			t.Errorf("it noticed after %s", took)
		}
		if err := a.write(http.MethodDelete); !errors.Is(err, errFenced) {
			t.Errorf("it may still write: %v", err)
		}
		if holder(t, client) != "another" {
			t.Error("it has taken the lease back")
		}
	})
}

// Whoever deletes a lease gives it away, while its leader works.
func TestLeaderWhoseLeaseIsDeletedEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		watches bool
		most    time.Duration
	}{
		{"and it watches", true, 0},
		{"and it sees that when it renews it", false, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				if !tt.watches {
					client.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) {
						return true, nil, errors.New("not now")
					})
				}
				a := run(t, client, usual)
				<-a.leads
				kittest.Pass(time.Minute)
				if err := client.CoordinationV1().Leases("gadget-system").Delete(t.Context(), "gadget-controller", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if err := <-a.ended; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "somebody has deleted lease gadget-system/gadget-controller") {
					t.Errorf("Run = %v", err)
				}
				if took := time.Since(start); took > tt.most {
					t.Errorf("it noticed after %s, want %s at most", took, tt.most)
				}
				if err := a.write(http.MethodPost); !errors.Is(err, errFenced) {
					t.Errorf("it may still write: %v", err)
				}
				time.Sleep(time.Minute)
				if _, err := client.CoordinationV1().Leases("gadget-system").Get(t.Context(), "gadget-controller", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("it has created the lease again: %v", err)
				}
			})
		})
	}
}

// Nobody leads before the former leader has stopped, as long as that one sees what
// happens to its lease.
func TestNoTwoProcessesWriteWhenLeasesAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leader := run(t, client, usual)
		<-leader.leads
		for range 20 {
			next := run(t, client, usual)
			kittest.Pass(5 * time.Second)
			if err := client.CoordinationV1().Leases("gadget-system").Delete(t.Context(), "gadget-controller", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			<-next.leads
			if err := leader.write(http.MethodPost); !errors.Is(err, errFenced) {
				t.Errorf("both may write: %v", err)
			}
			leader.end()
			<-leader.ended
			leader = next
		}
		leader.stop()
		leader.end()
		<-leader.ended
	})
}

// A watch may begin with what was before this process led.
func TestOldWatchEventsDoNotEndATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		news := watch.NewFake()
		client.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) { return true, news, nil })
		a := run(t, client, usual)
		<-a.leads
		synctest.Wait()
		news.Add(lease("its-predecessor", 15))
		news.Modify(lease("", 1))
		news.Delete(lease("its-predecessor", 15))
		news.Add(lease(a.candidate.identity, 15))
		kittest.Pass(time.Minute)
		select {
		case err := <-a.ended:
			t.Fatalf("Run = %v", err)
		default:
		}
		a.stop()
		a.end()
		if err := <-a.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// A process that is stopped and continued finds the time past. So does a machine
// that was asleep: its monotonic clock stood still, the one on the wall did not.
func TestFenceDependsOnlyOnTheClock(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  error
	}{
		{"at once", 0, nil},
		{"just before the deadline", 10*time.Second - 1, nil},
		{"at the deadline", 10 * time.Second, errFenced},
		{"long after", time.Hour, errFenced},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(now)
			e, err := New(usual, reach(fake.NewClientset()), clock)
			if err != nil {
				t.Fatal(err)
			}
			c := &process{Election: e}
			if err := c.write(http.MethodPut); !errors.Is(err, errFenced) {
				t.Errorf("before the election: %v", err)
			}
			e.lead(t)
			clock.SetTime(now.Add(tt.after))
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				if err := c.write(method); !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", method, err, tt.want)
				}
			}
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
				if err := c.write(method); err != nil {
					t.Errorf("%s: %v", method, err)
				}
			}
		})
	}
}

// listen opens a port until the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // nothing was done with it
	return listener
}

// A request that has passed the first check when its process is stopped has yet to
// be sent.
func TestFenceBlocksConnections(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
	e, err := New(usual, reach(fake.NewClientset()), clock)
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{}
	e.Fence(config)
	listener := listen(t)
	arrived := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			arrived <- err.Error()
			return
		}
		content, _ := io.ReadAll(connection)
		arrived <- string(content)
	}()
	connection, err := config.Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	send := func(text string, want error) {
		t.Helper()
		if _, err := connection.Write([]byte(text)); !errors.Is(err, want) {
			t.Errorf("sending %q: %v, want %v", text, err, want)
		}
	}
	send("a candidate reads; ", nil)
	e.lead(t)
	send("a leader writes; ", nil)
	clock.SetTime(clock.Now().Add(10*time.Second - 1))
	send("until its time is over", nil)
	clock.SetTime(clock.Now().Add(1))
	send("and not any longer", errFenced)
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	if got, want := <-arrived, "a candidate reads; a leader writes; until its time is over"; got != want {
		t.Errorf("there arrived %q, want %q", got, want)
	}
}

func TestErrorIsLoggedOnce(t *testing.T) {
	t.Run("one lease", func(t *testing.T) { testErrorIsLoggedOnce(t, func(*Election, Client) {}) })
	t.Run("a former lease, too", func(t *testing.T) {
		testErrorIsLoggedOnce(t, func(e *Election, client Client) { e.Follow("former-controller", client) })
	})
}

func testErrorIsLoggedOnce(t *testing.T, setUp func(*Election, Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var isForbidden atomic.Bool
		isForbidden.Store(true)
		client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			named, _ := action.(interface{ GetName() string })
			if named == nil {
				return isForbidden.Load(), nil, errors.New("no watch")
			}
			return isForbidden.Load(), nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), named.GetName(), errors.New("no"))
		})
		e, err := New(usual, reach(client), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		setUp(e, reach(client))
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, stop := context.WithCancel(t.Context())
		leads, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- e.Run(klog.NewContext(ctx, logger), func(ctx context.Context) error {
				close(leads)
				<-ctx.Done()
				return errors.New("the work failed")
			})
		}()
		kittest.Pass(time.Minute)
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if n := strings.Count(log, "Cannot get the lease"); n != 1 {
			t.Errorf("told %d times:\n%s", n, difftest.Clip(log))
		}
		if strings.Count(log, "\n") > 2 {
			t.Errorf("talkative:\n%s", difftest.Clip(log))
		}
		isForbidden.Store(false)
		<-leads
		stop()
		if err := <-ended; err == nil || err.Error() != "the work failed" {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestBadConfiguration(t *testing.T) {
	for name, change := range map[string]func(*config.LeaderElectionConfiguration){
		"leaseDuration is 5s and renewDeadline is 10s": func(c *config.LeaderElectionConfiguration) { c.LeaseDuration.Duration = 5 * time.Second },
		"renewDeadline": func(c *config.LeaderElectionConfiguration) { c.RetryPeriod.Duration = 9 * time.Second },
		"retryPeriod":   func(c *config.LeaderElectionConfiguration) { c.RetryPeriod.Duration = 0 },
		"resourceName":  func(c *config.LeaderElectionConfiguration) { c.ResourceName = "" },
		"endpoints":     func(c *config.LeaderElectionConfiguration) { c.ResourceLock = "endpoints" },
		"cake":          func(c *config.LeaderElectionConfiguration) { c.ResourceLock = "cake" },
		// A Lease holds whole seconds: it would say 10 of these.
		"leaseDuration is 10.9s": func(c *config.LeaderElectionConfiguration) {
			c.LeaseDuration.Duration, c.RenewDeadline.Duration = 10900*time.Millisecond, 10800*time.Millisecond
		},
		"leaseDuration is 15.5s": func(c *config.LeaderElectionConfiguration) { c.LeaseDuration.Duration = 15500 * time.Millisecond },
		"renewDeadline is 14.5s": func(c *config.LeaderElectionConfiguration) { c.RenewDeadline.Duration = 14500 * time.Millisecond },
	} {
		bad := usual
		change(&bad)
		if _, err := New(bad, reach(fake.NewClientset()), clock.RealClock{}); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("the error should name %s: %v", name, err)
		}
	}
}

func TestGoodConfiguration(t *testing.T) {
	for _, good := range [][3]time.Duration{
		{15 * time.Second, 10 * time.Second, 2 * time.Second},
		{15 * time.Second, 14 * time.Second, 1500 * time.Millisecond},
		{2 * time.Second, 999 * time.Millisecond, 100 * time.Millisecond},
		{600 * time.Second, 500 * time.Second, 300 * time.Second},
	} {
		c := usual
		c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration = good[0], good[1], good[2]
		if _, err := New(c, reach(fake.NewClientset()), clock.RealClock{}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
