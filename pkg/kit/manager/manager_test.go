package manager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/server/healthz"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	kubeinformers "k8s.io/client-go/informers"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	componentbase "k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/internal/flags"
	"nicoleh.io/k8s-controller/internal/leader"
	"nicoleh.io/k8s-controller/internal/serve"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func without(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		t.Setenv(name, "") // so that it comes back
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

// shop returns a program with two controllers that do nothing. One of them has a flag, whose
// value is stored in flavor.
func shop(flavor *string) Manager {
	idle := func(*Dependencies) (Controller, error) { return &fakeController{}, nil }
	return Manager{Name: "shop", LeaseName: "shop-lease", Controllers: []Descriptor{
		{Name: "cone", New: idle, AddFlags: func(flags *flag.FlagSet) {
			flags.StringVar(flavor, "cone-flavor", "vanilla", "What to fill cones with.")
		}, Validate: func() error {
			if *flavor == "" {
				return errors.New("-cone-flavor is empty")
			}
			return nil
		}},
		{Name: "cake", New: idle},
	}}
}

// parse parses and validates flags.
func parse(m Manager, args []string) (o options, err error) {
	if err := flags.Parse(m.Name, args, m.flagSets(&o)...); err != nil {
		return o, err
	}
	return o, m.validate(o)
}

// docs/flags.md shows the defaults.
func TestParse(t *testing.T) {
	var flavor string
	got, err := parse(shop(&flavor), []string{
		"-kubeconfig", "a", "-context=h", "-kube-api-qps", "2.5", "-kube-api-burst=7", "-workers", "3",
		"-resync", "1h", "-stuck-after", "1m", "-cone-flavor=mint",
		"-leader-elect=false", "-leader-elect-lease-duration", "60s", "-leader-elect-renew-deadline=40s", "-leader-elect-retry-period", "5s",
		"-leader-elect-resource-lock", "leases", "-leader-elect-resource-name", "d", "-leader-elect-resource-namespace", "e",
		"-bind-address", ":1", "-insecure-bind-address", "127.0.0.1:2", "-tls-cert-file", "f", "-tls-private-key-file", "g",
	})
	if err != nil || flavor != "mint" {
		t.Errorf("error %v, flavor %q", err, flavor)
	}
	want := options{
		cluster: flags.Cluster{Kubeconfig: "a", Context: "h"}, qps: 2.5, burst: 7, workers: 3, resync: time.Hour,
		stuckAfter: time.Minute,
		election: componentbase.LeaderElectionConfiguration{
			LeaseDuration: metav1.Duration{Duration: time.Minute},
			RenewDeadline: metav1.Duration{Duration: 40 * time.Second},
			RetryPeriod:   metav1.Duration{Duration: 5 * time.Second},
			ResourceLock:  "leases", ResourceName: "d", ResourceNamespace: "e",
		},
		serve: serve.Config{BindAddress: ":1", InsecureBindAddress: "127.0.0.1:2", CertFile: "f", KeyFile: "g"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestStartup(t *testing.T) {
	m := shop(new(string))
	m.Controllers[1].ClusterWide = true
	startup.Test(t, m.Run)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The first line of the log says where a process works, and as whom.
func TestClientConfig(t *testing.T) {
	file, nonsense, missing := writeFile(t, kubeconfig), writeFile(t, "{"), filepath.Join(t.TempDir(), "missing")
	of := func(kubeconfig, context string) options {
		return options{cluster: flags.Cluster{Kubeconfig: kubeconfig, Context: context}}
	}
	limited := func(qps float64, burst int) options {
		o := of(file, "")
		o.qps, o.burst = qps, burst
		return o
	}
	const current, other = "https://parlor.example:6443 as c, c, u", "https://other.example:6443 as other, o, u"
	for name, tt := range map[string]struct {
		variable string // $KUBECONFIG
		o        options
		want     string // the address, the names for the log, QPS and burst
	}{
		"a file":                         {"", of(file, ""), current + " -1 0"},
		"a file by $KUBECONFIG":          {file, options{}, current + " -1 0"},
		"the flag wins over $KUBECONFIG": {"/nowhere", of(file, ""), current + " -1 0"},
		"another context":                {"", of(file, "other"), other + " -1 0"},
		"another context of $KUBECONFIG": {file, of("", "other"), other + " -1 0"},
		"a rate":                         {"", limited(10, 0), current + " 10 21"},
		"a rate and a burst":             {"", limited(0.5, 3), current + " 0.5 3"},
		"a small rate":                   {"", limited(0.1, 0), current + " 0.1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			without(t, clientcmd.RecommendedConfigPathEnvVar, "KUBERNETES_SERVICE_HOST")
			if tt.variable != "" {
				t.Setenv(clientcmd.RecommendedConfigPathEnvVar, tt.variable)
			}
			config, err := clientConfig(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			context, cluster, account := tt.o.cluster.Names()
			got := fmt.Sprintf("%s as %s, %s, %s %v %v", config.Host, context, cluster, account, config.QPS, config.Burst)
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	without(t, clientcmd.RecommendedConfigPathEnvVar, "KUBERNETES_SERVICE_HOST")
	if context, cluster, account := (flags.Cluster{}).Names(); context != "" || cluster != "the Pod's" || account != "the Pod's" {
		t.Errorf("in a Pod, it is %q, %q, %q", context, cluster, account)
	}
	for name, tt := range map[string]struct {
		o    options
		want []string // what its one line names
	}{
		"nothing says where the cluster is": {options{}, []string{"-kubeconfig", "$KUBECONFIG", "Pod"}},
		"the file does not exist":           {of(missing, ""), []string{missing}},
		"the file is nonsense":              {of(nonsense, ""), []string{"kubeconfig"}},
		"a context that is not there":       {of(file, "absent"), []string{"absent"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := clientConfig(tt.o)
			requireOneLine(t, err, tt.want)
		})
	}
}

// The Lease has one place, so that a process for one namespace and one for all do not both
// work there.
func TestLeaseDoesNotDependOnTheNamespace(t *testing.T) {
	without(t, clientcmd.RecommendedConfigPathEnvVar)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"outside of a Pod":                         {nil, "kube-system"},
		"outside of a Pod, for a single namespace": {[]string{"-namespace=team"}, "kube-system"},
		"with a kubeconfig":                        {[]string{"-kubeconfig=elsewhere"}, "kube-system"},
		"a flag says where":                        {[]string{"-namespace=team", "-leader-elect-resource-namespace=parlor"}, "parlor"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(shop(new(string)), tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if got := leaseNamespace(o); got != tt.want {
				t.Errorf("the Lease is in %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRequiredFeatures(t *testing.T) {
	if err := requireFeatures(); err != nil {
		t.Errorf("by default: %v", err)
	}
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, false)
	err := shop(new(string)).Run(t.Context(), []string{"-kubeconfig=" + filepath.Join(t.TempDir(), "absent")})
	requireOneLine(t, err, []string{"KUBE_FEATURE_AtomicFIFO"}) // and nothing of the kubeconfig
}

// requireOneLine requires an error of one line that contains the words.
func requireOneLine(t *testing.T, err error, words []string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want one line with %q", err, word)
		}
	}
}

// fakeController is a controller whose state the test sets.
type fakeController struct {
	busy time.Duration
	run  func(ctx context.Context) error
}

func (f *fakeController) Run(ctx context.Context, _ int) error { return f.run(ctx) }
func (f *fakeController) Busy() time.Duration                  { return f.busy }
func (*fakeController) WaitFor(...cache.DoneChecker)           {}

// newRunning returns a controller without caches that is ready to be started.
func newRunning(t *testing.T, name string, c Controller) running {
	return running{Controller: c, Dependencies: &Dependencies{}, name: name, recorder: newSinking(t, &sink{}), canList: make(chan struct{})}
}

// newSinking returns a recorder whose events go there.
func newSinking(t *testing.T, s record.EventSink) *recorder {
	r := &recorder{record.NewBroadcaster(), kubescheme.Scheme, s}
	t.Cleanup(r.Shutdown)
	return r
}

// canList returns a controller that can list what it needs.
func canList(c running) running {
	close(c.canList)
	return c
}

// failing returns the names of the checks that fail.
func failing(checks []healthz.HealthChecker) (names []string) {
	for _, check := range checks {
		if check.Check(nil) != nil {
			names = append(names, check.Name())
		}
	}
	return names
}

// A worker that is stuck fails /livez. TestControllerThatWaitsKeepsNoOtherFromWorking shows /readyz.
func TestStuckWorker(t *testing.T) {
	c := &fakeController{}
	live, _ := (&process{controllers: []running{{Controller: c, name: "fake"}, {Controller: &fakeController{}, name: "other"}}}).checks(time.Minute)
	for busy, want := range map[time.Duration][]string{0: nil, time.Minute: nil, time.Minute + 1: {"fake"}} {
		if c.busy = busy; !slices.Equal(failing(live), want) {
			t.Errorf("busy for %s: /livez fails for %q, want %q", busy, failing(live), want)
		}
	}
}

// sink keeps the messages of events. The first one can take long.
type sink struct {
	record.EventSink
	hangs    bool
	messages []string
}

func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	if s.hangs {
		s.hangs = false
		time.Sleep(time.Hour)
	}
	s.messages = append(s.messages, event.Message)
	return event, nil
}

// The last events of a term are sent before the Lease is released, unless that takes too long.
func TestWorkEndsWithTheLastEvent(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs: ", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sink{hangs: hangs}
				events := newSinking(t, s)
				recorded := events.recorderFor("fake")
				stubborn := &fakeController{run: func(ctx context.Context) error {
					<-ctx.Done()
					for i := range 100 {
						recorded.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: fmt.Sprint("vanilla-", i)}}, corev1.EventTypeNormal, "Ended", "the last word")
					}
					return nil
				}}
				failing := &fakeController{run: func(context.Context) error {
					time.Sleep(time.Second)
					return errors.New("no power")
				}}
				p := &process{controllers: []running{canList(newRunning(t, "stubborn", stubborn)), canList(newRunning(t, "failing", failing))}}
				p.controllers[0].recorder = events
				begin := time.Now()
				requireOneLine(t, p.work(t.Context(), t.Context()), []string{"failing", "no power"}) // one that fails takes the other with it
				if took := time.Since(begin); hangs && took != time.Second+flushTimeout {
					t.Errorf("it took %s", took)
				}
				if !hangs && len(s.messages) != 100 {
					t.Errorf("%d events were sent, want 100", len(s.messages))
				}
				time.Sleep(2 * time.Hour) // until the sink ends
			})
		})
	}
}

