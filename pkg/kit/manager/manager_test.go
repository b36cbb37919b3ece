package manager

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes/fake"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	componentbase "k8s.io/component-base/config"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/serve"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

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
	idle := func(Dependencies) (Controller, error) { return &fakeController{}, nil }
	return Manager{Name: "shop", LeaseName: "shop-lease", Controllers: []Descriptor{
		{Name: "cone", OnByDefault: true, New: idle, AddFlags: func(flags *flag.FlagSet) {
			flags.StringVar(flavor, "cone-flavor", "vanilla", "What to fill cones with.")
		}, Validate: func() error {
			if *flavor == "" {
				return errors.New("-cone-flavor is empty")
			}
			return nil
		}},
		{Name: "cake", ClusterWide: true, New: idle},
	}}
}

func TestParse(t *testing.T) {
	defaults := func(changes ...func(*options)) options {
		o := options{
			controllers: "*",
			workers:     8,
			election: componentbase.LeaderElectionConfiguration{
				LeaderElect:   true,
				LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
				RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
				RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
				ResourceLock:  "leases",
				ResourceName:  "shop-lease",
			},
			serve:      serve.Config{BindAddress: ":8443"},
			stuckAfter: 5 * time.Minute,
		}
		for _, change := range changes {
			change(&o)
		}
		return o
	}
	tests := []struct {
		name        string
		environment map[string]string
		args        []string
		want        options
		wantFlavor  string
	}{{
		name: "nothing is given",
		want: defaults(),
	}, {
		name: "everything is given, with one dash",
		args: []string{
			"-kubeconfig", "a", "-master=b", "-kube-api-qps", "2.5", "-kube-api-burst=7", "-workers", "3",
			"-resync", "1h", "-version", "-controllers", "cake", "-stuck-after", "1m", "-cone-flavor=mint",
			"-leader-elect=false", "-leader-elect-lease-duration", "60s", "-leader-elect-renew-deadline=40s", "-leader-elect-retry-period", "5s",
			"-leader-elect-resource-lock", "leases", "-leader-elect-resource-name", "d", "-leader-elect-resource-namespace", "e",
			"-bind-address", ":1", "-insecure-bind-address", "127.0.0.1:2", "-tls-cert-file", "f", "-tls-private-key-file", "g", "-enable-http2",
		},
		want: options{
			kubeconfig: "a", master: "b", qps: 2.5, burst: 7, workers: 3, resync: time.Hour, version: true,
			controllers: "cake", stuckAfter: time.Minute,
			election: componentbase.LeaderElectionConfiguration{
				LeaseDuration: metav1.Duration{Duration: time.Minute},
				RenewDeadline: metav1.Duration{Duration: 40 * time.Second},
				RetryPeriod:   metav1.Duration{Duration: 5 * time.Second},
				ResourceLock:  "leases", ResourceName: "d", ResourceNamespace: "e",
			},
			serve: serve.Config{BindAddress: ":1", InsecureBindAddress: "127.0.0.1:2", CertFile: "f", KeyFile: "g", HTTP2: true},
		},
		wantFlavor: "mint",
	}, {
		name: "with two dashes",
		args: []string{"--kubeconfig", "a", "--workers=3"},
		want: defaults(func(o *options) { o.kubeconfig, o.workers = "a", 3 }),
	}, {
		name: "by the environment",
		environment: map[string]string{
			"SHOP_KUBECONFIG": "a", "SHOP_KUBE_API_QPS": "20", "SHOP_KUBE_API_BURST": "30", "SHOP_NAMESPACE": "parlor",
			"SHOP_CONE_FLAVOR": "lemon", "SHOP_VERSION": "true",
		},
		want: defaults(func(o *options) {
			o.kubeconfig, o.qps, o.burst, o.namespace, o.version = "a", 20, 30, "parlor", true
		}),
		wantFlavor: "lemon",
	}, {
		name:        "the command line wins over the environment",
		environment: map[string]string{"SHOP_WORKERS": "3", "SHOP_NAMESPACE": "parlor"},
		args:        []string{"-workers", "4", "-namespace="},
		want:        defaults(func(o *options) { o.workers = 4 }),
	}, {
		name:        "variables of other programs mean nothing",
		environment: map[string]string{"WORKERS": "x", "SHOP_": "x", "SHOP_WORKER": "x", "SHOP_SERVICE_HOST": "10.0.0.1"},
		want:        defaults(),
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			var flavor string
			got, err := shop(&flavor).parse(tt.args)
			if err != nil {
				t.Fatal(err)
			}
			got.logging, got.flags = nil, nil
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if tt.wantFlavor == "" {
				tt.wantFlavor = "vanilla" // the default
			}
			if flavor != tt.wantFlavor {
				t.Errorf("flavor %q, want %q", flavor, tt.wantFlavor)
			}
		})
	}
}

