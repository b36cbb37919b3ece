package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	icecreamclient "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	nodes = 5
	// launched is how many Icecreams exist when the program starts.
	launched     = 300
	clusterTitle = "300 Icecreams, each with a Pod"
	// singles is how many Icecreams are created one by one, for latencies. The pause is long
	// enough for all that follows from the previous one, such as its events.
	singles = 40
	pause   = 300 * time.Millisecond
	// idle is how long the program is observed while there is nothing to do.
	idle = 15 * time.Second
)

// The images of Icecreams, and those that some change to.
const (
	image     = "registry.nicoleh.io/cone:1.2.3"
	nextImage = "registry.nicoleh.io/cone:1.2.4"
)

// trial is a program that is measured on a cluster.
type trial struct {
	lab     *lab.Lab
	watcher *watcher
	process *lab.Controller
	figures
}

// measureOnCluster measures a program on a cluster of its own. It is an error if a status of
// the controller claims more than is true.
func measureOnCluster(ctx context.Context, p *program) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := lab.Open(ctx, lab.Options{Nodes: nodes})
	if err != nil {
		return nil, err
	}
	t := &trial{lab: l}
	err = t.measure(ctx, p)
	wrong := l.Close()
	if p.name == "baseline" {
		wrong = nil // its statuses do not have the conditions that the lab checks
	}
	return t.figures, errors.Join(err, wrong)
}

func (t *trial) measure(ctx context.Context, p *program) (err error) {
	info, err := os.Stat(p.binary)
	if err != nil {
		return err
	}
	t.add("Program, without symbols, MB", float64(info.Size())/1e6)
	if t.watcher, err = startWatcher(ctx, t.lab); err != nil {
		return err
	}
	if err := t.start(ctx, p); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.process.Terminate()) }()
	for _, step := range []func(context.Context) error{t.nothing, t.launch, t.update, t.creations, t.changes, t.rest} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts a program under an account of its own. Unlike the shipped account, no policy
// restricts that, which would cost each write up to a millisecond in the API server.
func (t *trial) start(ctx context.Context, p *program) error {
	name, namespace := metav1.ObjectMeta{Name: p.name}, lab.SystemNamespace
	if _, err := t.lab.Kube.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := t.lab.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: p.name}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	kubeconfig, err := t.lab.ServiceAccountKubeconfig(ctx, namespace, p.name)
	if err != nil {
		return err
	}
	t.process = t.lab.NewProgram(p.binary, append([]string{"-kubeconfig=" + kubeconfig}, p.flags...)...)
	t.process.User = "system:serviceaccount:" + namespace + ":" + p.name
	return t.process.Launch()
}

// nothing measures the program while there are no Icecreams, and stops it.
func (t *trial) nothing(context.Context) error {
	time.Sleep(idle)
	used, err := usageOf(t.process.PID())
	t.add("Resident memory with nothing to do, MB", used.memory)
	return errors.Join(err, t.process.Terminate())
}

// launch measures how long the program takes for Icecreams that were there before it, and
// what it uses and requests for them.
func (t *trial) launch(ctx context.Context) error {
	names := launchedNames()
	if err := each(names, func(name string) error { return t.create(ctx, name) }); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until the API server has calmed down
	began := time.Now()
	if err := t.process.Launch(); err != nil {
		return err
	}
	allDeployed, err := t.watcher.await(ctx, deployed, names...)
	if err != nil {
		return err
	}
	allReported, err := t.watcher.await(ctx, reported, names...)
	if err != nil {
		return err
	}
	used, err := usageOf(t.process.PID())
	if err != nil {
		return err
	}
	requests, err := t.untilQuiet(ctx, began)
	if err != nil {
		return err
	}
	t.add("Launch until all Deployments are correct, s", allDeployed.Sub(began).Seconds())
	t.add("Launch until all statuses are correct, s", allReported.Sub(began).Seconds())
	t.add("CPU time until then, s", used.cpu)
	t.add("Resident memory then, MB", used.memory)
	isEvent := func(e *cluster.AuditEvent) bool { return e.Resource == "events" }
	isOther := func(e *cluster.AuditEvent) bool {
		isRead := e.Verb == "watch" || e.Verb == "list" || e.Resource == ""
		return !isRead && !isEvent(e)
	}
	t.add("Requests for each Icecream, without events", float64(len(requests.Where(isOther)))/launched)
	t.add("Events for each Icecream", float64(len(requests.Where(isEvent)))/launched)
	t.add("Conflicts (409)", float64(len(requests.Code(409))))
	fmt.Fprintln(os.Stderr, requests)
	return nil
}