// A flood of one controller's events, of which the queue drops most, drops none of another's.
func TestEventsOfOneControllerDropNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		about := func(i int) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: fmt.Sprint("vanilla-", i)}}
		}
		controller := func(name string, run func(record.EventRecorder)) Descriptor {
			return Descriptor{Name: name, New: func(d *Dependencies) (Controller, error) {
				return &fakeController{run: func(ctx context.Context) error {
					run(d.Recorder)
					<-ctx.Done()
					return nil
				}}, nil
			}}
		}
		m := Manager{Name: "shop", LeaseName: "shop-lease", Controllers: []Descriptor{
			controller("noisy", func(recorder record.EventRecorder) {
				for i := range 10_000 {
					recorder.Event(about(i), corev1.EventTypeNormal, "Waiting", "one of many")
				}
			}),
			controller("quiet", func(recorder record.EventRecorder) {
				time.Sleep(time.Second)
				recorder.Event(about(0), corev1.EventTypeWarning, "Failed", "the only one")
			}),
		}}
		p, err := m.assemble(options{cluster: flags.Cluster{Kubeconfig: writeFile(t, kubeconfig)}})
		if err != nil {
			t.Fatal(err)
		}
		sinks := []*sink{{hangs: true}, {}}
		for i, c := range p.controllers {
			canList(c)
			c.recorder.sink = sinks[i]
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.work(ctx, ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"the only one"}, sinks[1].messages); diff != "" {
			t.Errorf("events of the other one (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Hour) // until the first sink ends
	})
}