// A program whose Lease has been renamed also respects the former one, unless its Lease
// is given another name.
func TestParseFormerLease(t *testing.T) {
	m := shop(new(string))
	m.FormerLeaseName = "stall-lease"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "stall-lease"},
		{[]string{"-leader-elect-resource-name=shop-lease"}, "stall-lease"},
		{[]string{"-leader-elect-resource-name=another"}, ""},
		{[]string{"-leader-elect-resource-name=another", "-leader-elect-former-resource-name=stall-lease"}, "stall-lease"},
		{[]string{"-leader-elect-former-resource-name=kiosk-lease"}, "kiosk-lease"},
		{[]string{"-leader-elect-resource-name=stall-lease", "-leader-elect-former-resource-name=stall-lease"}, ""},
		{[]string{"-leader-elect-former-resource-name=shop-lease"}, ""},
	} {
		o, err := m.parse(tt.args)
		if err != nil {
			t.Fatal(err)
		}
		if o.formerLease != tt.want {
			t.Errorf("%q: the former Lease is %q, want %q", tt.args, o.formerLease, tt.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	m := shop(new(string))
	m.Controllers[1].AddFlags = func(flags *flag.FlagSet) {
		flags.Bool("cake-glaze", true, "Whether it shines.")
		flags.Duration("cake-bake", time.Hour, "How long.")
		flags.Int("cake-layers", 3, "How many.")
		flags.Float64("cake-sugar", 0.5, "How much.")
		flags.Func("cake-cherry", "One more.", func(string) error { return nil })
	}
	var got strings.Builder
	if err := m.describe(&got); err != nil {
		t.Fatal(err)
	}
	var described []Description
	if err := json.Unmarshal([]byte(got.String()), &described); err != nil {
		t.Fatal(err)
	}
	want := []Description{
		{"cone", true, false, []FlagDescription{{"cone-flavor", "string", "vanilla", "What to fill cones with."}}},
		{"cake", false, true, []FlagDescription{
			{"cake-bake", "duration", "1h0m0s", "How long."},
			{"cake-cherry", "string", "", "One more."},
			{"cake-glaze", "boolean", "true", "Whether it shines."},
			{"cake-layers", "integer", "3", "How many."},
			{"cake-sugar", "number", "0.5", "How much."},
		}},
	}
	if diff := cmp.Diff(want, described); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
}

func TestParseLogging(t *testing.T) {
	t.Setenv("SHOP_V", "4")
	o, err := shop(new(string)).parse([]string{"-logging-format", "json"})
	if err != nil {
		t.Fatal(err)
	}
	if o.logging.Format != "json" || o.logging.Verbosity != 4 {
		t.Errorf("format %q and verbosity %d, want json and 4", o.logging.Format, o.logging.Verbosity)
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name        string
		environment map[string]string
		args        []string
		want        []string // to be found in one line
	}{
		{"a flag that does not exist", nil, []string{"-flavor"}, []string{"-flavor"}},
		{"a number that is none", nil, []string{"-workers", "many"}, []string{"-workers", `"many"`}},
		{"a duration without a unit", nil, []string{"-resync=10"}, []string{"-resync", `"10"`}},
		{"a flag without its value", nil, []string{"-workers"}, []string{"-workers"}},
		{"a variable with nonsense in it", map[string]string{"SHOP_KUBE_API_QPS": "fast"}, nil, []string{"$SHOP_KUBE_API_QPS", `"fast"`}},
		{"nonsense in a variable, although there is a flag", map[string]string{"SHOP_WORKERS": "x"}, []string{"-workers", "1"}, []string{"$SHOP_WORKERS"}},
		{"an argument", nil, []string{"-workers", "1", "cone"}, []string{`"cone"`}},
		{"no workers", nil, []string{"-workers", "0"}, []string{"-workers", "0"}},
		{"no workers, by the environment", map[string]string{"SHOP_WORKERS": "-1"}, nil, []string{"workers", "-1"}},
		{"a negative resync", nil, []string{"-resync", "-1s"}, []string{"-resync"}},
		{"a negative rate", nil, []string{"-kube-api-qps", "-1"}, []string{"-kube-api-qps"}},
		{"a controller that does not exist", nil, []string{"-controllers", "cone,cream"}, []string{"-controllers", `"cream"`, "cake, cone"}},
		{"no controller", nil, []string{"-controllers=-cone,*"}, []string{"-controllers", "nothing"}},
		{"an empty list of controllers", nil, []string{"-controllers="}, []string{"-controllers"}},
		{"no patience with the stuck", nil, []string{"-stuck-after", "0"}, []string{"-stuck-after"}},
		{"an address without a port", nil, []string{"-bind-address", "localhost"}, []string{"-bind-address", "localhost"}},
		{"plain HTTP for everybody", nil, []string{"-insecure-bind-address", ":8080"}, []string{"-insecure-bind-address", "127.0.0.1"}},
		{"a certificate without its key", nil, []string{"-tls-cert-file", "a"}, []string{"-tls-cert-file", "-tls-private-key-file"}},
		{"a controller in one namespace that cannot be", nil, []string{"-controllers", "cake", "-namespace", "team"}, []string{"-namespace=team", "cake"}},
		{"what a controller does not like", nil, []string{"-cone-flavor="}, []string{"-cone-flavor"}},
		{"a namespace that cannot exist", nil, []string{"-namespace", "Foo_Bar"}, []string{"-namespace", "Foo_Bar"}},
		{"a Lease that cannot exist", nil, []string{"-leader-elect-resource-name", "Foo_Bar"}, []string{"-leader-elect-resource-name", "Foo_Bar"}},
		{"a former Lease that cannot exist", nil, []string{"-leader-elect-former-resource-name", "a/b"}, []string{"-leader-elect-former-resource-name", "a/b"}},
		{"a Lease in a namespace that cannot exist", nil, []string{"-leader-elect-resource-namespace", "a.b"}, []string{"-leader-elect-resource-namespace", "a.b"}},
		{"a negative burst", nil, []string{"-kube-api-burst", "-1"}, []string{"-kube-api-burst"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			_, err := shop(new(string)).parse(tt.args)
			kittest.RequireOneLine(t, err, tt.want)
		})
	}
}

func TestHelp(t *testing.T) {
	stdout := os.Stdout
	t.Cleanup(func() { os.Stdout = stdout })
	file, err := os.Create(filepath.Join(t.TempDir(), "help"))
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = file
	if _, err := shop(new(string)).parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v, want that help was asked for", err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	help, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-kubeconfig", "-namespace", "-logging-format"} {
		if !strings.Contains(string(help), want) {
			t.Errorf("the help does not mention %s:\n%s", want, help)
		}
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestClientConfig(t *testing.T) {
	file := writeFile(t, kubeconfig)
	tests := []struct {
		name      string
		variable  string // $KUBECONFIG
		o         options
		wantHost  string
		wantQPS   float32
		wantBurst int
	}{
		{"a file", "", options{kubeconfig: file}, "https://parlor.example:6443", -1, 0},
		{"a file by $KUBECONFIG", file, options{}, "https://parlor.example:6443", -1, 0},
		{"the flag wins over $KUBECONFIG", "/nowhere", options{kubeconfig: file}, "https://parlor.example:6443", -1, 0},
		{"another address", "", options{kubeconfig: file, master: "https://elsewhere.example"}, "https://elsewhere.example", -1, 0},
		{"an address alone", "", options{master: "http://localhost:8001"}, "http://localhost:8001", -1, 0},
		{"a rate", "", options{kubeconfig: file, qps: 10}, "https://parlor.example:6443", 10, 21},
		{"a rate and a burst", "", options{kubeconfig: file, qps: 0.5, burst: 3}, "https://parlor.example:6443", 0.5, 3},
		{"a small rate", "", options{kubeconfig: file, qps: 0.1}, "https://parlor.example:6443", 0.1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			without(t, clientcmd.RecommendedConfigPathEnvVar, "KUBERNETES_SERVICE_HOST")
			if tt.variable != "" {
				t.Setenv(clientcmd.RecommendedConfigPathEnvVar, tt.variable)
			}
			config, err := clientConfig(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != tt.wantHost || config.QPS != tt.wantQPS || config.Burst != tt.wantBurst {
				t.Errorf("host %q, QPS %v, burst %d; want %q, %v, %d", config.Host, config.QPS, config.Burst, tt.wantHost, tt.wantQPS, tt.wantBurst)
			}
		})
	}
}

func TestClientConfigErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	tests := []struct {
		name     string
		variable string // $KUBECONFIG
		o        options
		want     []string
	}{
		{"nothing says where the cluster is", "", options{}, []string{"-kubeconfig", "$KUBECONFIG", "Pod"}},
		{"the file does not exist", "", options{kubeconfig: missing}, []string{missing}},
		{"the file is nonsense", "", options{kubeconfig: writeFile(t, "{")}, []string{"kubeconfig"}},
		{"$KUBECONFIG is nonsense", writeFile(t, "{"), options{}, []string{"kubeconfig"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			without(t, clientcmd.RecommendedConfigPathEnvVar, "KUBERNETES_SERVICE_HOST")
			if tt.variable != "" {
				t.Setenv(clientcmd.RecommendedConfigPathEnvVar, tt.variable)
			}
			_, err := clientConfig(tt.o)
			kittest.RequireOneLine(t, err, tt.want)
		})
	}
}

func TestRequiredFeatures(t *testing.T) {
	if err := requireFeatures(); err != nil {
		t.Errorf("by default: %v", err)
	}
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, false)
	err := shop(new(string)).Run(t.Context(), []string{"-kubeconfig=" + filepath.Join(t.TempDir(), "absent")})
	kittest.RequireOneLine(t, err, []string{"KUBE_FEATURE_AtomicFIFO"}) // and nothing of the kubeconfig
}

func TestProtobufCopiesTheConfig(t *testing.T) {
	config := &rest.Config{Host: "https://parlor.example"}
	got := Protobuf(config)
	if got.ContentType != "application/vnd.kubernetes.protobuf" || got.AcceptContentTypes != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("content type %q, accepting %q", got.ContentType, got.AcceptContentTypes)
	}
	if config.ContentType != "" || got.Host != config.Host {
		t.Errorf("made of %+v: %+v", config, got)
	}
}

