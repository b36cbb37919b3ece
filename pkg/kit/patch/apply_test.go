package patch_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

const manager = "parlor"

// wanted returns what the manager wants: that many replicas of a container with these variables.
func wanted(replicas int32, variables ...string) *appsv1ac.DeploymentApplyConfiguration {
	c := corev1ac.Container().WithName("main").WithImage("vanilla:1")
	for _, name := range variables {
		c.WithEnv(corev1ac.EnvVar().WithName(name).WithValue("1"))
	}
	labels := map[string]string{"app": "sundae"}
	return appsv1ac.Deployment("sundae", "shop").WithSpec(appsv1ac.DeploymentSpec().
		WithReplicas(replicas).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().WithContainers(c))))
}

// server is an API server with one Deployment or none.
type server struct {
	testing.TB
	*apiserver.Server
	store apiserver.Store
}

func newServer(t testing.TB) *server {
	t.Helper()
	return &server{TB: t, Server: apiserver.New(apiserver.Options{}, apiserver.Deployments())}
}

func (s *server) live() *appsv1.Deployment {
	s.Helper()
	for _, obj := range s.store.Objects {
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.DeepCopy().Object, d); err != nil {
			s.Fatal(err)
		}
		return d
	}
	return nil
}

func (s *server) send(request *patch.Request) apiserver.Response {
	s.Helper()
	options := request.Options(manager)
	query := url.Values{"fieldManager": {options.FieldManager}}
	if ptr.Deref(options.Force, false) {
		query.Set("force", "true")
	}
	var response apiserver.Response
	s.store, response = s.Answer(s.store, time.Now(), apiserver.Request{
		Method: http.MethodPatch, Path: "/apis/apps/v1/namespaces/shop/deployments/sundae", Query: query,
		ContentType: string(request.Type), Body: request.Body,
	})
	return response
}

// apply brings the Deployment to what is wanted, and reports whether there was something to do.
func (s *server) apply(want *appsv1ac.DeploymentApplyConfiguration) (isDue bool) {
	s.Helper()
	_, request, err := patch.Apply(manager, s.live(), want)
	if err != nil {
		s.Fatal(err)
	}
	if request == nil {
		return false
	}
	if response := s.send(request); response.Code >= http.StatusBadRequest {
		s.Fatalf("%s: %s", request.Body, response.Body)
	}
	return true
}

// edit is what somebody else does.
func (s *server) edit(edit func(*appsv1.Deployment)) {
	s.Helper()
	d := s.live()
	edit(d)
	var err error
	if s.store, err = s.Update(s.store, time.Now(), d); err != nil {
		s.Fatal(err)
	}
}

func variables(d *appsv1.Deployment) string {
	var names []string
	for _, v := range d.Spec.Template.Spec.Containers[0].Env {
		names = append(names, v.Name+"="+v.Value)
	}
	return strings.Join(names, " ")
}

// What the manager has set and sets no more goes, what others have set stays, and what they change is taken back.
func TestApply(t *testing.T) {
	s := newServer(t)
	env := func(d *appsv1.Deployment) *[]corev1.EnvVar { return &d.Spec.Template.Spec.Containers[0].Env }
	for _, step := range []struct {
		name  string
		edit  func(*appsv1.Deployment)
		want  *appsv1ac.DeploymentApplyConfiguration
		isDue bool
		then  string
	}{
		{"it is created", nil, wanted(1, "A", "B"), true, "A=1 B=1"},
		{"at rest", nil, wanted(1, "A", "B"), false, "A=1 B=1"},
		{"other replicas are nothing to apply", nil, wanted(7, "A", "B"), false, "A=1 B=1"},
		{"somebody adds one", func(d *appsv1.Deployment) { *env(d) = append(*env(d), corev1.EnvVar{Name: "C", Value: "2"}) }, wanted(1, "A", "B"), false, "A=1 B=1 C=2"},
		{"one leaves", nil, wanted(1, "B"), true, "B=1 C=2"},
		{"somebody changes ours", func(d *appsv1.Deployment) { (*env(d))[0].Value = "2" }, wanted(1, "B"), true, "B=1 C=2"},
		{"somebody removes ours", func(d *appsv1.Deployment) { *env(d) = (*env(d))[1:] }, wanted(1, "B"), true, "B=1 C=2"},
		{"somebody removes the annotation", func(d *appsv1.Deployment) { d.Annotations = nil }, wanted(1, "B"), true, "B=1 C=2"},
		{"somebody writes nonsense into the annotation", func(d *appsv1.Deployment) { d.Annotations[patch.AnnotationAsked] = "/x" }, wanted(1, "B"), true, "B=1 C=2"},
		{"all of ours leave", nil, wanted(1), true, "C=2"},
		{"somebody deletes who manages what", func(d *appsv1.Deployment) { d.ManagedFields = []metav1.ManagedFieldsEntry{{}} }, wanted(1), true, "C=2"},
	} {
		if step.edit != nil {
			s.edit(step.edit)
		}
		isDue := s.apply(step.want)
		got := variables(s.live())
		if isDue != step.isDue || len(strings.Fields(got)) != len(strings.Fields(step.then)) {
			t.Errorf("%s: %t, %s; want %t, %s", step.name, isDue, got, step.isDue, step.then)
		}
		for one := range strings.FieldsSeq(step.then) {
			if !strings.Contains(got, one) {
				t.Errorf("%s: there is %s, want %s", step.name, got, step.then)
			}
		}
		if s.apply(step.want) {
			t.Errorf("%s: it is applied again", step.name)
		}
	}
}