func TestMessagesOfEventsAreClipped(t *testing.T) {
	recorder := record.NewFakeRecorder(3)
	c := clipping{recorder}
	long := strings.Repeat("x", 1<<20)
	c.Event(&corev1.Pod{}, corev1.EventTypeNormal, "Ended", long)
	c.Eventf(&corev1.Pod{}, corev1.EventTypeNormal, "Ended", "%s", long)
	c.AnnotatedEventf(&corev1.Pod{}, nil, corev1.EventTypeNormal, "Ended", "%s", long)
	for range 3 {
		if got := <-recorder.Events; len(got) > maxMessage+len("Normal Ended map[]") || !strings.Contains(got, "xxx") {
			t.Errorf("it has %d bytes", len(got))
		}
	}
}

// The metric of a cache tells a connection that is quiet from one that is lost.
func TestVersionOfACacheFollowsBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := watch.NewFake()
		pods := cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if ptr.Deref(options.SendInitialEvents, false) {
					return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "", nil)
				}
				return events, nil
			},
		}, &corev1.Pod{}, 0, cache.Indexers{})
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { pods.RunWithContext(ctx) })
		version := func() (version float64) {
			synctest.Wait()
			p := &process{controllers: []running{{Dependencies: &Dependencies{caches: []watched{{SharedIndexInformer: pods}}}, name: "fake"}}}
			p.countVersions(func(n float64, _ ...string) { version = n })
			return version
		}
		if got := version(); got != 7 {
			t.Errorf("it is %v after the list, want 7", got)
		}
		events.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})
		if got := version(); got != 9 {
			t.Errorf("it is %v after a bookmark, want 9", got)
		}
		cancel()
		watching.Wait()
	})
}

