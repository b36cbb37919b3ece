package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

// Namespace is where stories take place.
const Namespace = simulation.Namespace

// Theater is where the stories of a controller are played on the model, each in a bubble of its own time.
type Theater struct {
	// Kinds are what the API server knows besides namespaces, Deployments, ReplicaSets and Pods.
	Kinds []apiserver.Kind
	// Show says what a story shows of an object, by the name of its kind: a template of JSONPath as
	// kubectl takes it. Of other kinds, nothing is shown.
	Show map[string]string
	// Tell replaces Show for kinds that no template can describe.
	Tell map[string]func(obj *unstructured.Unstructured) string
	// Do carries out a command that only this controller's stories have, and returns what it shows; isKnown is false
	// if they do not have it, either. Do can be nil.
	Do func(t *testing.T, c *Cluster, d *datadriven.TestData) (shown string, isKnown bool)
	// Start starts the controller. It runs until stop is called, which waits for its end.
	Start func(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func())
}

// ReadShow reads a Theater's Show from a file in YAML.
func ReadShow(t *testing.T, file string) (show map[string]string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(content, &show)
	}
	if err != nil {
		t.Fatal(err)
	}
	return show
}

// Run runs a controller until stop is called, as Start should. run returns once its context ends, and an error fails
// the test.
func Run(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Play plays the stories in a directory, each as a test of its own.
func (p Theater) Play(t *testing.T, dir string) {
	t.Helper()
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := p.begin(t)
			s.path = path
			defer s.stop()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				t.Helper()
				return s.do(t, d)
			})
		})
	})
}

// story is one that is being played on the model.
type story struct {
	*Cluster
	Theater
	path      string
	counted   apiserver.Store // what there was when it was last counted
	recorder  *recorder
	workloads *simulation.Workloads
	denials   []rule
	changes   []rule
	cancel    context.CancelFunc
	acting    sync.WaitGroup
	halt      func() // stops the controller; nil if it does not run
}

func (p Theater) begin(t *testing.T) *story {
	kinds := append([]apiserver.Kind{
		apiserver.Namespaces(), apiserver.Deployments(), apiserver.ReplicaSets(), apiserver.Pods(),
	}, p.Kinds...)
	s := &story{Cluster: New(t, kinds...), Theater: p, recorder: &recorder{reasons: map[string][]string{}}, workloads: simulation.Still(kinds...)}
	s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	s.admit, s.mutate = s.admission, s.mutation
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	s.acting.Go(func() { s.act(ctx) })
	return s
}

// act has kube-controller-manager, the scheduler and the kubelets do what is due.
func (s *story) act(ctx context.Context) {
	for {
		s.mu.Lock()
		steps, next := s.workloads.ActOn(s.store)
		for _, after := range steps {
			s.commit(after)
		}
		s.mu.Unlock()
		wait := time.NewTimer(time.Hour)
		if !next.IsZero() {
			wait.Reset(max(time.Millisecond, time.Until(next)))
		}
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		case <-s.changed:
			wait.Stop()
			time.Sleep(10 * time.Millisecond) // They have caches, too.
		}
	}
}

func (s *story) stop() {
	if s.halt != nil {
		s.halt()
	}
	s.cancel()
	s.acting.Wait()
}

