package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

// lightly is a request for CPU and memory that leaves room for many Pods on a node.
var lightly = resource.MustParse("1m")

const (
	nodes = 5
	// singles is how many Icecreams are created one by one, for latencies, and pause is how long
	// before the next, so that nothing is left of the last one: its events for example.
	singles = 40
	pause   = 300 * time.Millisecond
	// While nothing happens.
	idle = 15 * time.Second
)

// measure measures one program on a cluster of its own.
func measure(ctx context.Context, p *program, size int) (figures map[string]float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := lab.Open(ctx, lab.Options{Nodes: nodes})
	if err != nil {
		return nil, err
	}
	defer func() {
		// What the witness of the lab has found wrong, among others.
		wrong := l.Close()
		if err != nil {
			return
		}
		figures["10 statuses that were not true"] = 0
		if wrong != nil {
			figures["10 statuses that were not true"] = float64(strings.Count(wrong.Error(), "\n") + 1)
			fmt.Fprintf(os.Stderr, "%.1000v\n", wrong)
		}
	}()
	w, err := startWatcher(ctx, l)
	if err != nil {
		return nil, err
	}
	b := &bench{lab: l, watcher: w, figures: map[string]float64{}}
	if b.process, err = start(ctx, l, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.process.Terminate()) }()
	for _, step := range []func(context.Context) error{
		b.empty,
		func(ctx context.Context) error { return b.cold(ctx, size) },
		b.latency,
		b.rest,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(p.binary)
	if err != nil {
		return nil, err
	}
	b.figures["07 binary, stripped, MB"] = float64(info.Size()) / 1e6
	return b.figures, nil
}

// bench is a program that is being measured.
type bench struct {
	lab     *lab.Lab
	watcher *watcher
	process *lab.Controller
	figures map[string]float64
}

// start starts a program under an account of its own. Unlike the shipped account, no policy
// restricts that, which would cost each write up to a millisecond in the API server.
func start(ctx context.Context, l *lab.Lab, p *program) (*lab.Controller, error) {
	name, namespace := metav1.ObjectMeta{Name: p.name}, lab.SystemNamespace
	if _, err := l.Kube.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if _, err := l.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: p.name}},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	kubeconfig, err := l.ServiceAccountKubeconfig(ctx, namespace, p.name)
	if err != nil {
		return nil, err
	}
	c := l.NewProgram(p.binary, append([]string{"-kubeconfig=" + kubeconfig}, p.flags...)...)
	c.User = "system:serviceaccount:" + namespace + ":" + p.name
	err = c.Launch()
	return c, err
}

// empty measures the program while there is nothing to do.
func (b *bench) empty(context.Context) error {
	time.Sleep(idle)
	used, err := usageOf(b.process.PID())
	used.record(b.figures, "06 RSS with nothing to do")
	return errors.Join(err, b.process.Terminate())
}

