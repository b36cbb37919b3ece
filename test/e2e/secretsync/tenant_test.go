package secretsync

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"nicoleh.io/k8s-controller/test/lab"
)

var tenancy = flag.Duration("tenancy", 20*time.Second, "for how long a tenant tries everything against secretsync")

// A tenant can do what they want in their own namespaces: plant Secrets that look like copies, fight
// with the controller, misspell and toggle the annotation, and re-create the namespaces. Nothing
// changes for others: no copy of theirs is written, deleted or late, and nobody gets what is not meant
// for them.
func TestATenantOfSecretsync(t *testing.T) {
	t.Parallel()
	teams := []string{"team-000", "team-001", "team-002", "team-003", "team-004"}
	s := newSecrets(t, teams...)
	kube := s.n.Lab.Kube.CoreV1()
	s.source("db")
	s.source("private", func(secret *corev1.Secret) {
		secret.Annotations[share] = "team-*"
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
			if took := time.Since(began); took > 20*time.Second {
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
		mark := []string{`""`, `"true"`, `"ture"`, `"false"`, "null"}[rand.IntN(5)]
		body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, share, mark)
		_, err = kube.Namespaces().Patch(ctx, namespace, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return "mark the namespace", err
	case 4, 5:
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"controller.nicoleh.io/secretsync-source-namespace": vault}}}
		if rand.IntN(2) == 0 {
			secret.Annotations = map[string]string{madeFor: []string{namespace, "team-000"}[rand.IntN(2)] + "/" + name, share: "*"}
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
		body := fmt.Sprintf(`{"stringData":{"password":"%d"},"metadata":{"annotations":{%q:%q}}}`, rand.Int(), madeFor, []string{namespace, "elsewhere"}[rand.IntN(2)]+"/"+name)
		_, err = kube.Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return "edit a Secret", err
	}
}

// A tenant with every right in their namespaces plants Secrets of all kinds, with their own token. They are shown
// what the source's value and the namespace's give them, and nothing else.
func TestWhatATenantIsShown(t *testing.T) {
	t.Parallel()
	s := newSecrets(t, "team-0")
	says := map[string]string{
		"tenant-yes": "yes", "tenant-false": "false", "tenant-a": "disabled", "tenant-b": "never", "tenant-c": "none", "tenant-d": "n", "tenant-e": "no.",
		"tenant-f": "false ", "tenant-g": "no", "tenant-h": "off", "tenant-i": "0", "tenant-j": "*", "tenant-silent": "",
	}
	tenant := s.tenant(slices.Collect(maps.Keys(says))...)
	for namespace, value := range says {
		if value != "" {
			lab.Kubectl(t, s.n.Lab, "annotate", "namespace", namespace, share+"="+value)
		}
	}
	s.source("db")
	s.source("private", func(secret *corev1.Secret) { secret.Annotations[share] = "team-*" })
	s.source("silent", func(secret *corev1.Secret) { secret.Annotations = nil })
	s.source("unclear", func(secret *corev1.Secret) { secret.Annotations[share] = "yes" })
	c := s.n.Lab.StartController(t, "-v=4", "-insecure-bind-address=127.0.0.1:0")
	s.eventually("db", "team-0", "tenant-yes")
	for n, plant := range plants {
		for namespace := range says {
			for _, name := range []string{"db", "private", "silent", "unclear", "strange"} {
				if namespace != "tenant-yes" || name != "db" {
					s.plant(tenant, namespace, name, plant)
				}
			}
		}
		s.rotate(fmt.Sprint(n))
		s.eventuallyRotated("team-0", fmt.Sprint(n))
		s.eventuallyRotated("tenant-yes", fmt.Sprint(n))
		time.Sleep(2 * time.Second)
		s.requireNotShown("db in tenant-yes")
	}
	requireUntold(s, c)
}

// While the watch of sources is behind, a source is made narrower, and a tenant's namespace says yes.
func TestWhatATenantIsShownWhileACacheIsBehind(t *testing.T) {
	t.Parallel()
	s := newSecrets(t, "team-0")
	var namespaces []string
	for n := range plants {
		namespaces = append(namespaces, fmt.Sprintf("tenant-%d", n))
	}
	tenant := s.tenant(namespaces...)
	s.source("db")
	sources := &gate{}
	c := s.n.Lab.StartControllerThrough(t, sources.behind, "-v=4", "-insecure-bind-address=127.0.0.1:0")
	s.eventually("db", "team-0")
	sources.Lock()
	lab.Kubectl(t, s.n.Lab, "annotate", "--overwrite", "secret", "db", "--namespace="+vault, share+"=team-0")
	for n, plant := range plants {
		s.plant(tenant, namespaces[n], "db", plant)
		lab.Kubectl(t, s.n.Lab, "annotate", "namespace", namespaces[n], share+"=")
	}
	time.Sleep(5 * time.Second)
	s.requireNotShown()
	sources.Unlock()
	s.rotate("2")
	s.eventuallyRotated("team-0", "2")
	s.requireNotShown()
	requireUntold(s, c)
}