// do carries out one command.
func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	arg := arguments{t, d}
	switch d.Cmd {
	case "also":
		return "" // It is for a real control plane.
	case "begin":
		begin(t, s.path, arg, func(d *datadriven.TestData) { s.do(t, d) })
		s.recorder.take()
		s.count()
		return ""
	case "start":
		if s.halt == nil {
			s.halt = s.Start(t, s.Config(), s.recorder)
			synctest.Wait() // Its caches are filled.
		}
		return ""
	case "stop":
		if s.halt != nil {
			s.halt()
			s.halt = nil
		}
		return ""
	case "wait":
		time.Sleep(arg.duration())
		synctest.Wait()
		return s.show(t)
	case "pass":
		if len(d.CmdArgs) > 1 {
			s.repeat(t, arg)
		} else {
			time.Sleep(arg.duration())
			synctest.Wait()
		}
		return ""
	case "deny":
		s.rule(&s.denials, arg)
		return ""
	case "change":
		s.rule(&s.changes, arg)
		return ""
	case "allow":
		s.mu.Lock()
		s.denials, s.changes = nil, nil
		s.mu.Unlock()
		return ""
	case "fail":
		s.fail(arg)
		return ""
	case "slow":
		s.slow(arg)
		return ""
	case "hold":
		s.hold(arg.key(0))
		return ""
	case "release":
		s.release(arg.key(0))
		return ""
	case "relist":
		s.expire(arg.key(0))
		return ""
	case "full", "reject", "quota":
		s.mu.Lock()
		until := map[string]*time.Time{"full": &s.workloads.FullUntil, "reject": &s.workloads.RejectUntil, "quota": &s.workloads.QuotaUntil}[d.Cmd]
		*until = time.Now().Add(arg.duration())
		s.mu.Unlock()
		return ""
	case "count":
		s.count()
		return ""
	case "at-most":
		return s.atMost(arg)
	case "lost":
		return s.lost(arg)
	case "says":
		return s.says(arg)
	case "told":
		return s.told(arg)
	case "metric":
		return metric(arg)
	case "get":
		return s.get(arg)
	}
	if s.Do != nil {
		if shown, isKnown := s.Do(t, s.Cluster, d); isKnown {
			synctest.Wait()
			return shown
		}
	}
	if d.Cmd != "apply" && len(named(t, s.Store(), arg.key(0))) == 0 {
		d.Fatalf(t, "there is no %s", arg.key(0))
	}
	s.write(t, d)
	synctest.Wait()
	return ""
}

// count begins to count.
func (s *story) count() {
	s.forgetRequests()
	s.recorder.count()
	s.counted = s.Store()
}

// write has somebody create, edit or delete objects.
func (s *story) write(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	arg := arguments{t, d}
	switch d.Cmd {
	case "apply":
		for _, obj := range documents(t, d) {
			s.apply(t, obj)
		}
	case "edit":
		s.each(t, arg.key(0), func(server *apiserver.Server, store apiserver.Store, now time.Time, obj *unstructured.Unstructured) (apiserver.Store, error) {
			edited := obj.DeepCopy()
			for _, field := range d.CmdArgs[1:] {
				setField(t, d, edited.Object, field)
			}
			if equalJSON(obj.Object, edited.Object) {
				return store, nil
			}
			return s.set(server, store, now, edited)
		})
	case "delete":
		policy := propagation(arg)
		options := metav1.DeleteOptions{PropagationPolicy: &policy}
		s.each(t, arg.key(0), func(server *apiserver.Server, store apiserver.Store, now time.Time, obj *unstructured.Unstructured) (apiserver.Store, error) {
			return server.Delete(store, now, s.keyOf(obj), options)
		})
	case "crash":
		s.onPods(t, arg, simulation.Crash)
	case "flip":
		s.onPods(t, arg, simulation.Flip)
	default:
		d.Fatalf(t, "there is no command %q", d.Cmd)
	}
}

// onPods has something happen to Pods.
func (s *story) onPods(t *testing.T, arg arguments, what func(*corev1.Pod)) {
	t.Helper()
	for _, pod := range named(t, s.Store(), arg.key(0)) {
		Edit(s.Cluster, pod.GetNamespace(), pod.GetName(), what)
	}
}

func propagation(arg arguments) metav1.DeletionPropagation {
	policy := metav1.DeletePropagationBackground
	if len(arg.d.CmdArgs) > 1 {
		policy = map[string]metav1.DeletionPropagation{
			"orphan": metav1.DeletePropagationOrphan, "foreground": metav1.DeletePropagationForeground,
		}[arg.key(1)]
	}
	return policy
}

