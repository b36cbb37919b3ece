package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

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
	hasBegun  bool
}

// inCluster runs a test in a bubble, with a controller that has these flags.
func inCluster(t *testing.T, args []string, test func(*testing.T, *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config := parse(t, args)
		s := &scripted{
			Cluster:  script.New(t, apiserver.Nodes(), apiserver.Pods(), apiserver.Leases()),
			t:        t,
			onList:   func(url.Values) {},
			recorded: make(chan string, 10000),
		}
		client := s.Config()
		client.Transport = s
		kube, err := kubernetes.NewForConfig(client)
		if err != nil {
			t.Fatal(err)
		}
		s.informers = kubeinformers.NewSharedInformerFactory(kube, 0)
		if s.Controller, err = NewController(config, kube, &record.FakeRecorder{Events: s.recorded},
			s.informers.Core().V1().Nodes(), s.informers.Coordination().V1().Leases()); err != nil {
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

// asked makes this the answers of Prometheus. It returns how often that was asked.
func (s *scripted) asked(answer func(n int64) ([]string, error)) *atomic.Int64 {
	var asked atomic.Int64
	s.firingAlerts = func(context.Context) ([]string, error) { return answer(asked.Add(1)) }
	return &asked
}

// etcdIsDown is the answer that an alert fires.
func etcdIsDown(int64) ([]string, error) { return []string{"EtcdNoLeader"}, nil }

// run runs the controller until the test ends, while the agents of these nodes report.
func (s *scripted) run(agents ...string) {
	s.begin(agents...)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(request.ReportEvery):
				s.report(agents...)
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// begin runs the controller until the test ends. The agents of these nodes have reported.
func (s *scripted) begin(agents ...string) {
	s.hasBegun = true
	s.report(agents...)
	ctx, cancel := context.WithCancel(s.t.Context())
	s.informers.StartWithContext(ctx)
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, 1) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		s.informers.Shutdown()
	})
	synctest.Wait()
}

func (s *scripted) report(agents ...string) {
	for _, name := range agents {
		lease := report(name, time.Now())
		for _, l := range script.All[coordinationv1.Lease](s.Cluster) {
			if l.Name == name {
				lease = l
				lease.Spec = report(name, time.Now()).Spec
			}
		}
		s.Set(lease)
	}
}

func (s *scripted) node(name string) *corev1.Node {
	synctest.Wait()
	return script.Get[corev1.Node](s.Cluster, "", name)
}

// events returns what was recorded since the last call.
func (s *scripted) events() (events []string) {
	synctest.Wait()
	for len(s.recorded) > 0 {
		events = append(events, <-s.recorded)
	}
	return events
}