// eventuallyRotated waits until a copy of the source db has that password.
func (s *secrets) eventuallyRotated(namespace, password string) {
	s.Helper()
	s.n.Eventually(s.T, "the copy in "+namespace+" is rotated", func(ctx context.Context) error {
		copied, err := s.n.Lab.Kube.CoreV1().Secrets(namespace).Get(ctx, "db", metav1.GetOptions{})
		if err == nil && string(copied.Data["password"]) != unspoke+password {
			err = errors.New("it is not")
		}
		return err
	})
}

// gate holds up what the API server sends about sources while it is locked.
type gate struct{ sync.Mutex }

func (g *gate) behind(apiServer http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/"+vault+"/secrets" {
			w = heldUp{w, g}
		}
		apiServer.ServeHTTP(w, r)
	})
}

type heldUp struct {
	http.ResponseWriter
	gate *gate
}

func (w heldUp) Write(content []byte) (int, error) {
	w.gate.Lock()
	defer w.gate.Unlock()
	return w.ResponseWriter.Write(content)
}

// Unwrap is for [http.ResponseController].
func (w heldUp) Unwrap() http.ResponseWriter { return w.ResponseWriter }

const madeFor = "controller.nicoleh.io/secretsync-made-for"

// plants are what a tenant makes of a Secret so that it looks like a copy.
var plants = []func(secret *corev1.Secret){
	func(*corev1.Secret) {},
	func(s *corev1.Secret) { s.Data = nil },
	func(s *corev1.Secret) { s.Annotations[madeFor] = s.Namespace + "/" + s.Name },
	func(s *corev1.Secret) { s.Annotations[madeFor], s.Data = s.Namespace+"/"+s.Name, nil },
	func(s *corev1.Secret) { s.Annotations[madeFor] = "team-0/" + s.Name },
	func(s *corev1.Secret) { s.Annotations[madeFor] = s.Namespace + "/other" },
	func(s *corev1.Secret) { s.Annotations[share] = "*" },
	func(s *corev1.Secret) { s.Annotations[madeFor], s.Annotations[share] = s.Namespace+"/"+s.Name, "*" },
	func(s *corev1.Secret) { s.Annotations[madeFor], s.Immutable = s.Namespace+"/"+s.Name, new(true) },
	func(s *corev1.Secret) {
		s.Annotations[madeFor], s.Type = s.Namespace+"/"+s.Name, corev1.SecretTypeOpaque
	},
	func(s *corev1.Secret) {
		s.Annotations[madeFor], s.Finalizers = s.Namespace+"/"+s.Name, []string{"example.com/stay"}
	},
	func(s *corev1.Secret) { s.Labels = nil },
}

// tenant creates namespaces, and an account with every right in them, and returns its client.
func (s *secrets) tenant(namespaces ...string) kubernetes.Interface {
	s.Helper()
	l := s.n.Lab
	lab.Kubectl(s.T, l, "create", "serviceaccount", "mallory", "--namespace="+s.n.Name)
	for _, namespace := range namespaces {
		lab.Kubectl(s.T, l, "create", "namespace", namespace)
		lab.Kubectl(s.T, l, "create", "rolebinding", "mallory", "--namespace="+namespace, "--clusterrole=cluster-admin", "--serviceaccount="+s.n.Name+":mallory")
	}
	path, err := l.ServiceAccountKubeconfig(s.Context(), s.n.Name, "mallory")
	if err != nil {
		s.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		s.Fatal(err)
	}
	return l.ClientOf(s.T, config.BearerToken)
}

// plant has the tenant create a Secret with the label of a copy, in place of the one that is there.
func (s *secrets) plant(tenant kubernetes.Interface, namespace, name string, edit func(secret *corev1.Secret)) {
	s.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{},
			Labels: map[string]string{"controller.nicoleh.io/secretsync-source-namespace": vault},
		},
		Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{"username": []byte("mallory"), "password": []byte("x")},
	}
	if edit(secret); secret.Data == nil {
		secret.Type = corev1.SecretTypeOpaque // The other one needs data.
	}
	kube := tenant.CoreV1().Secrets(namespace)
	_, _ = kube.Patch(s.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err := kube.Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	if _, err := kube.Create(s.Context(), secret, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
}

// requireNotShown requires that no Secret of a tenant contains anything of a source, except these.
func (s *secrets) requireNotShown(except ...string) {
	s.Helper()
	all, err := s.n.Lab.Kube.CoreV1().Secrets("").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, secret := range all.Items {
		what := secret.Name + " in " + secret.Namespace
		if strings.HasPrefix(secret.Namespace, "tenant-") && !slices.Contains(except, what) && strings.Contains(fmt.Sprintf("%s", secret.Data), unspoke) {
			s.Errorf("%s contains what a source does", what)
		}
	}
}