// All clients that a controller makes of its config share a rate limit, and no other
// controller's do.
func TestRateLimitOfAController(t *testing.T) {
	for _, tt := range []struct {
		name       string
		qps        float64
		wantLimits int
	}{
		{"a rate", 10, 2},
		{"no rate", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits := map[flowcontrol.RateLimiter]string{}
			m := Manager{Name: "shop", LeaseName: "shop-lease"}
			for _, name := range []string{"cone", "cake"} {
				m.Controllers = append(m.Controllers, Descriptor{Name: name, OnByDefault: true, New: func(d Dependencies) (Controller, error) {
					for _, config := range []*rest.Config{d.Config, Protobuf(d.Config)} {
						if config.RateLimiter != nil {
							limits[config.RateLimiter] = name
						}
					}
					return &fakeController{}, nil
				}})
			}
			o := options{kubeconfig: writeFile(t, kubeconfig), qps: tt.qps, controllers: "*"}
			config, err := clientConfig(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.assemble(o, config); err != nil {
				t.Fatal(err)
			}
			if len(limits) != tt.wantLimits {
				t.Errorf("the clients of two controllers have %d rate limits, want %d: %v", len(limits), tt.wantLimits, limits)
			}
		})
	}
}

// fakeController is a controller whose state the test sets.
type fakeController struct {
	busy   time.Duration
	filled chan struct{}
	run    func(ctx context.Context) error
}

