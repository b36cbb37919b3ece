package simulation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Process is one run of the program. A program that ends too early is started again, which is
// another Process.
type Process struct {
	Name string

	history *History
	cancel  context.CancelFunc
	ended   chan struct{} // closed when Run has returned

	// The rest is guarded by the history's mu.

	identity      string // by which the Lease knows the process
	least         int64  // what was stored when it started
	isDead        bool   // nothing that the program does has an effect any more
	hasEnded      bool
	frozenUntil   time.Time
	leaseCutUntil time.Time
	// While a process is suspended, it gets no response and sends nothing. The term of its
	// leader may end meanwhile, and it does not know.
	suspendedUntil time.Time
	requests       map[string]int           // by method and path
	acknowledged   map[apiserver.Key]string // versions of own writes, once the response has arrived
	knows          map[cacheOf][]knowledge
	read           map[apiserver.Key]knowledge // by GET
	inFlight       int                         // requests, but for watches and what is aside
	busySince      time.Time                   // since when it has always waited for one
	busyUntil      time.Time                   // when it last did
}

// cacheOf says what a cache is of.
type cacheOf struct{ resource, labels string }

// knowledge is the version that a cache has from a time on.
type knowledge struct {
	since   time.Time
	version int64
}

// start starts a process. The caller does not hold mu.
func (h *History) start(outer context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started++
	ctx, cancel := context.WithCancel(outer)
	p := &Process{
		Name: fmt.Sprintf("process-%d", h.started), history: h, cancel: cancel, ended: make(chan struct{}), least: h.Store.Version,
		requests: map[string]int{}, acknowledged: map[apiserver.Key]string{}, knows: map[cacheOf][]knowledge{}, read: map[apiserver.Key]knowledge{},
	}
	h.processes = append(h.processes, p)
	args := append([]string{
		"-kubeconfig=" + h.kubeconfig(p.Name), "-bind-address=", "-insecure-bind-address=",
		fmt.Sprintf("-leader-elect=%t", h.weather.hasElection), "-leader-elect-resource-name=" + Lease,
		"-leader-elect-lease-duration=60s", "-leader-elect-renew-deadline=40s", "-leader-elect-retry-period=10s",
	}, h.Args...)
	h.Note("%s starts", p.Name)
	go p.run(outer, ctx, args)
}

// run runs the program, and starts it again if it ends too early. What it still does after
// Run has returned may have an effect for a while: a real process needs time to end.
// outer ends with the history, ctx with the process.
func (p *Process) run(outer, ctx context.Context, args []string) {
	h := p.history
	defer close(p.ended)
	err := h.Run(ctx, args)
	h.mu.Lock()
	p.hasEnded = true
	h.Note("%s has ended: %v", p.Name, err)
	isOver := outer.Err() != nil
	if ctx.Err() == nil {
		h.result.counts["ended by itself"]++
	}
	lingers := !p.isDead && ctx.Err() == nil && h.Draw("linger", p.Name).IntN(2) == 0
	h.mu.Unlock()
	if lingers {
		sleep(outer, h.Between(time.Second, time.Minute, "linger for", p.Name))
	}
	h.locked(p.die)
	p.cancel()
	if !isOver && sleep(outer, h.Between(time.Second, 5*time.Second, "restart", p.Name)) {
		h.start(outer)
	}
}

// die makes a process have no effect any more. Its watches end.
func (p *Process) die() {
	p.isDead = true
	for _, w := range p.history.watches {
		if w.Process == p {
			w.cut()
		}
	}
}

// sleepWhileSuspended returns some time after a suspended process runs again. Which of its
// requests returns first is drawn.
func (p *Process) sleepWhileSuspended(request string) {
	h := p.history
	h.mu.Lock()
	left := time.Until(p.suspendedUntil)
	h.mu.Unlock()
	if left > 0 {
		time.Sleep(left + h.Between(0, quick, "wake", request))
	}
}

// learn notes that a cache has a version.
func (p *Process) learn(of cacheOf, version int64) {
	p.knows[of] = append(p.knows[of], knowledge{time.Now(), version})
}

