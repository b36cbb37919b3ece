package secretsync

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var tenancy = flag.Duration("tenancy", 20*time.Second, "for how long a tenant tries everything against secretsync")

// A tenant can do what they want in their own namespaces: plant Secrets that look like copies, fight
// with the controller, misspell and toggle the annotation, and re-create the namespaces. Nothing
// changes for others: no copy of theirs is written, deleted or late, nobody gets what is not meant
// for them, and after a restart nothing is held.
func TestATenantOfSecretsync(t *testing.T) {
	t.Parallel()
	teams := []string{"team-000", "team-001", "team-002", "team-003", "team-004"}
	s := newSecrets(t, teams...)
	kube := s.n.Lab.Kube.CoreV1()
	s.source("db")
	s.source("private", func(secret *corev1.Secret) {
		secret.Annotations["controller.nicoleh.io/secretsync-namespaces"] = "team-*"
	})
	s.source("unmarked", func(secret *corev1.Secret) { secret.Annotations = nil })
	c := s.n.Lab.StartController(t, "-v=4", "-insecure-bind-address=127.0.0.1:0")
	where := func(namespace string) bool { return slices.Contains(teams, namespace) }
	requireSame := func(name string) {
		t.Helper()
		s.n.Eventually(t, "each team has its copy of "+name, func(ctx context.Context) error {
			source, err := kube.Secrets(vault).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, team := range teams {
				copied, err := kube.Secrets(team).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if !bytes.Equal(copied.Data["password"], source.Data["password"]) {
					return fmt.Errorf("the copy in %s is not as its source", team)
				}
			}
			return nil
		})
	}
	requireSame("db")
	requireSame("private")

	mark := time.Now()
	tried, rotations := map[string]int{}, 0
	for n := 0; time.Since(mark) < *tenancy; n++ {
		what, err := tenant(t.Context(), s, fmt.Sprintf("tenant-%d", n%2))
		if tried[what]++; err != nil {
			tried[what+", which failed"]++
		}
		if time.Since(mark) > time.Duration(rotations+1)**tenancy/3 { // A rotation comes to all teams, whatever the tenant does.
			rotations++
			s.rotate(fmt.Sprint(n))
			began := time.Now()
			requireSame("db")
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("a rotation took %s", took)
			}
		}
	}
	t.Logf("the tenant did %v, while there were %d rotations", tried, rotations)
	requireSame("db")
	written := map[string]int{}
	for _, e := range s.accepted(c, mark) {
		if where(e.Namespace) {
			written[e.Verb]++
		} else if e.Name == "private" {
			written["private"]++ // a planted one, which is deleted
		}
	}
	t.Logf("the controller wrote %v to others", written)
	if written["create"] > 0 || written["delete"] > 0 || written["patch"] > rotations*len(teams) {
		t.Errorf("the controller wrote %v to others in %d rotations", written, rotations)
	}
	for _, namespace := range []string{"tenant-0", "tenant-1"} {
		if found, err := kube.Secrets(namespace).Get(t.Context(), "private", metav1.GetOptions{}); err == nil && strings.Contains(string(found.Data["password"]), unspoke) {
			t.Errorf("%s has got what is meant for teams", namespace)
		}
	}
	c.Stop(t)
	c.Start(t)
	s.rotate("last")
	requireSame("db")
	if err := kube.Secrets(vault).Delete(t.Context(), "private", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	s.n.Eventually(t, "copies that are revoked go", func(ctx context.Context) error {
		for _, team := range teams {
			if _, err := kube.Secrets(team).Get(ctx, "private", metav1.GetOptions{}); err == nil {
				return fmt.Errorf("%s has one", team)
			}
		}
		return nil
	})
	requireUntold(s, c)
}

// tenant does something in a namespace, and says what.
func tenant(ctx context.Context, s *secrets, namespace string) (what string, err error) {
	kube := s.n.Lab.Kube.CoreV1()
	name := []string{"db", "private", "unmarked", "strange"}[rand.IntN(4)]
	switch rand.IntN(10) {
	case 0, 1:
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: map[string]string{share: ""}}}
		_, err = kube.Namespaces().Create(ctx, made, metav1.CreateOptions{})
		return "create the namespace", err
	case 2:
		if rand.IntN(5) > 0 {
			return "think", nil
		}
		return "delete the namespace", kube.Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	case 3:
		mark := []string{`""`, `"true"`, `"ture"`, `"no"`, "null"}[rand.IntN(5)]
		body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, share, mark)
		_, err = kube.Namespaces().Patch(ctx, namespace, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return "mark the namespace", err
	case 4, 5:
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"controller.nicoleh.io/secretsync-source-namespace": vault}}}
		if rand.IntN(2) == 0 {
			secret.Annotations = map[string]string{
				"controller.nicoleh.io/secretsync-source-name": name, "controller.nicoleh.io/secretsync-made-for": []string{namespace, "team-000"}[rand.IntN(2)],
				share: "", "controller.nicoleh.io/secretsync-namespaces": "*",
			}
		}
		_, err = kube.Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
		return "plant a Secret", err
	case 6:
		return "delete a Secret", kube.Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	case 7:
		_, err = kube.Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"immutable":true}`), metav1.PatchOptions{})
		return "make a Secret immutable", err
	case 8:
		_, err = kube.Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
		return "take a Secret", err
	default:
		body := fmt.Sprintf(`{"stringData":{"password":"%d"},"metadata":{"annotations":{"controller.nicoleh.io/secretsync-made-for":%q}}}`, rand.Int(), []string{namespace, "elsewhere"}[rand.IntN(2)])
		_, err = kube.Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return "edit a Secret", err
	}
}
