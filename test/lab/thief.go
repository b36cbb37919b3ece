package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Thief has a token of the program's account, and with it all of its permissions. The policies
// keep these to what the program does.
type Thief struct {
	*testing.T
	Lab  *Lab
	Kube kubernetes.Interface
}

// NewThief steals the token.
func (l *Lab) NewThief(t *testing.T) *Thief {
	t.Helper()
	path, err := l.ServiceAccountKubeconfig(t.Context(), l.program.Namespace, l.program.Account)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return &Thief{t, l, l.ClientOf(t, config.BearerToken)}
}

// RequireRefused waits until the policy about that refuses the attempt, in those words: the API
// server looks for new policies once a second. The attempt must change nothing if it succeeds.
func (s *Thief) RequireRefused(about, words string, attempt func(ctx context.Context) error) {
	s.Helper()
	policy := s.Lab.program.Account + "-" + about + "-writes"
	Eventually(s.T, policy+" refuses it", func() error {
		err := attempt(s.Context())
		if err == nil {
			return fmt.Errorf("it is allowed; want %q", words)
		}
		if !ContainsAll(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'", words) {
			s.Fatalf("the API server says: %v; want %q", err, words)
		}
		return nil
	})
}

// RequireRefusedAlone requires in a subtest that the policy about that refuses the attempt, in those words, and that
// somebody else can do the same: nothing but the policy is in the way. The attempt must change nothing.
func (s *Thief) RequireRefusedAlone(name, about, words string, attempt func(client kubernetes.Interface) error) {
	s.Helper()
	s.Run(name, func(t *testing.T) {
		(&Thief{t, s.Lab, s.Kube}).RequireRefused(about, words, func(context.Context) error { return attempt(s.Kube) })
		RequireAllowed(t, attempt(s.Lab.Kube))
	})
}

// RequireAllowed requires that an attempt succeeds: nothing but the policy was in its way.
func RequireAllowed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("it is refused: %v", err)
	}
}

// Attempts are all at once: a dry run is admitted like the real thing.
var (
	TryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	TryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	TryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// MayDelete has the account be able to delete what it may not: else another part of admission,
// which most clusters do without, keeps it from naming owners. It may as one of its group,
// since a role of its own would count as one of the program's: see [Suite].
func (s *Thief) MayDelete(resource string) {
	s.Helper()
	Kubectl(s.T, s.Lab, "create", "clusterrole", "deleter", "--verb=delete", "--resource="+resource)
	Kubectl(s.T, s.Lab, "create", "clusterrolebinding", "deleter", "--clusterrole=deleter", "--group=system:serviceaccounts:"+s.Lab.program.Namespace)
}

// RequireKept requires what is true of each program's account: it writes no events but those of its controller, holds
// no Lease but its own, and what else its roles let it write is restricted; see requireRestricted.
func (s *Thief) RequireKept(controller string, except ...string) {
	s.Helper()
	s.requireOwnEvents(controller)
	s.requireOwnLease()
	s.requireRestricted(except...)
}

// requireOwnEvents requires that the account writes no events but those of its controller.
func (s *Thief) requireOwnEvents(controller string) {
	s.Helper()
	t := s.T
	const own = "may only write its own events"
	create := func(client kubernetes.Interface, name, source, reporter string, o metav1.CreateOptions) error {
		_, err := client.CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.EventTypeNormal, Reason: "Stamped", Message: "m",
			Source: corev1.EventSource{Component: source}, ReportingController: reporter,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: "p"},
		}, o)
		return err
	}
	patch := func(client kubernetes.Interface, name, patch string) error {
		_, err := client.CoreV1().Events(metav1.NamespaceDefault).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), TryPatch)
		return err
	}
	RequireAllowed(t, create(s.Kube, "new", controller, controller, TryCreate))
	RequireAllowed(t, create(s.Kube, "new", controller, "", TryCreate)) // as the recorder combines similar events
	for _, names := range [][2]string{{"kubelet", "kubelet"}, {"kubelet", controller}, {controller, "kubelet"}, {"", controller}, {"", ""}} {
		s.RequireRefused("event", own, func(context.Context) error { return create(s.Kube, "new", names[0], names[1], TryCreate) })
		RequireAllowed(t, create(s.Lab.Kube, "new", names[0], names[1], TryCreate))
	}

	// Its own events it may count, and make no other's. Others' it may not change at all.
	RequireAllowed(t, create(s.Lab.Kube, "its-own", controller, controller, metav1.CreateOptions{}))
	RequireAllowed(t, create(s.Lab.Kube, "kubelets", "kubelet", "kubelet", metav1.CreateOptions{}))
	const count = `{"count":2,"lastTimestamp":"2026-11-21T11:48:40Z","message":"m"}`
	RequireAllowed(t, patch(s.Kube, "its-own", count))
	for name, changes := range map[string][]string{
		"its-own":  {`{"source":{"component":"kubelet"}}`, `{"reportingComponent":"kubelet"}`},
		"kubelets": {count, fmt.Sprintf(`{"source":{"component":%[1]q},"reportingComponent":%[1]q,"message":"theirs"}`, controller)},
	} {
		for _, change := range changes {
			s.RequireRefused("event", own, func(context.Context) error { return patch(s.Kube, name, change) })
			RequireAllowed(t, patch(s.Lab.Kube, name, change))
		}
	}
	const stay = `{"metadata":{"finalizers":["example.com/stay"]}}`
	s.RequireRefused("event", "may not add finalizers", func(context.Context) error { return patch(s.Kube, "its-own", stay) })
	RequireAllowed(t, patch(s.Lab.Kube, "its-own", stay))
	// There is no way around it by the other group that has the same events.
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: metav1.NamespaceDefault, Verb: "patch", Group: "events.k8s.io", Resource: "events", Name: "kubelets",
	}}}
	review, err := s.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || review.Status.Allowed {
		t.Errorf("a patch by way of events.k8s.io is allowed: %v (%v)", review.Status, err)
	}
}