// Knew returns the version that the process's caches of a resource had at a time, the oldest
// one if there are several. As a first list has to be consistent, it is not older than the
// process, which does not act on what was over when it started.
func (p *Process) Knew(resource string, at time.Time) int64 {
	oldest := int64(-1)
	for of, all := range p.knows {
		if of.resource != resource {
			continue
		}
		i := sort.Search(len(all), func(i int) bool { return !all[i].since.Before(at) }) // What comes at that moment may be too late.
		var version int64
		if i > 0 {
			version = all[i-1].version
		}
		if oldest < 0 || version < oldest {
			oldest = version
		}
	}
	return max(p.least, oldest)
}

// transports is the history that runs now. The transport and the authentication provider are
// of the whole test process.
var transports atomic.Pointer[History]

// transport sends the requests of a program to the model. The host of the request is the name
// of the process.
type transport struct{}

// RoundTrip implements http.RoundTripper.
func (transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h := transports.Load()
	if h == nil {
		return nil, fmt.Errorf("no history runs")
	}
	h.mu.Lock()
	var process *Process
	for _, p := range h.processes {
		if p.Name == r.URL.Host {
			process = p
		}
	}
	h.mu.Unlock()
	if process == nil {
		return nil, fmt.Errorf("there is no %s", r.URL.Host)
	}
	return process.RoundTrip(r)
}

// scheme is that of the requests that go to the model.
const scheme = "model"

// provider is an authentication provider of client-go. The program's own transports stay in
// place, with all that the program wraps around them, but send requests to the model.
type provider struct{ next http.RoundTripper }

// WrapTransport implements rest.AuthProvider.
func (provider) WrapTransport(rt http.RoundTripper) http.RoundTripper {
	base := rt
	for wrapper, ok := base.(utilnet.RoundTripperWrapper); ok; wrapper, ok = base.(utilnet.RoundTripperWrapper) {
		base = wrapper.WrappedRoundTripper()
	}
	func() {
		defer func() { _ = recover() }() // client-go caches transports: this one may know the protocol.
		base.(*http.Transport).RegisterProtocol(scheme, transport{})
	}()
	return provider{rt}
}

// Login implements rest.AuthProvider.
func (provider) Login() error { return nil }

// RoundTrip implements http.RoundTripper.
func (p provider) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = scheme
	return p.next.RoundTrip(r)
}

// register makes the provider known to client-go, and has the log, panics and reported errors
// end up in the history that runs. All of that is global.
var register = sync.OnceValue(func() error {
	errs := []error{rest.RegisterAuthProviderPlugin("simulation", func(string, map[string]string, rest.AuthProviderConfigPersister) (rest.AuthProvider, error) {
		return provider{}, nil
	})}
	logFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logFlags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "v": "4"} {
		errs = append(errs, logFlags.Set(name, value))
	}
	klog.SetOutput(&logged)
	//nolint:reassign // There is no other way to see these.
	utilruntime.ErrorHandlers = append(utilruntime.ErrorHandlers, func(_ context.Context, err error, _ string, _ ...any) {
		if err != nil && strings.HasPrefix(err.Error(), "panic:") {
			panicked(err)
		}
	})
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, what any) { panicked(what) }}
	return errors.Join(errs...)
})

// logged is what the program of the history that runs has logged since it was last looked at.
var logged log

// log collects what is written. It locks nothing else: klog may be called by anyone.
type log struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (l *log) Write(line []byte) (int, error) {
	if transports.Load() == nil {
		return len(line), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line...)
	return len(line), nil
}

// take returns what was written since it was last called.
func (l *log) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	l.text = nil
	return text
}

// panicked says at once which seed it is: a panic may end the process.
func panicked(what any) {
	h := transports.Load()
	if h == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "seed %d: %v\n", h.seed, what)
	h.locked(func() { h.Fail("panic", "%v", what) })
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: model
clusters: [{name: model, cluster: {server: "https://PROCESS"}}]
users: [{name: program, user: {auth-provider: {name: simulation}}}]
contexts: [{name: model, context: {cluster: model, user: program}}]
`
