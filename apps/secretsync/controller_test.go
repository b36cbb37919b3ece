package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}

// A rate cannot see the step from nothing to one, so every series is there before the first write. What is remembered
// of a copy ends some time after the copy.
func TestWritesAreCountedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := script.New(t, apiserver.Secrets(), apiserver.Namespaces())
		places := []metav1.Object{}
		for name, edit := range map[string]func(metav1.Object){"secretsync": func(metav1.Object) {}, "team-a": marked, "team-b": marked} {
			cluster.Set(newNamespace(name, edit))
			places = append(places, &metav1.ObjectMeta{Namespace: name, Name: "db", UID: script.Get[corev1.Namespace](cluster, "", name).UID})
		}
		written := func(action Action) float64 {
			t.Helper()
			n, err := testutil.GetCounterMetricValue(writesTotal.WithLabelValues(string(action)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		c, stop := startController(t, cluster.Config(), &record.FakeRecorder{})
		defer stop()
		series := make(chan prometheus.Metric, 10)
		writesTotal.Collect(series)
		equal(t, "how many actions are counted from the start", 4, len(series))
		created, deleted := written(Create), written(Delete)
		source := newSource("db", "1", func(s *corev1.Secret) { s.Namespace = "secretsync" })
		cluster.Set(source)
		kittest.Pass(time.Minute)
		cluster.Set(newNamespace("team-a", saying("false")))
		script.Delete[corev1.Namespace](cluster, "", "team-b", metav1.DeletePropagationBackground)
		script.Delete[corev1.Secret](cluster, "team-b", "db", metav1.DeletePropagationBackground)
		cluster.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
			after, _, _ := server.Collect(store, now)
			return after, nil
		})
		kittest.Pass(20 * time.Minute)
		equal(t, "creations", created+2, written(Create))
		equal(t, "deletions", deleted+1, written(Delete))
		for _, place := range places {
			if last := c.attempts.Last(place); last != (pace.Attempt{}) {
				t.Errorf("the copy in %s is remembered: %v", place.GetNamespace(), last)
			}
		}
		equal(t, "how many troubles are remembered", 0, len(c.troubles.copies)+len(c.troubles.told))
	})
}

// A webhook or a policy can repeat in its message what it was shown. Who has refused is told.
func TestAnswersThatTellSecrets(t *testing.T) {
	resource := secretResource.GroupResource()
	withheld := func(reason string) string {
		return reason + " (the message is withheld, because it can contain data of the Secret)"
	}
	forbidden := func(words string) error { return apierrors.NewForbidden(resource, "db", errors.New(words)) }
	denied := func(words string) error {
		err := apierrors.NewForbidden(resource, "db", nil)
		err.ErrStatus.Message = words
		return err
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{denied(`admission webhook "w.example.com" denied the request: ` + marker), `admission webhook "w.example.com" denied the request`},
		{denied(`admission webhook "w.example.com" denied the request: exceeded quota: ` + marker), `admission webhook "w.example.com" denied the request`},
		{denied(`admission webhook "w.example.com" denied the request without explanation`), `admission webhook "w.example.com" denied the request`},
		{apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": ` + marker)), `failed calling webhook "w.example.com"`},
		{forbidden(`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ` + marker), `ValidatingAdmissionPolicy 'p' with binding 'b' denied request`},
		{denied(`policy 'p' with binding 'b' denied request: expression ` + marker), `policy 'p' with binding 'b' denied request`},
		{forbidden(`exceeded quota: small, requested: secrets=1, used: secrets=1, limited: secrets=1`), `exceeded quota: small`},
		{denied(`secrets is forbidden: User "u" cannot create resource "secrets" in API group "" in the namespace "team-a"`), `User "u" cannot create resource "secrets"`},
		{apierrors.NewConflict(resource, "db", errors.New(marker)), `Operation cannot be fulfilled on secrets "db"`},
		{apierrors.NewAlreadyExists(resource, "db"), `secrets "db" already exists`},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "db", field.ErrorList{field.Invalid(field.NewPath("data"), marker, marker)}), withheld("Invalid")},
		{forbidden(marker + ` exceeded quota: small`), withheld("Forbidden")},
		{forbidden(marker), withheld("Forbidden")},
	} {
		got := redact("creating the copy", tt.err)
		equal(t, "message", "creating the copy: "+tt.want, got.Error())
		equal(t, "whether it still is what it was", apierrors.ReasonForError(tt.err), apierrors.ReasonForError(got))
	}
	if lost := errors.New("EOF"); !errors.Is(redact("creating the copy", lost), lost) || redact("", nil) != nil {
		t.Error("what is no response has become another error")
	}
}
