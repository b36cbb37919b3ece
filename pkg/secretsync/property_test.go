package secretsync

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// step is something that happens in a cluster.
type step struct {
	what       string
	name       string // of a Secret
	namespace  string
	value      string
	mark       string // of a source or namespace; none if empty
	receivers  string // of a source; all if empty
	kind       corev1.SecretType
	isOn       bool
	stream     int
	happensFor time.Duration
}

func steps() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what: rapid.SampledFrom([]string{
				"source", "source", "source", "source goes", "namespace", "namespace", "namespace goes", "edit", "edit", "label", "copy goes",
				"foreign", "foreign goes", "hold", "hold", "show", "refuse", "refuse new", "lose", "restart", "another",
			}).Draw(t, "what"),
			name:       rapid.SampledFrom([]string{"db", "tls"}).Draw(t, "name"),
			namespace:  rapid.SampledFrom([]string{"team-a", "team-b", "team-c", "kube-system", "kube-public", "vault"}).Draw(t, "namespace"),
			value:      rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "value"),
			mark:       rapid.SampledFrom([]string{"", "false", "yes", "true", "yes", "No"}).Draw(t, "mark"),
			receivers:  rapid.SampledFrom([]string{"", "", "", "team-*", "team-b", "?"}).Draw(t, "receivers"),
			kind:       rapid.SampledFrom([]corev1.SecretType{corev1.SecretTypeOpaque, corev1.SecretTypeOpaque, "example.com/other"}).Draw(t, "kind"),
			isOn:       rapid.Bool().Draw(t, "on"),
			stream:     rapid.IntRange(0, 2).Draw(t, "stream"),
			happensFor: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 20, 60, 2000}).Draw(t, "ms")) * time.Millisecond,
		}
	}), 1, 40)
}

// isCopy reports whether a Secret has the label.
func isCopy(secret *corev1.Secret) bool {
	return secret != nil && secret.Labels[LabelSourceNamespace] == usual.SourceNamespace
}

// play runs a controller while the steps happen.
func play(c *cluster, plan []step) {
	stop := c.run()
	stopOther := func() {}
	for _, s := range plan {
		switch s.what {
		case "source":
			c.put(newSource(s.name, s.value, ofType(s.kind), func(secret *corev1.Secret) {
				secret.Immutable = ptr.To(s.isOn)
				delete(secret.Annotations, usual.Annotation)
				if s.mark != "" {
					secret.Annotations[usual.Annotation] = s.mark
				}
				if s.receivers != "" {
					secret.Annotations[AnnotationNamespaces] = s.receivers
				}
			}))
		case "source goes":
			c.lacks(secretResource, usual.SourceNamespace, s.name)
		case "namespace":
			c.put(newNamespace(s.namespace, func(o metav1.Object) {
				if s.mark != "" {
					o.SetAnnotations(map[string]string{usual.Annotation: s.mark})
				}
			}))
		case "namespace goes":
			c.end(s.namespace)
		case "edit": // someone edits any Secret except a source
			if s.namespace != usual.SourceNamespace {
				c.edit(s.namespace, s.name, func(secret *corev1.Secret) {
					secret.Data = map[string][]byte{"password": []byte(marker + s.value)}
					secret.Annotations, secret.Immutable = map[string]string{"note": s.value}, ptr.To(s.isOn)
				})
			}
		case "label": // someone removes the label: it is no longer a copy
			if s.namespace != usual.SourceNamespace {
				c.edit(s.namespace, s.name, func(secret *corev1.Secret) { secret.Labels = nil })
			}
		case "copy goes":
			if isCopy(c.secret(s.namespace, s.name)) {
				c.lacks(secretResource, s.namespace, s.name)
			}
		case "foreign":
			if s.namespace != usual.SourceNamespace && c.secret(s.namespace, s.name) == nil && c.has(s.namespace) {
				c.put(foreign(s.namespace, s.name))
			}
		case "foreign goes":
			if s.namespace != usual.SourceNamespace && !isCopy(c.secret(s.namespace, s.name)) {
				c.lacks(secretResource, s.namespace, s.name)
			}
		case "hold":
			if s.isOn {
				c.Hold()
			} else {
				c.Release()
			}
		case "show":
			c.FlushOne(s.stream)
		case "refuse", "refuse new", "lose": // what is lost leaves the same state as a crash
			c.answers(func(verb, namespace string) error {
				switch {
				case s.what == "refuse new" && verb != "create":
					return nil
				case namespace != s.namespace || !s.isOn:
					return nil
				case s.what == "lose":
					return lost()
				}
				return apierrors.NewForbidden(secretResource.GroupResource(), s.name, fmt.Errorf("password: %s%s", marker, s.value))
			})
		case "restart":
			stop()
			stop = c.run()
		case "another": // another process takes over before this one knows
			stopOther()
			stopOther = c.run()
		}
		kittest.Pass(s.happensFor)
	}
	stopOther()
	c.Release()
	c.answers(func(string, string) error { return nil })
	c.put(newNamespace("vault", confirming(time.Now().Add(2*time.Hour)))) // because a restart may hold deletions
	kittest.Pass(10 * time.Minute)
	c.writes()
	c.recorded = nil
	kittest.Pass(time.Hour)
	stop()
}