// versioned is an informer that has nothing but a resource version.
type versioned struct {
	cache.SharedIndexInformer
	version string
}

func (v versioned) LastSyncResourceVersion() string { return v.version }

// A series that is there twice would break every scrape.
func TestVersionsOfCachesOfOneResource(t *testing.T) {
	pods := func(namespace, selector, version string) watched {
		return watched{
			preflight.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: namespace, Selector: selector},
			versioned{version: version},
		}
	}
	p := &process{controllers: []running{{name: "fake", Dependencies: &Dependencies{caches: []watched{
		pods("a", "", "7"), pods("b", "", "5"), pods("c", "", "9"), pods("d", "", ""), pods("", "flavor=vanilla", "8"),
	}}}}}
	got := map[string]float64{}
	p.countVersions(func(n float64, values ...string) {
		series := strings.Join(values, " ")
		if _, isThere := got[series]; isThere {
			t.Errorf("%s is there twice", series)
		}
		got[series] = n
	})
	if diff := cmp.Diff(map[string]float64{"fake pods ": 5, "fake pods flavor=vanilla": 8}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// newCluster returns an API server for the current bubble.
func newCluster(t *testing.T) *script.Cluster {
	t.Helper()
	c := script.New(t, apiserver.Leases(), apiserver.Pods(), apiserver.Nodes(), apiserver.Secrets(), apiserver.Namespaces())
	c.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "parlor"}})
	return c
}

// lack has the API server not know these resources.
func lack(c *script.Cluster, resources ...string) {
	c.Refuse(func(request string) error {
		_, resource, _ := strings.Cut(request, " ")
		if slices.Contains(resources, resource) {
			return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "")
		}
		return nil
	})
}

// newProcess returns the process of a program whose controllers each read one of these resources
// of the core group, and what they do.
func newProcess(t *testing.T, cluster http.RoundTripper, controllers map[string]Controller) *process {
	t.Helper()
	config := &rest.Config{Transport: cluster, QPS: -1}
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := serve.Listen(serve.Config{}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{workers: 1, metadata: reader, http: server}
	for resource, c := range controllers {
		pods := corev1.SchemeGroupVersion.WithResource(resource)
		d := &Dependencies{}
		Watch(d, preflight.Resource{GroupVersionResource: pods}, metadatainformer.NewFilteredMetadataInformer(reader, pods, "", 0, cache.Indexers{}, nil))
		p.controllers = append(p.controllers, running{c, d, "of " + resource, newSinking(t, &sink{}), make(chan struct{})})
	}
	o, err := parse(Manager{Name: "shop", LeaseName: "shop", Controllers: []Descriptor{{Name: "cone"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.election.ResourceNamespace = "parlor"
	p.election, err = leader.New(o.election, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs the process. The function stops it, and returns when it has ended.
func (p *process) start(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run returned %v", err)
		}
	}
}

// requireFailing requires that exactly these checks of /readyz fail once nothing happens any more.
func (p *process) requireFailing(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	_, ready := p.checks(time.Minute)
	if got := failing(ready); !slices.Equal(got, want) {
		t.Errorf("/readyz fails for %q, want %q", got, want)
	}
}

// patient is a controller that does nothing until its context ends.
var patient = &fakeController{run: func(ctx context.Context) error { <-ctx.Done(); return nil }}

// A process on standby is ready, but it holds no watch and has run no controller.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Set(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "shop"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NowMicro()),
		}})
		p := newProcess(t, c, map[string]Controller{"pods": &fakeController{run: func(context.Context) error { t.Error("it runs"); return nil }}})
		stop := p.start(t.Context(), t)
		time.Sleep(time.Second)
		p.requireFailing(t)
		stop()
		// Before it watches, an informer lists.
		if lists, looks := c.Requests("list pods"), c.Requests("get leases"); lists != 1 || looks != 1 || len(c.Writes()) > 0 {
			t.Errorf("%d lists, %d looks at the Lease, and writes %v", lists, looks, c.Writes())
		}
	})
}