func (f *fakeController) Run(ctx context.Context, _ int) error { return f.run(ctx) }
func (f *fakeController) Busy() time.Duration                  { return f.busy }
func (f *fakeController) Ready() []cache.DoneChecker           { return []cache.DoneChecker{f} }
func (f *fakeController) Name() string                         { return "fake" }
func (f *fakeController) Done() <-chan struct{}                { return f.filled }

func TestChecks(t *testing.T) {
	c := &fakeController{filled: make(chan struct{})}
	p := &process{
		controllers: []running{{name: "fake", Controller: c}},
		recorder:    events.New(fake.NewClientset().EventsV1().Events, kubescheme.Scheme, clock.RealClock{}),
	}
	live, ready := p.checks(time.Minute)
	failing := func(checks []serve.Check) (names []string) {
		for _, check := range checks {
			if check.Err() != nil {
				names = append(names, check.Name)
			}
		}
		return names
	}
	for _, tt := range []struct {
		name                string
		change              func()
		wantLive, wantReady []string
	}{
		{"the caches are being filled", func() {}, nil, []string{"fake"}},
		{"the caches are filled", func() { close(c.filled) }, nil, nil},
		{"a worker takes its time", func() { c.busy = time.Minute }, nil, nil},
		{"a worker is stuck", func() { c.busy = time.Minute + 1 }, []string{"fake"}, nil},
		{"it was not after all", func() { c.busy = 0 }, nil, nil},
	} {
		tt.change()
		if got := failing(live); !slices.Equal(got, tt.wantLive) {
			t.Errorf("%s: /livez fails for %q, want %q", tt.name, got, tt.wantLive)
		}
		if got := failing(ready); !slices.Equal(got, tt.wantReady) {
			t.Errorf("%s: /readyz fails for %q, want %q", tt.name, got, tt.wantReady)
		}
	}
}

