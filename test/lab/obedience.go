package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// awaitPolicy waits until the API server restricts the account of artifacts/ as the
// policies there say. It looks for new policies once a second.
func (l *Lab) awaitPolicy(ctx context.Context) error {
	config := rest.CopyConfig(l.RESTConfig())
	config.Impersonate.UserName = "system:serviceaccount:" + SystemNamespace + ":" + ServiceAccount
	account, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	selected := map[string]string{"app": canary}
	nobodys := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: canary},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selected},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/canary:1"}}},
			},
		},
	}
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(pollEvery) {
		_, err = account.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, nobodys, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return nil
		}
	}
	return fmt.Errorf("the policies of artifacts/ are not in force; a Deployment that is nobody's gives: %w", err)
}

// mayBeBehind is in the words of a policy by which it refuses what a controller may be
// too fast with: the API server may not have noticed yet that a namespace has changed.
const mayBeBehind = "of the namespace asks for them"

// requireObedience is an error if a policy of artifacts/ has refused what a controller
// wanted. What a test does with a token of the controller's account does not count.
func (l *Lab) requireObedience() error {
	requests, err := cluster.ReadAudit(l.AuditLog(), ":"+ServiceAccount, "validation_failure")
	if err != nil {
		return fmt.Errorf("looking for refusals: %w", err)
	}
	var errs []error
	for _, e := range requests {
		if e.Refusal != "" && strings.HasPrefix(e.UserAgent, agentPrefix) && !strings.Contains(e.Refusal, mayBeBehind) {
			errs = append(errs, fmt.Errorf("a policy refuses %s %s %s/%s of %s: %s", e.Verb, e.Resource, e.Namespace, e.Name, e.UserAgent, e.Refusal))
		}
	}
	return errors.Join(errs...)
}
