package secretsync

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/test/lab"
)

// A stolen token may write copies where they are asked for. It sees more than that: who
// may list Secrets by label may list all of them.
func TestStolenTokenAndSecrets(t *testing.T) {
	t.Parallel()
	s := suite.NewLab(t, lab.Options{Nodes: -1}).NewThief(t)
	s.RequireKept("secretsync-controller")
	lab.Kubectl(t, s.Lab, "create", "namespace", "asks")
	lab.Kubectl(t, s.Lab, "annotate", "namespace", "asks", share+"=")
	lab.Kubectl(t, s.Lab, "create", "namespace", "declines")
	lab.Kubectl(t, s.Lab, "annotate", "namespace", "declines", share+"=not yet")
	lab.Kubectl(t, s.Lab, "create", "namespace", "silent")
	lab.Kubectl(t, s.Lab, "create", "namespace", "secretsync")
	lab.Kubectl(t, s.Lab, "annotate", "namespace", "kube-system", "kube-public", "secretsync", share+"=")

	label, value, _ := strings.Cut(copied, "=")
	secret := func(namespace, name string, change func(*corev1.Secret)) *corev1.Secret {
		made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: value}, Annotations: map[string]string{
			madeFor: namespace + "/" + name,
		}}}
		if change != nil {
			change(made)
		}
		return made
	}
	create := func(client kubernetes.Interface, namespace string, secret *corev1.Secret) error {
		_, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, lab.TryCreate)
		return err
	}
	const (
		unlabeled = "may only write copies: Secrets whose label " + "controller.nicoleh.io/secretsync-source-namespace is secretsync"
		consent   = "may only write copies where the annotation controller.nicoleh.io/secretsync of the namespace asks for them"
		finalizer = "may not add finalizers"
		tokens    = "may not request tokens or write Helm releases"
		obeyed    = "may not set labels by which other programs act on a Secret"
	)
	policyFor := func(words string) string {
		if words == consent {
			return "secrets-ns"
		}
		return "secrets"
	}
	lab.RequireAllowed(t, create(s.Kube, "asks", secret("asks", "db", nil)))
	lab.RequireAllowed(t, create(s.Kube, "asks", secret("asks", "db", func(s *corev1.Secret) { // as the cluster's own policies may
		s.Labels["costcenter"], s.Labels["owner"], s.Annotations["example.com/a"] = "42", "team-o", "b"
	})))
	for name, attempt := range map[string]struct {
		namespace string
		words     string
		change    func(*corev1.Secret)
	}{
		"no copy":                {"asks", unlabeled, func(s *corev1.Secret) { s.Labels = nil }},
		"another's copy":         {"asks", unlabeled, func(s *corev1.Secret) { s.Labels[label] = "other" }},
		"another namespace's":    {"asks", unlabeled, func(s *corev1.Secret) { s.Annotations[madeFor] = "silent/db" }},
		"another name's":         {"asks", unlabeled, func(s *corev1.Secret) { s.Annotations[madeFor] = "asks/other" }},
		"no place's":             {"asks", unlabeled, func(s *corev1.Secret) { delete(s.Annotations, madeFor) }},
		"a silent namespace":     {"silent", consent, nil},
		"one that declines":      {"declines", consent, nil},
		"kube-system":            {"kube-system", "may not write copies to kube-system", nil},
		"kube-public":            {"kube-public", "may not write copies to kube-public", nil},
		"a source":               {"secretsync", "may not write copies to secretsync", nil},
		"no copy, among sources": {"secretsync", unlabeled, func(s *corev1.Secret) { s.Labels = nil }},
		"a token": {"asks", tokens, func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeServiceAccountToken
			s.Annotations[corev1.ServiceAccountNameKey] = "default"
		}},
		"a finalizer":            {"asks", finalizer, func(s *corev1.Secret) { s.Finalizers = []string{"example.com/stay"} }},
		"a cluster of Argo CD's": {"asks", obeyed, func(s *corev1.Secret) { s.Labels["argocd.argoproj.io/secret-type"] = "cluster" }},
		"a Helm release's type":  {"asks", tokens, func(s *corev1.Secret) { s.Type = "helm.sh/release.v1" }},
		"a Helm release's label": {"asks", obeyed, func(s *corev1.Secret) { s.Labels["owner"] = "helm" }},
	} {
		s.RequireRefusedAlone("create "+name, policyFor(attempt.words), attempt.words, func(client kubernetes.Interface) error {
			return create(client, attempt.namespace, secret(attempt.namespace, "db", attempt.change))
		})
	}
	// Those that are there.
	live := map[string]*corev1.Secret{}
	for where, made := range map[string]*corev1.Secret{
		"asks/db": secret("asks", "db", func(s *corev1.Secret) {
			s.Labels["team"], s.Annotations["example.com/a"], s.Finalizers = "dessert", "b", []string{"example.com/stay"}
		}),
		"asks/password":        secret("asks", "password", func(s *corev1.Secret) { s.Labels = nil }),
		"declines/db":          secret("declines", "db", nil),
		"asks/copied":          secret("asks", "copied", func(s *corev1.Secret) { s.Annotations[madeFor] = "silent/copied" }),
		"asks/unplaced":        secret("asks", "unplaced", func(s *corev1.Secret) { delete(s.Annotations, madeFor) }),
		"silent/db":            secret("silent", "db", nil),
		"secretsync/db":        secret("secretsync", "db", func(s *corev1.Secret) { s.Labels = nil }),
		"kube-system/password": secret("kube-system", "password", nil),
	} {
		namespace, _, _ := strings.Cut(where, "/")
		stored, err := s.Lab.Kube.CoreV1().Secrets(namespace).Create(t.Context(), made, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		live[where] = stored
	}
	update := func(client kubernetes.Interface, where string, change func(*corev1.Secret)) error {
		changed := live[where].DeepCopy()
		change(changed)
		before, err := json.Marshal(live[where])
		if err != nil {
			return err
		}
		after, err := json.Marshal(changed)
		if err != nil {
			return err
		}
		body, err := strategicpatch.CreateTwoWayMergePatch(before, after, changed)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Secrets(changed.Namespace).Patch(t.Context(), changed.Name, types.StrategicMergePatchType, body, lab.TryPatch)
		return err
	}
	rotate := func(s *corev1.Secret) {
		s.Data = map[string][]byte{"password": []byte("other")}
	}
	lab.RequireAllowed(t, update(s.Kube, "asks/db", rotate))
	lab.RequireAllowed(t, update(s.Kube, "asks/unplaced", func(s *corev1.Secret) { s.Annotations = map[string]string{madeFor: "asks/unplaced"} })) // adopted
	for name, attempt := range map[string]struct {
		where, words string
		change       func(*corev1.Secret)
	}{
		"no copy":                      {"asks/password", unlabeled, rotate},
		"no copy, to be one":           {"asks/password", unlabeled, func(s *corev1.Secret) { s.Labels = map[string]string{label: value} }},
		"a copy, to be none":           {"asks/db", unlabeled, func(s *corev1.Secret) { delete(s.Labels, label) }},
		"a copy of others":             {"asks/db", unlabeled, func(s *corev1.Secret) { s.Labels[label] = "other" }},
		"a copy of a copy":             {"asks/copied", unlabeled, rotate},
		"a copy of a copy to be one":   {"asks/copied", unlabeled, func(s *corev1.Secret) { s.Annotations[madeFor] = "asks/copied" }},
		"a source":                     {"secretsync/db", unlabeled, rotate},
		"one that is no longer wanted": {"silent/db", consent, rotate},
		"where the mark is unclear":    {"declines/db", consent, rotate},
		"kube-system":                  {"kube-system/password", "may not write copies to kube-system", rotate},
		"another finalizer":            {"asks/db", finalizer, func(s *corev1.Secret) { s.Finalizers = append(s.Finalizers, "example.com/longer") }},
		"to be a cluster of Argo CD's": {"asks/db", obeyed, func(s *corev1.Secret) { s.Labels["argocd.argoproj.io/secret-type"] = "cluster" }},
		"to be a Helm release":         {"asks/db", obeyed, func(s *corev1.Secret) { s.Labels["owner"] = "helm" }},
	} {
		s.RequireRefusedAlone("update "+name, policyFor(attempt.words), attempt.words, func(client kubernetes.Interface) error {
			return update(client, attempt.where, attempt.change)
		})
	}
	remove := func(client kubernetes.Interface, where string) error {
		namespace, name, _ := strings.Cut(where, "/")
		return client.CoreV1().Secrets(namespace).Delete(t.Context(), name, lab.TryDelete)
	}
	lab.RequireAllowed(t, remove(s.Kube, "asks/db"))
	lab.RequireAllowed(t, remove(s.Kube, "silent/db")) // which asked for it before
	for where, words := range map[string]string{
		"asks/password": unlabeled, "asks/copied": unlabeled, "asks/unplaced": unlabeled, "secretsync/db": unlabeled, "kube-system/password": "may not write copies to kube-system",
	} {
		s.RequireRefused("secrets", words, func(context.Context) error { return remove(s.Kube, where) })
	}
}