// One controller's missing resource keeps no other from working. It starts when the resource
// is there, and until then the process is not ready.
func TestControllerThatWaitsKeepsNoOtherFromWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var working []string
		controller := func(name string) *fakeController {
			return &fakeController{run: func(ctx context.Context) error {
				mu.Lock()
				working = append(working, name)
				mu.Unlock()
				<-ctx.Done()
				return nil
			}}
		}
		requireWorking := func(want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, working); diff != "" {
				t.Errorf("running controllers (-want +got):\n%s", diff)
			}
		}
		c := newCluster(t)
		lack(c, "pods", "nodes", "secrets")
		p := newProcess(t, c, map[string]Controller{"pods": controller("pods"), "nodes": controller("nodes")})
		for _, c := range p.controllers {
			if c.name == "of pods" { // which it reads without a cache
				c.Need(preflight.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("secrets")})
			}
		}
		stop := p.start(t.Context(), t)
		requireWorking()
		if c.Requests("get leases") > 0 {
			t.Error("it takes part in the election although no controller can work")
		}
		lack(c, "pods", "secrets")
		requireWorking("nodes")
		p.requireFailing(t, "preflight")
		lack(c, "secrets")
		requireWorking("nodes")
		lack(c)
		requireWorking("nodes", "pods")
		p.requireFailing(t)
		stop()
	})
}

// A controller deletes each Pod whose Secret a lister does not have. The lister's cache has no handler, and is filled
// late. No Pod is deleted, and another controller of the process does not wait. TestRunEndsIfACacheIsNeverFilled, in
// package worker, shows one that is never filled.
func TestControllerWaitsForCachesWithoutHandler(t *testing.T) {
	pods, secrets := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("secrets")
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"}})
		c.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"}})
		begin := time.Now()
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			if path.Base(r.URL.Path) == "secrets" && r.URL.Query().Get("limit") != "1" { // which preflight sends
				time.Sleep(time.Until(begin.Add(4 * time.Minute)))
			}
			return c.RoundTrip(r)
		})
		var synced, other time.Duration
		p := newProcess(t, slow, map[string]Controller{"nodes": &fakeController{run: func(ctx context.Context) error {
			other = time.Since(begin)
			<-ctx.Done()
			return nil
		}}})
		p.election = nil
		d := &Dependencies{}
		inCache := func(resource schema.GroupVersionResource) kubeinformers.GenericInformer {
			return Watch(d, preflight.Resource{GroupVersionResource: resource},
				metadatainformer.NewFilteredMetadataInformer(p.metadata, resource, "", 0, cache.Indexers{}, nil))
		}
		ofPods, ofSecrets := inCache(pods), inCache(secrets)
		loop := worker.New("sweeper", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
			synced = time.Since(begin)
			if _, err := ofSecrets.Lister().ByNamespace(name.Namespace).Get(name.Name); apierrors.IsNotFound(err) {
				return 0, p.metadata.Resource(pods).Namespace(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{})
			}
			return 0, nil
		})
		handler, err := ofPods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(pod any) {
			loop.Add(cache.MetaObjectToName(pod.(metav1.Object)))
		}})
		if err != nil {
			t.Fatal(err)
		}
		loop.WaitFor(handler.HasSyncedChecker())
		p.controllers = append(p.controllers, running{loop, d, "of pods", newSinking(t, &sink{}), make(chan struct{})})
		stop := p.start(t.Context(), t)
		time.Sleep(time.Hour)
		stop()
		if synced != 4*time.Minute || other != 0 {
			t.Errorf("it synced after %s, and the other one ran after %s", synced, other)
		}
		if deleted := c.Requests("delete pods"); deleted > 0 {
			t.Errorf("%d Pods were deleted", deleted)
		}
	})
}