// end deletes a namespace, with everything in it, unless it is reserved.
func (c *cluster) end(namespace string) {
	if usual.isReserved(namespace) || !c.has(namespace) {
		return
	}
	c.put(newNamespace(namespace, marked, ending))
	kittest.Pass(10 * time.Millisecond)
	for _, name := range []string{"db", "tls"} {
		c.lacks(secretResource, namespace, name)
	}
	c.lacks(namespacesGVR, "", namespace)
}

func (c *cluster) has(namespace string) bool {
	_, exists := c.Get(namespacesGVR, cache.NewObjectName("", namespace))
	return exists
}

// violation returns what is wrong in the end; empty if nothing is.
func (c *cluster) violation() error {
	namespaces, _ := c.List(namespacesGVR, "", labels.Everything())
	for _, obj := range namespaces {
		name := cache.MetaObjectToName(obj)
		namespace := obj.(*corev1.Namespace)
		value, isMarked := namespace.Annotations[usual.Annotation]
		isTarget := isMarked && (value == "yes" || value == "true") && !map[string]bool{"kube-system": true, "kube-public": true, "vault": true}[name.Name]
		for _, secret := range []string{"db", "tls"} {
			source, got := c.secret(usual.SourceNamespace, secret), c.secret(name.Name, secret)
			if name.Name == usual.SourceNamespace {
				continue
			}
			isWanted := false
			if source != nil && source.Annotations[AnnotationNamespaces] == "?" {
				continue // a copy that was there stays, and there is no new one
			}
			if source != nil {
				value, isMarked := source.Annotations[usual.Annotation]
				receivers := source.Annotations[AnnotationNamespaces]
				isReceiver := receivers == "" || receivers == "team-*" && strings.HasPrefix(name.Name, "team-") || receivers == name.Name
				isWanted = isTarget && isMarked && (value == "yes" || value == "true") && isReceiver
			}
			switch {
			case got != nil && !isCopy(got):
				continue // never written to: the cluster checks that
			case !isWanted && got != nil && got.Annotations[AnnotationNamespace] == "":
				continue // edited while nobody knew whether it is wanted, and then nobody's copy
			case !isWanted && got != nil:
				return fmt.Errorf("there is a copy %s/%s", name.Name, secret)
			case !isWanted:
				continue
			case got == nil:
				return fmt.Errorf("there is no copy %s/%s", name.Name, secret)
			case got.Type != source.Type || isImmutable(got) != isImmutable(source):
				return fmt.Errorf("the copy %s/%s is of type %s, its source of type %s", name.Name, secret, got.Type, source.Type)
			case got.Annotations[AnnotationSourceUID] != string(source.UID):
				return fmt.Errorf("the copy %s/%s has annotations %v", name.Name, secret, got.Annotations)
			}
			if diff := cmp.Diff(source.Data, got.Data); diff != "" {
				return fmt.Errorf("data of the copy %s/%s (-want +got):\n%s", name.Name, secret, diff)
			}
		}
	}
	return nil
}

// Whatever happens in whatever order, seen early or late, refused or lost, with restarts
// in between: in the end there are exactly the copies that there should be, and nothing
// more is written or reported.
func TestAnyHistoryEndsWithTheSpecifiedSet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := steps().Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			play(c, plan)
			if err := c.violation(); err != nil {
				rt.Error(err)
			}
			if writes, events := c.writes(), c.events(); len(writes)+len(events) > 0 {
				rt.Errorf("in an hour in which nothing happened: %v, %v", writes, events)
			}
			if strings.Contains(c.logged.String(), marker) {
				rt.Errorf("the log tells a secret")
			}
			if t.Failed() {
				rt.Error("the cluster has complained")
			}
		})
	})
}