// The next leader must find nothing that is still being written: work returns when the
// controllers have returned, and their last events are written.
func TestWorkEndsWithTheLastEvent(t *testing.T) {
	client := fake.NewClientset()
	recorder := events.New(client.EventsV1().Events, kubescheme.Scheme, clock.RealClock{})
	recorded := recorder.For("fake-controller")
	stubborn := &fakeController{run: func(ctx context.Context) error {
		<-ctx.Done()
		for i := range 100 {
			recorded.Eventf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: fmt.Sprint("vanilla-", i%10)}}, nil, corev1.EventTypeNormal, "Ended", "End", "the last word, %d", i)
		}
		return nil
	}}
	failing := &fakeController{run: func(context.Context) error { return errors.New("no power") }}
	p := &process{workers: 2, controllers: []running{{stubborn, "stubborn", noCaches()}, {failing, "failing", noCaches()}}, recorder: recorder}
	err := p.work(t.Context()) // one that fails takes the other with it
	kittest.RequireOneLine(t, err, []string{"failing", "no power"})
	list, err := client.EventsV1().Events("parlor").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 100 {
		t.Errorf("%d events were written, want 100", len(list.Items))
	}
}

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://parlor.example:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`

// noCaches returns the caches of a controller that reads nothing.
func noCaches() *informer.Caches {
	return informer.New(func(string, string, time.Time) {}, clock.RealClock{})
}