// Credentials that are not accepted end a process that has not worked yet. One that has waits, as reflectors and the
// election do: the API server rejects good ones for moments after its start.
func TestCredentialsThatAreRejectedForMoments(t *testing.T) {
	for name, tt := range map[string]struct {
		lacks []string // the resources that cannot be listed at first
		want  string
	}{
		"before any controller works": {[]string{"pods", "nodes"}, "the API server does not accept the credentials"},
		"while another one works":     {[]string{"pods"}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				lack(c, tt.lacks...)
				p := newProcess(t, c, map[string]Controller{"pods": patient, "nodes": patient})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- p.run(ctx) }()
				time.Sleep(10 * time.Second)
				c.Refuse(func(string) error { return apierrors.NewUnauthorized("starting") })
				time.Sleep(3 * time.Second)
				c.Refuse(nil)
				time.Sleep(10 * time.Second)
				cancel()
				if err := <-ended; !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("run returned %v, want %s", err, tt.want)
				}
			})
		})
	}
}

// Metrics, logs and checks tell controllers apart by their names.
func TestNamesAreUnique(t *testing.T) {
	for want, controllers := range map[string][]Descriptor{
		`two controllers have the name "cone"`:                 {{Name: "cone"}, {Name: "cone"}},
		`"leaderElection" is not a valid name of a controller`: {{Name: "leaderElection"}}, // a check's
	} {
		requireOneLine(t, Manager{Name: "shop", LeaseName: "shop", Controllers: controllers}.Run(t.Context(), nil), []string{want})
	}
}

// Lists of a namespace that does not exist are empty, and say nothing. So the process says it,
// once a minute, and works: the namespace can be created later.
func TestNamespaceThatDoesNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		logger := funcr.New(func(_, line string) {
			if strings.Contains(line, `"namespace"="absent"`) || strings.Contains(line, "Resource available") {
				lines = append(lines, line)
			}
		}, funcr.Options{})
		c := newCluster(t)
		p := newProcess(t, c, map[string]Controller{"pods": patient})
		p.namespace = "absent"
		stop := p.start(klog.NewContext(t.Context(), logger), t)
		time.Sleep(5*time.Minute - time.Second)
		p.requireFailing(t)
		if len(lines) != 5 || !strings.Contains(lines[0], `"because"="the namespace does not exist" "remedy"="kubectl create namespace absent, or name another"`) {
			t.Errorf("want 5 lines, got %q", lines)
		}
		c.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "absent"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if requests := c.Requests("get namespaces"); len(lines) != 6 || requests != 31 {
			t.Errorf("want one line more and no more requests, got %q and %d", lines[5:], requests)
		}
		stop()
	})
}

// Informers only read, and can sleep for a minute. So they are stopped last, and do not delay
// the release of the Lease.
func TestReleaseDoesNotWaitForInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		busy := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("watch") {
				return apiserver.Refuse(apierrors.NewTooManyRequests("the cache is being filled", 0)).HTTP(r), nil
			}
			return c.RoundTrip(r)
		})
		stop := newProcess(t, busy, map[string]Controller{"pods": patient}).start(t.Context(), t)
		time.Sleep(10 * time.Minute)
		lease := func() string {
			return ptr.Deref(script.Get[coordinationv1.Lease](c, "parlor", "shop").Spec.HolderIdentity, "")
		}
		if lease() == "" {
			t.Error("it does not lead")
		}
		time.AfterFunc(time.Second, func() {
			if holder := lease(); holder != "" {
				t.Errorf("%q still holds the Lease after a second", holder)
			}
		})
		stopped := time.Now()
		stop()
		if took := time.Since(stopped); took > 3*time.Second {
			t.Errorf("run took %s to end", took)
		}
		time.Sleep(2 * time.Minute) // until the informers end
	})
}

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://parlor.example:6443"}}, {name: o, cluster: {server: "https://other.example:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}, {name: other, context: {cluster: o, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`