// update gives all Icecreams another image at once, and measures what it costs to replace their Pods.
func (t *trial) update(ctx context.Context) error {
	names, began := launchedNames(), time.Now()
	before, err := usageOf(t.process.PID())
	if err != nil {
		return err
	}
	t.watcher.takeAges()
	if err := each(names, func(name string) error { return t.change(ctx, name) }); err != nil {
		return err
	}
	if _, err := t.watcher.await(ctx, updated, names...); err != nil {
		return err
	}
	after, err := usageOf(t.process.PID())
	if err != nil {
		return err
	}
	requests, err := t.untilQuiet(ctx, began)
	if err != nil {
		return err
	}
	ages := t.watcher.takeAges()
	t.add("Change of all: CPU time, s", after.cpu-before.cpu)
	t.add("Change of all: statuses for each Icecream", float64(len(requests.Resource("icecreams/status").Writes()))/launched)
	t.add("Change of all: conflicts (409)", float64(len(requests.Code(409))))
	t.add("Change of all: counts are behind the Deployment's, 99th percentile, s", ages[len(ages)*99/100])
	t.add("Change of all: counts are behind the Deployment's, at most, s", ages[len(ages)-1])
	return nil
}

// launchedNames returns the names of the Icecreams that exist when the program starts.
func launchedNames() []string {
	names := make([]string, launched)
	for i := range names {
		names[i] = fmt.Sprintf("launched-%04d", i)
	}
	return names
}

// each calls do with each name, ten at a time.
func each(names []string, do func(name string) error) error {
	var doing errgroup.Group
	doing.SetLimit(10)
	for _, name := range names {
		doing.Go(func() error { return do(name) })
	}
	return doing.Wait()
}

