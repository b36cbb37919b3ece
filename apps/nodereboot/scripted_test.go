package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// scripted is a controller in a scripted cluster.
type scripted struct {
	*script.Cluster
	*Controller

	t         *testing.T
	onList    func(url.Values) // is told the parameters of each list of Nodes
	informers kubeinformers.SharedInformerFactory
	recorded  chan string
	waits     atomic.Int64 // how many lines of the log say that a node waits
	hasBegun  bool
}

// inCluster runs a test in a bubble, with a controller that has these flags.
func inCluster(t *testing.T, args []string, test func(*testing.T, *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{Cluster: script.New(t, apiserver.Nodes(), apiserver.Pods()), t: t, onList: func(url.Values) {}, recorded: make(chan string, 10000)}
		client := s.Config()
		client.Transport = s
		kube, err := kubernetes.NewForConfig(client)
		if err != nil {
			t.Fatal(err)
		}
		s.informers = kubeinformers.NewSharedInformerFactory(kube, 0)
		if s.Controller, err = NewController(parse(t, args), kube, &record.FakeRecorder{Events: s.recorded}, s.informers.Core().V1().Nodes()); err != nil {
			t.Fatal(err)
		}
		test(t, s)
		if !s.hasBegun { // its queue has goroutines
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = s.Run(ctx, 1)
		}
	})
}

// parse returns the configuration by these flags.
func parse(t *testing.T, args []string) (config Config) {
	t.Helper()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	addFlags(flags, &config)
	if err := errors.Join(flags.Parse(args), config.Validate()); err != nil {
		t.Fatal(err)
	}
	return config
}

// RoundTrip implements http.RoundTripper.
func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/nodes") && !query.Has("watch") {
		s.onList(query)
	}
	return s.Cluster.RoundTrip(r)
}

// prometheus makes this the answers to what alerts fire. It returns how often it was asked.
func (s *scripted) prometheus(answer func(n int64) ([]string, error)) *atomic.Int64 {
	var asked atomic.Int64
	s.firingAlerts = func(context.Context) ([]string, error) { return answer(asked.Add(1)) }
	return &asked
}

// etcdIsDown is the answer that an alert fires.
func etcdIsDown(int64) ([]string, error) { return []string{"EtcdNoLeader"}, nil }

// run runs the controller until the test ends, while the agents of these nodes answer within a second.
// None of them ever begins.
func (s *scripted) run(agents ...string) {
	s.hasBegun = true
	logger := funcr.New(func(_, line string) {
		if strings.Contains(line, "Node waits to reboot") {
			s.waits.Add(1)
		}
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), logger))
	s.informers.StartWithContext(ctx)
	ended := make(chan error, 2)
	go func() { ended <- s.Run(ctx, 1) }()
	go func() { ended <- s.answer(ctx, agents) }()
	s.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			s.t.Error(err)
		}
		s.informers.Shutdown()
	})
	synctest.Wait()
}

// answer has the agents of these nodes answer until ctx ends.
func (s *scripted) answer(ctx context.Context, agents []string) error {
	for len(agents) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		for _, n := range script.All[corev1.Node](s.Cluster) {
			if read := request.Read(n); slices.Contains(agents, n.Name) && read.Stage() == request.Chosen && !read.HasAnswered() {
				answer := *read.Record
				answer.ID, answer.IsDone = read.Grant.ID, false
				script.Edit(s.Cluster, "", n.Name, recorded(answer))
			}
		}
	}
	return nil
}

// node returns a node, and how far its grant has come.
func (s *scripted) node(name string) request.Node {
	synctest.Wait()
	return request.Read(script.Get[corev1.Node](s.Cluster, "", name))
}

// inStage returns the names of the nodes whose grants have come that far.
func (s *scripted) inStage(stage request.Stage) (names []string) {
	synctest.Wait()
	for _, n := range script.All[corev1.Node](s.Cluster) {
		if request.Read(n).Stage() == stage {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// change changes a node, and gives the controller a second.
func (s *scripted) change(name string, changes ...func(*corev1.Node)) {
	for _, change := range changes {
		script.Edit(s.Cluster, "", name, change)
	}
	time.Sleep(time.Second)
}

func without(annotation string) func(*corev1.Node) {
	return func(n *corev1.Node) { delete(n.Annotations, annotation) }
}

// events returns what was recorded since the last call.
func (s *scripted) events() (events []string) {
	synctest.Wait()
	for len(s.recorded) > 0 {
		events = append(events, <-s.recorded)
	}
	return events
}

// metric returns the values of a metric by its labels, such as "a TooSoon", in whole minutes if they are seconds.
func metric(t *testing.T, name string) map[string]float64 {
	t.Helper()
	synctest.Wait()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if strings.HasSuffix(name, "_seconds") {
				value = float64(int(value) / 60)
			}
			values[strings.Join(labels, " ")] = value
		}
	}
	return values
}