// apply creates an object, or merges it into the one that there is.
func (s *story) apply(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	isClusterWide := func(kind apiserver.Kind) bool { return kind.Kind == obj.GetKind() && !kind.Namespaced }
	if obj.GetKind() != "Namespace" && !slices.ContainsFunc(s.Kinds, isClusterWide) {
		obj.SetNamespace(cmp.Or(obj.GetNamespace(), Namespace))
	}
	s.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
		if live := store.Objects[s.keyOf(obj)]; live != nil {
			merged := live.DeepCopy()
			merge(merged.Object, obj.Object)
			obj = merged
		}
		return s.set(server, store, now, obj)
	})
}

// merge is a JSON merge patch (RFC 7386).
func merge(into, from map[string]any) {
	for key, value := range from {
		inside, isMap := value.(map[string]any)
		there, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(there, inside)
		default:
			into[key] = value
		}
	}
}

// repeat has somebody do something again and again. An edit that changes nothing is not done, so an
// edit that is repeated is a client that sets a field whenever somebody else has changed it. {} in a
// value is how often it was done, and {a|b} is a and b in turn.
func (s *story) repeat(t *testing.T, arg arguments) {
	t.Helper()
	total, every := arg.duration(), arg.durationOf("every")
	end := time.Now().Add(total)
	inner := arg.d.CmdArgs[2:]
	for n := 0; time.Now().Before(end); n++ {
		again := *arg.d
		again.Cmd, again.CmdArgs, again.Input = inner[0].Key, nil, inTurn(arg.d.Input, n)
		for _, a := range inner[1:] {
			a.Vals = slices.Clone(a.Vals)
			for i := range a.Vals {
				a.Vals[i] = inTurn(a.Vals[i], n)
			}
			again.CmdArgs = append(again.CmdArgs, a)
		}
		s.write(t, &again)
		time.Sleep(every)
	}
	synctest.Wait()
}

var braces = regexp.MustCompile(`\{([^{}\s|]*\|[^{}\s]*)?\}`)

// inTurn returns a text as it is when something is done for the n-th time, beginning at 0.
func inTurn(text string, n int) string {
	return braces.ReplaceAllStringFunc(text, func(found string) string {
		choices := strings.Split(strings.Trim(found, "{}"), "|")
		if len(choices) == 1 {
			return strconv.Itoa(n)
		}
		return choices[n%len(choices)]
	})
}

// each takes a step with each object that KIND/NAME is about.
func (s *story) each(t *testing.T, name string, do func(*apiserver.Server, apiserver.Store, time.Time, *unstructured.Unstructured) (apiserver.Store, error)) {
	t.Helper()
	for _, found := range named(t, s.Store(), name) {
		s.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
			obj := store.Objects[s.keyOf(found)]
			if obj == nil {
				return store, nil
			}
			return do(server, store, now, obj)
		})
	}
}

// named returns the objects that KIND/NAME or KIND/NAMESPACE/NAME is about, in which the names can be patterns.
func named(t *testing.T, store apiserver.Store, name string) (found []*unstructured.Unstructured) {
	t.Helper()
	for _, key := range slices.SortedFunc(maps.Keys(store.Objects), func(a, b apiserver.Key) int { return strings.Compare(a.Name, b.Name) }) {
		if obj := store.Objects[key]; isNamed(t, obj, name) {
			found = append(found, obj)
		}
	}
	return found
}

func isNamed(t *testing.T, obj *unstructured.Unstructured, name string) bool {
	t.Helper()
	kind, pattern, _ := strings.Cut(name, "/")
	name = obj.GetName()
	if strings.Contains(pattern, "/") {
		name = obj.GetNamespace() + "/" + name
	}
	matches, err := path.Match(pattern, name)
	if err != nil {
		t.Fatal(err)
	}
	return matches && strings.EqualFold(obj.GetKind(), kind)
}