// cold measures how long the program takes for Icecreams that were there before it.
func (b *bench) cold(ctx context.Context, size int) error {
	var creating errgroup.Group
	creating.SetLimit(10)
	for i := range size {
		creating.Go(func() error {
			_, err := b.lab.Icecreams.SamplecontrollerV1alpha1().Icecreams(metav1.NamespaceDefault).Create(ctx, newIcecream(fmt.Sprintf("cold-%04d", i), 1), metav1.CreateOptions{})
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until the API server has calmed down
	began := time.Now()
	if err := b.process.Launch(); err != nil {
		return err
	}
	deployed, err := b.watcher.await(ctx, "Deployments", b.watcher.deployments, size)
	if err != nil {
		return err
	}
	reported, err := b.watcher.await(ctx, "statuses", b.watcher.statuses, size)
	if err != nil {
		return err
	}
	used, err := usageOf(b.process.PID())
	if err != nil {
		return err
	}
	b.figures["01 cold start: Deployments correct, s"] = deployed.Sub(began).Seconds()
	b.figures["02 cold start: every status correct, s"] = reported.Sub(began).Seconds()
	b.figures["04 CPU of it, s"] = used.cpu.Seconds()
	used.record(b.figures, "05 RSS after it")
	return b.count(ctx, began, size)
}

// count counts what the program has sent since some time, once it is quiet.
func (b *bench) count(ctx context.Context, since time.Time, size int) error {
	requests, err := b.quiet(ctx, since)
	if err != nil {
		return err
	}
	perObject := func(r lab.Requests) float64 { return float64(len(r)) / float64(size) }
	isEvent := func(e *cluster.AuditEvent) bool { return e.Resource == "events" }
	isRead := func(e *cluster.AuditEvent) bool { return e.Verb == "watch" || e.Verb == "list" || e.Resource == "" }
	b.figures["08 requests per Icecream"] = perObject(requests.Where(func(e *cluster.AuditEvent) bool { return !isEvent(e) && !isRead(e) }))
	b.figures["08 requests for events per Icecream"] = perObject(requests.Where(isEvent))
	b.figures["08 conflicts"] = float64(len(requests.Code(409)))
	fmt.Fprintln(os.Stderr, requests)
	return nil
}

// quiet waits until the program has sent nothing for five seconds, and returns what it has
// sent since some time.
func (b *bench) quiet(ctx context.Context, since time.Time) (lab.Requests, error) {
	for n := -1; ; time.Sleep(5 * time.Second) {
		all, err := b.lab.AllRequests()
		if err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		sent := all.By(b.process.User).Since(since)
		if len(sent) == n {
			return sent, nil
		}
		n = len(sent)
	}
}

// latency measures how long it takes to do all for one Icecream while nothing else happens,
// and how much of that the program itself takes.
func (b *bench) latency(ctx context.Context) error {
	icecreams := b.lab.Icecreams.SamplecontrollerV1alpha1().Icecreams(metav1.NamespaceDefault)
	var deployments, statuses, reports, changes []float64
	mark := time.Now()
	for i := range singles {
		time.Sleep(pause)
		name := singleName(i)
		began := time.Now()
		if _, err := icecreams.Create(ctx, newIcecream(name, 1), metav1.CreateOptions{}); err != nil {
			return err
		}
		deployed, err := b.watcher.awaitOne(ctx, b.watcher.deployments, name)
		if err != nil {
			return err
		}
		reported, err := b.watcher.awaitOne(ctx, b.watcher.statuses, name)
		if err != nil {
			return err
		}
		available, err := b.watcher.awaitOne(ctx, b.watcher.available, name)
		if err != nil {
			return err
		}
		deployments = append(deployments, milliseconds(began, deployed))
		statuses = append(statuses, milliseconds(began, reported))
		reports = append(reports, milliseconds(available, reported))
	}
	for i := range singles {
		time.Sleep(pause)
		began := time.Now()
		if _, err := icecreams.Patch(ctx, singleName(i), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"image":%q}}`, nextImage), metav1.PatchOptions{}); err != nil {
			return err
		}
		changed, err := b.watcher.awaitOne(ctx, b.watcher.changes, singleName(i))
		if err != nil {
			return err
		}
		changes = append(changes, milliseconds(began, changed))
	}
	slices.Sort(statuses)
	b.figures["03 create to Deployment, p50, ms"] = median(deployments)
	b.figures["03 create to status, p50, ms"] = median(statuses)
	b.figures["03 Pods available to status, p50, ms"] = median(reports)
	b.figures["03 create to status, p95, ms"] = statuses[len(statuses)*95/100]
	b.figures["03 change to Deployment, p50, ms"] = median(changes)
	return b.reaction(mark)
}

func singleName(i int) string { return fmt.Sprintf("single-%04d", i) }

func milliseconds(from, to time.Time) float64 { return to.Sub(from).Seconds() * 1e3 }

// reaction measures the program's own part of the latencies, by the API server's audit log:
// the time from its response to the request for an Icecream, or for a change of it, until it
// has the program's request for the Deployment.
func (b *bench) reaction(since time.Time) error {
	all, err := b.lab.AllRequests()
	if err != nil {
		return err
	}
	all = all.Since(since)
	asked, done := all.Resource("icecreams"), all.By(b.process.User).Resource("deployments")
	for _, kind := range []struct{ row, verb string }{{"create", "create"}, {"change", "patch"}} {
		var took []float64
		for _, request := range asked.Where(func(e *cluster.AuditEvent) bool { return e.Verb == kind.verb }) {
			answers := done.Since(request.Received).Where(func(e *cluster.AuditEvent) bool { return e.Name == request.Name })
			if len(answers) == 0 {
				return fmt.Errorf("no request for the Deployment of %s in the audit log", request.Name)
			}
			took = append(took, milliseconds(request.StageTimestamp, answers[0].Received))
		}
		b.figures["03 "+kind.row+" to request for Deployment, p50, ms"] = median(took)
	}
	return nil
}

// rest counts what the program sends when there is nothing to do, and after a restart.
func (b *bench) rest(ctx context.Context) error {
	if _, err := b.quiet(ctx, time.Now()); err != nil {
		return err
	}
	isSent := func(e *cluster.AuditEvent) bool { return e.Verb != "watch" }
	mark := time.Now()
	time.Sleep(idle)
	all, err := b.lab.AllRequests()
	if err != nil {
		return err
	}
	b.figures["09 idle: requests"] = float64(len(all.By(b.process.User).Since(mark).Where(isSent)))
	if err := b.process.Terminate(); err != nil {
		return err
	}
	mark = time.Now()
	if err := b.process.Launch(); err != nil {
		return err
	}
	time.Sleep(idle)
	sent, err := b.quiet(ctx, mark)
	b.figures["09 writes after a restart"] = float64(len(sent.Writes()))
	return err
}