// change gives an Icecream another image.
func (t *trial) change(ctx context.Context, name string) error {
	_, err := t.icecreams().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"image":%q}}`, nextImage), metav1.PatchOptions{})
	return err
}

// creations measures how long it takes to do all for one new Icecream while nothing else
// happens.
func (t *trial) creations(ctx context.Context) error {
	var toDeployment, toStatus, fromPods []float64
	for i := range singles {
		time.Sleep(pause)
		name, began := nameOf(i), time.Now()
		if err := t.create(ctx, name); err != nil {
			return err
		}
		reportedAt, err := t.watcher.await(ctx, reported, name)
		if err != nil {
			return err
		}
		deployedAt, err := t.watcher.await(ctx, deployed, name)
		if err != nil {
			return err
		}
		availableAt, err := t.watcher.await(ctx, available, name)
		if err != nil {
			return err
		}
		toDeployment = append(toDeployment, milliseconds(began, deployedAt))
		toStatus = append(toStatus, milliseconds(began, reportedAt))
		fromPods = append(fromPods, milliseconds(availableAt, reportedAt))
	}
	t.add("Creation of one until its Deployment exists, median, ms", median(toDeployment))
	t.add("Creation of one until its status is correct, median, ms", median(toStatus))
	t.add("All Pods available until the status is correct, median, ms", median(fromPods))
	return nil
}

// changes measures how long it takes to carry out a change of one Icecream while nothing
// else happens, and the program's own part of that: the time from the API server's response
// to the change until it has the program's request for the Deployment.
func (t *trial) changes(ctx context.Context) error {
	var toDeployment, toRequest []float64
	mark := time.Now()
	for i := range singles {
		time.Sleep(pause)
		began := time.Now()
		if err := t.change(ctx, nameOf(i)); err != nil {
			return err
		}
		changedAt, err := t.watcher.await(ctx, changed, nameOf(i))
		if err != nil {
			return err
		}
		toDeployment = append(toDeployment, milliseconds(began, changedAt))
	}
	all, err := t.lab.AllRequests()
	if err != nil {
		return err
	}
	all = all.Since(mark)
	done := all.By(t.process.User).Resource("deployments")
	for _, change := range all.Resource("icecreams").Where(func(e *cluster.AuditEvent) bool { return e.Verb == "patch" }) {
		answers := done.Since(change.Received).Where(func(e *cluster.AuditEvent) bool { return e.Name == change.Name })
		if len(answers) == 0 {
			return fmt.Errorf("no request for the Deployment of %s in the audit log", change.Name)
		}
		toRequest = append(toRequest, milliseconds(change.StageTimestamp, answers[0].Received))
	}
	t.add("Change of one until its Deployment has changed, median, ms", median(toDeployment))
	t.add("Change of one until the API server has the request for the Deployment, median, ms", median(toRequest))
	return nil
}

// rest counts what the program sends when there is nothing to do, and after a restart.
func (t *trial) rest(ctx context.Context) error {
	if _, err := t.untilQuiet(ctx, time.Now()); err != nil {
		return err
	}
	mark := time.Now()
	time.Sleep(idle)
	all, err := t.lab.AllRequests()
	if err != nil {
		return err
	}
	sent := all.By(t.process.User).Since(mark).Where(func(e *cluster.AuditEvent) bool { return e.Verb != "watch" })
	t.add("Requests with nothing to do", float64(len(sent)))
	if err := t.process.Terminate(); err != nil {
		return err
	}
	mark = time.Now()
	if err := t.process.Launch(); err != nil {
		return err
	}
	time.Sleep(idle)
	sent, err = t.untilQuiet(ctx, mark)
	t.add("Writes after a restart", float64(len(sent.Writes())))
	return err
}

// untilQuiet waits until the program has sent nothing for five seconds, and returns what it
// has sent since mark.
func (t *trial) untilQuiet(ctx context.Context, mark time.Time) (lab.Requests, error) {
	for n := -1; ; time.Sleep(5 * time.Second) {
		all, err := t.lab.AllRequests()
		if err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		sent := all.By(t.process.User).Since(mark)
		if len(sent) == n {
			return sent, nil
		}
		n = len(sent)
	}
}

func (t *trial) icecreams() icecreamclient.IcecreamInterface {
	return t.lab.Icecreams.SamplecontrollerV1alpha1().Icecreams(metav1.NamespaceDefault)
}

// create creates an Icecream with one Pod, which leaves room for many on a node.
func (t *trial) create(ctx context.Context, name string) error {
	ice, little := newIcecream(name, 1), resource.MustParse("1m")
	ice.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: little, corev1.ResourceMemory: little}
	_, err := t.icecreams().Create(ctx, ice, metav1.CreateOptions{})
	return err
}

// nameOf returns the name of one of the Icecreams that are created one by one.
func nameOf(single int) string { return fmt.Sprintf("single-%04d", single) }

func milliseconds(from, to time.Time) float64 { return to.Sub(from).Seconds() * 1e3 }

// usage is what a process has used.
type usage struct {
	cpu    float64 // seconds in user and system mode
	memory float64 // MB that are resident now
	peak   float64 // MB that were resident at most
}

// usageOf reads what a process has used from /proc.
func usageOf(pid int) (usage, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, err
	}
	stat, err := process.Stat()
	if err != nil {
		return usage{}, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: stat.CPUTime(), memory: float64(status.VmRSS) / 1e6, peak: float64(status.VmHWM) / 1e6}, nil
}