// show says which events there were since it was last called, and what is stored.
func (s *story) show(t *testing.T) string {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, obj := range s.Store().Objects {
		objects = append(objects, obj)
	}
	lines := shown(t, s.Show, objects)
	for _, obj := range objects {
		if tell := s.Tell[obj.GetKind()]; tell != nil {
			lines = append(lines, fmt.Sprintf("%s %s %s", obj.GetKind(), obj.GetName(), tell(obj)))
		}
	}
	slices.Sort(lines)
	return strings.Join(append(s.recorder.take(), lines...), "\n")
}

// shown says what there is of objects, in a line each.
func shown(t *testing.T, show map[string]string, objects []*unstructured.Unstructured) (lines []string) {
	t.Helper()
	for _, obj := range objects {
		template, ok := show[obj.GetKind()]
		if !ok {
			continue
		}
		printer := jsonpath.New(obj.GetKind()).AllowMissingKeys(true)
		var said strings.Builder
		if err := errors.Join(printer.Parse(template), printer.Execute(&said, obj.Object)); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", obj.GetKind(), obj.GetName(), said.String())))
	}
	slices.Sort(lines)
	return lines
}

// atMost says how many requests or events there were since the last count, if there were more.
func (s *story) atMost(arg arguments) string {
	most, err := strconv.Atoi(arg.key(0))
	if err != nil {
		arg.d.Fatalf(arg.t, "%v", err)
	}
	words := []string{arg.key(1)}
	for _, a := range arg.d.CmdArgs[2:] {
		words = append(words, a.Key)
	}
	got := 0
	switch words[0] {
	case "writes":
		for _, n := range s.Writes() {
			got += n
		}
	case "events":
		got = len(s.recorder.messages(arg.key(2)))
	default:
		got = s.Requests(strings.Join(words, " "))
	}
	if got > most {
		return fmt.Sprintf("%d", got)
	}
	return ""
}

