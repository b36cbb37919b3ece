package e2e

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/test/lab"
)

// Repairs of what the policies on the controller's account look at pass them, whatever else somebody has added to the
// Deployment. Each case is a strategic merge patch of the Deployment, in which UID stands for the Icecream's.
func TestRepairsPassThePolicies(t *testing.T) {
	t.Parallel()
	const (
		ref       = `"apiVersion":"controller.nicoleh.io/v1alpha1","kind":"Icecream","uid":"UID"`
		localhost = `"seccompProfile":{"type":"Localhost","localhostProfile":"profiles/audit.json"}`
	)
	pod := func(fields string) string { return `{"spec":{"template":{"spec":{` + fields + `}}}}` }
	container := func(fields string) string { return pod(`"containers":[{"name":"icecream",` + fields + `}]`) }
	security := func(fields string) string { return container(`"securityContext":{` + fields + `}`) }
	power := `"hostNetwork":true,"hostPID":true,"serviceAccountName":"default","volumes":[
		{"name":"password","secret":{"secretName":"password","optional":true}},{"name":"logs","hostPath":{"path":"/var/log"}}]`
	sidecar := `{"name":"sidecar","image":"registry.example/sidecar:1","securityContext":{"privileged":true,"capabilities":{"add":["NET_ADMIN"]}},
		"envFrom":[{"secretRef":{"name":"password","optional":true}}]}`

	for name, c := range map[string]struct {
		change string
		stays  string // the part of the change that the controller leaves
	}{
		"all labels of the Deployment":            {change: `{"metadata":{"labels":null}}`},
		"the owner":                               {change: `{"metadata":{"ownerReferences":null}}`},
		"the owner controls not":                  {change: `{"metadata":{"ownerReferences":[{` + ref + `,"controller":false}]}}`},
		"the owner does not say that it controls": {change: `{"metadata":{"ownerReferences":[{` + ref + `,"controller":null}]}}`},
		"the owner can be deleted first":          {change: `{"metadata":{"ownerReferences":[{` + ref + `,"blockOwnerDeletion":null}]}}`},
		"the owner of another version":            {change: `{"metadata":{"ownerReferences":[{"apiVersion":"controller.nicoleh.io/v1","uid":"UID"}]}}`},
		"a token":                                 {change: pod(`"automountServiceAccountToken":true`)},
		"a token by default":                      {change: pod(`"automountServiceAccountToken":null`)},
		"root":                                    {change: pod(`"securityContext":{"runAsNonRoot":false}`)},
		"no seccomp":                              {change: pod(`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`)},
		"escalation":                              {change: security(`"allowPrivilegeEscalation":true`)},
		"another capability dropped":              {change: security(`"capabilities":{"drop":["CHOWN"]}`)},
		"no security context":                     {change: container(`"securityContext":null`)},
		"everything, beside power": {
			change: `{"metadata":{"ownerReferences":[{` + ref + `,"controller":false}]},"spec":{"replicas":5,"template":{"spec":{` + power + `,
				"automountServiceAccountToken":true,"securityContext":{"runAsNonRoot":false},"containers":[` + sidecar + `,
				{"name":"icecream","image":"registry.example/other:1","securityContext":{"allowPrivilegeEscalation":true,"capabilities":{"add":["NET_ADMIN"],"drop":null}}}]}}}}`,
			stays: pod(power + `,"containers":[` + sidecar + `,{"name":"icecream","securityContext":{"capabilities":{"add":["NET_ADMIN"]}}}]`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1", "resources: {requests: {cpu: 10m}}"))
			ice := n.EventuallyReady(t, "vanilla")
			patch := func(change string, o metav1.PatchOptions) *appsv1.Deployment {
				t.Helper()
				change = strings.ReplaceAll(change, "UID", string(ice.UID))
				d, err := n.Deployments().Patch(t.Context(), "vanilla", types.StrategicMergePatchType, []byte(change), o)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			want := n.Deployment(t, "vanilla")
			if c.stays != "" {
				want = patch(c.stays, lab.TryPatch)
			}
			if diff := lab.Diff(asked(want), asked(patch(c.change, metav1.PatchOptions{}))); diff == "" {
				t.Fatal("nothing has changed")
			}
			n.Eventually(t, "it is repaired", func(ctx context.Context) error {
				got, err := n.Deployments().Get(ctx, "vanilla", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if diff := lab.Diff(asked(want), asked(got)); diff != "" {
					return errors.New("(-want +got):\n" + diff)
				}
				return nil
			})
			n.EventuallyReady(t, "vanilla")
			for _, e := range requestsOf(t, n) {
				if e.Denial != "" {
					t.Errorf("a policy has refused %s %s: %s", e.Verb, e.Resource, e.Denial)
				}
			}
		})
	}
}

// asked returns what somebody has asked for in a Deployment.
func asked(d *appsv1.Deployment) *appsv1.Deployment {
	annotations := maps.Clone(d.Annotations)
	delete(annotations, "deployment.kubernetes.io/revision")
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Labels: d.Labels, Annotations: annotations, OwnerReferences: d.OwnerReferences},
		Spec:       d.Spec,
	}
}