// The replicas are set alone. What admission makes of them stays until somebody asks for others, or changes them.
func TestScale(t *testing.T) {
	s := newServer(t)
	s.Server = apiserver.New(apiserver.Options{Mutate: func(a apiserver.Admission) {
		d := a.Object.(*appsv1.Deployment)
		d.Spec.Replicas = ptr.To(min(5, *d.Spec.Replicas))
	}}, apiserver.Deployments())
	s.apply(wanted(3, "A"))
	scaleTo := func(to int32) (isDue bool) {
		request := patch.Scale(manager, s.live(), *s.live().Spec.Replicas, to)
		if request != nil {
			s.send(request)
		}
		return request != nil
	}
	for _, step := range []struct {
		name     string
		others   int32 // what somebody sets; 0 for nothing
		to, then int32
		isDue    bool
	}{
		{"as created", 0, 3, 3, false},
		{"it is scaled", 0, 4, 4, true},
		{"at rest", 0, 4, 4, false},
		{"somebody scales", 2, 4, 4, true},
		{"admission lowers it", 0, 9, 5, true},
		{"that stays", 0, 9, 5, false},
		{"other replicas, lowered as well", 0, 8, 5, true},
		{"somebody scales then", 1, 8, 5, true},
		{"what admission made is asked for", 0, 5, 5, false},
		{"a strange annotation", 3, 4, 4, true},
	} {
		if step.others > 0 {
			s.edit(func(d *appsv1.Deployment) {
				d.Spec.Replicas = &step.others
				if step.name == "a strange annotation" {
					d.Annotations[patch.AnnotationAsked] = "\x07é\"/5"
				}
			})
		}
		isDue := scaleTo(step.to)
		if got := *s.live().Spec.Replicas; isDue != step.isDue || got != step.then {
			t.Errorf("%s: %t, %d; want %t, %d", step.name, isDue, got, step.isDue, step.then)
		}
		if s.apply(wanted(step.to, "A")) != (step.name == "a strange annotation") {
			t.Errorf("%s: all of it is applied again", step.name)
		}
	}
}

// A request is about the observed object only, and what is no Deployment is said before it is sent.
func TestApplyRefusals(t *testing.T) {
	s := newServer(t)
	s.apply(wanted(1))
	observed := s.live()
	observed.UID = "another"
	_, apply, err := patch.Apply(manager, observed, wanted(1, "A"))
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []*patch.Request{apply, patch.Scale(manager, observed, 1, 3)} {
		if response := s.send(request); !strings.Contains(string(response.Body), "metadata.uid") {
			t.Errorf("about another object, the response is %s", response.Body)
		}
	}
	const twice = `.spec.template.spec.containers[name="main"].env: duplicate entries for key [name="A"]`
	if _, _, err := patch.Apply(manager, s.live(), wanted(1, "A", "A")); err == nil || !strings.Contains(err.Error(), twice) {
		t.Errorf("of a variable that is there twice, the error is: %v", err)
	}
}

func ExampleApply() {
	wish, request, err := patch.Apply("parlor", (*appsv1.Deployment)(nil), appsv1ac.Deployment("sundae", "shop").WithSpec(appsv1ac.DeploymentSpec().WithReplicas(3)))
	fmt.Println(wish.Scale, request.Type, err)
	// Output: 3 application/apply-patch+yaml <nil>
}