// lost says how many of the objects that there were at the last count are gone, even if others have
// their names.
func (s *story) lost(arg arguments) string {
	n, store := 0, s.Store()
	for _, obj := range named(arg.t, s.counted, arg.key(0)) {
		if is := store.Objects[s.keyOf(obj)]; is == nil || is.GetUID() != obj.GetUID() {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// says shows the message of an object's condition Ready unless it has the words of the input.
func (s *story) says(arg arguments) string {
	for _, obj := range named(arg.t, s.Store(), arg.key(0)) {
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			message, _ := condition["message"].(string)
			if condition["type"] == "Ready" {
				if strings.Contains(message, strings.TrimSpace(arg.d.Input)) {
					return ""
				}
				return message
			}
		}
	}
	return "nothing"
}

// told shows the last message with a reason since the last count unless one has the words of the input.
func (s *story) told(arg arguments) string {
	messages := append([]string{"nothing"}, s.recorder.messages(arg.key(0))...)
	for _, message := range messages[1:] {
		if strings.Contains(message, strings.TrimSpace(arg.d.Input)) {
			return ""
		}
	}
	return messages[len(messages)-1]
}

// metric shows the values of a gauge that are not zero, with those of its labels.
func metric(arg arguments) string {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		arg.t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if value := m.GetGauge().GetValue(); family.GetName() == arg.key(0) && value != 0 {
				var words []string
				for _, label := range m.GetLabel() {
					words = append(words, label.GetValue())
				}
				lines = append(lines, strings.Join(append(words, fmt.Sprint(value)), " "))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// get shows fields of objects.
func (s *story) get(arg arguments) string {
	var lines []string
	for _, obj := range named(arg.t, s.Store(), arg.key(0)) {
		for _, field := range arg.d.CmdArgs[1:] {
			raw, err := yaml.Marshal(fieldOf(obj.Object, field.Key))
			if err != nil {
				arg.t.Fatal(err)
			}
			lines = append(lines, strings.TrimSpace(string(raw)))
		}
	}
	return strings.Join(lines, "\n")
}

// rule is what a policy or a webhook does to some objects.
type rule struct {
	resource string
	on       []string // create, update; both if empty
	by       string
	code     int32
	unless   string // part of a field that is left as it is
	fields   []datadriven.CmdArg
	words    string
	calls    *int // of which there were so many
}

func (s *story) rule(rules *[]rule, arg arguments) {
	r := rule{resource: arg.key(0), words: cmp.Or(strings.TrimSpace(arg.d.Input), "not today"), calls: new(int)}
	for _, a := range arg.d.CmdArgs[1:] {
		switch a.Key {
		case "on":
			r.on = a.Vals
		case "by":
			r.by = a.Vals[0]
		case "unless":
			r.unless = a.Vals[0]
		case "code":
			code, err := strconv.ParseInt(a.Vals[0], 10, 32)
			if err != nil {
				arg.d.Fatalf(arg.t, "%v", err)
			}
			r.code = int32(code)
		default:
			r.fields = append(r.fields, a)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*rules = append(*rules, r)
}

func (r rule) concerns(a apiserver.Admission) bool {
	verb := a.Verb
	if verb == "patch" {
		verb = "update"
	}
	resource, subresource, _ := strings.Cut(r.resource, "/")
	return resource == a.Key.Resource.Resource && (subresource == "" || subresource == a.Subresource) && (len(r.on) == 0 || slices.Contains(r.on, verb))
}

// admission is what the denials say to a write. The caller holds mu.
func (s *story) admission(a apiserver.Admission) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a.Object)
	if err != nil {
		return err
	}
	for _, r := range s.denials {
		isMeant := r.concerns(a) && !slices.ContainsFunc(r.fields, func(f datadriven.CmdArg) bool {
			return !strings.Contains(fmt.Sprint(fieldOf(content, f.Key)), f.Vals[0])
		})
		if isMeant {
			*r.calls++
			r.words = strings.ReplaceAll(r.words, "{}", strconv.Itoa(*r.calls))
			return r.denial(a)
		}
	}
	return nil
}

// mutation changes what is written. The caller holds mu.
func (s *story) mutation(a apiserver.Admission) {
	for _, r := range s.changes {
		if !r.concerns(a) {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a.Object)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, f := range r.fields {
			before, after, isAround := strings.Cut(f.Vals[0], "{}")
			was, value := fmt.Sprint(fieldOf(content, f.Key)), f.Vals[0]
			if r.unless != "" && strings.Contains(was, r.unless) {
				continue
			}
			if isAround {
				value = was
				if !strings.HasPrefix(value, before) || !strings.HasSuffix(value, after) {
					value = before + value + after
				}
			}
			setPath(content, f.Key, parsed(value))
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, a.Object); err != nil {
			s.t.Fatal(err)
		}
	}
}

// slow has each request of a name take some time.
func (s *story) slow(arg arguments) {
	var words []string
	for _, a := range arg.d.CmdArgs[1:] {
		words = append(words, a.Key)
	}
	s.Slow(strings.Join(words, " "), arg.duration())
}

// fail has the next requests of a name fail.
func (s *story) fail(arg arguments) {
	times, how := 1, ""
	var words []string
	for _, a := range arg.d.CmdArgs {
		switch a.Key {
		case "times":
			times, _ = strconv.Atoi(a.Vals[0])
		case "with":
			how = a.Vals[0]
		default:
			words = append(words, a.Key)
		}
	}
	resource := corev1.Resource("")
	err, ok := map[string]error{
		"lost":           errLost,
		"no-connection":  errors.New("connection refused"),
		"unauthorized":   apierrors.NewUnauthorized("who?"),
		"busy":           apierrors.NewTooManyRequests("later", 1),
		"timeout":        apierrors.NewTimeoutError("too slow", 1),
		"etcd":           &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "etcdserver: request timed out"}},
		"quota-conflict": apierrors.NewConflict(corev1.Resource("resourcequotas"), "few", errors.New("the object has been modified")),
		"conflict":       apierrors.NewConflict(resource, "", errors.New("the object has been modified")),
	}[how]
	if !ok {
		arg.d.Fatalf(arg.t, "nothing fails with %q", how)
	}
	s.Fail(strings.Join(words, " "), slices.Repeat([]error{err}, times)...)
}