// requireOwnLease requires that the account holds no Lease but the program's.
func (s *Thief) requireOwnLease() {
	s.Helper()
	own := s.Lab.program.Account
	lease := func(name string, finalizers ...string) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		_, err := s.Kube.CoordinationV1().Leases(s.Lab.program.Namespace).Create(s.Context(), lease, TryCreate)
		return err
	}
	RequireAllowed(s.T, lease(own))
	s.RequireRefused("lease", "may only write its leader-election Lease", func(context.Context) error { return lease("another") })
	s.RequireRefused("lease", "may not add finalizers", func(context.Context) error { return lease(own, "example.com/stay") })
}

// requireRestricted requires that every verb that the account's roles grant for writing is an
// operation that a policy restricts, except reviews, which are not stored, and these operations,
// such as "UPDATE apps/deployments/status". With none of them can a finalizer be added. And the API
// server has understood every expression of all policies, by the types of what they are about.
func (s *Thief) requireRestricted(except ...string) {
	s.Helper()
	restricted := map[string]bool{"CREATE authentication.k8s.io/tokenreviews": true, "CREATE authorization.k8s.io/subjectaccessreviews": true}
	for _, operation := range except {
		restricted[operation] = true
	}
	adds := map[string]bool{} // whether finalizers can be added to a resource
	for _, policy := range s.checkedPolicies() {
		if !slices.ContainsFunc(policy.Spec.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == "is-the-controllers-account" }) {
			continue // it restricts others
		}
		mayAdd := !slices.ContainsFunc(policy.Spec.Validations, func(v admissionregistrationv1.Validation) bool {
			return strings.Contains(v.Expression, "object.metadata.?finalizers")
		})
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, operation := range rule.Operations {
				restricted[string(operation)+" "+rule.APIGroups[0]+"/"+rule.Resources[0]] = true
			}
			if slices.Equal(rule.Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}) {
				continue
			}
			before, isKnown := adds[rule.Resources[0]]
			adds[rule.Resources[0]] = mayAdd && (before || !isKnown)
		}
	}
	for resource, mayAdd := range adds {
		if mayAdd {
			s.Errorf("no policy restricts the finalizers of %s", resource)
		}
	}

	rules, err := s.Lab.boundRules(s.Context(), s.Lab.program.Account)
	if err != nil || len(rules) == 0 {
		s.Fatalf("the roles of the account grant %v (%v)", rules, err)
	}
	operations := map[string]admissionregistrationv1.OperationType{
		"create": admissionregistrationv1.Create, "update": admissionregistrationv1.Update, "patch": admissionregistrationv1.Update, "delete": admissionregistrationv1.Delete,
	}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			if slices.Contains([]string{"get", "list", "watch"}, verb) {
				continue
			}
			for _, resource := range rule.Resources {
				if !restricted[string(operations[verb])+" "+rule.APIGroups[0]+"/"+resource] {
					s.Errorf("no policy restricts who may %s %s/%s", verb, rule.APIGroups[0], resource)
				}
			}
		}
	}
}

// checkedPolicies returns all policies of the cluster, when their types are checked.
func (s *Thief) checkedPolicies() []admissionregistrationv1.ValidatingAdmissionPolicy {
	s.Helper()
	var policies *admissionregistrationv1.ValidatingAdmissionPolicyList
	Eventually(s.T, "all policies are checked", func() (err error) {
		if policies, err = s.Lab.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(s.Context(), metav1.ListOptions{}); err != nil {
			return err
		}
		for _, policy := range policies.Items {
			if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
				return fmt.Errorf("%s is not", policy.Name)
			}
		}
		return nil
	})
	for _, policy := range policies.Items {
		for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
			s.Errorf("%s: %s: %s", policy.Name, warning.FieldRef, warning.Warning)
		}
	}
	return policies.Items
}
