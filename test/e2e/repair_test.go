package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// Everything that docs/using.md promises to repair is repaired under the installed policies, also
// if the API server validates it together with what somebody else has set.
func TestRepairs(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	const strategic, plain = types.StrategicMergePatchType, types.JSONPatchType
	pod := func(spec string) string { return `{"spec":{"template":{"spec":` + spec + `}}}` }
	container := func(fields string) string { return pod(`{"containers":[{"name":"icecream",` + fields + `}]}`) }
	for name, edit := range map[string]struct {
		kind  types.PatchType
		patch string
	}{
		"replicas":              {strategic, `{"spec":{"replicas":5}}`},
		"image":                 {strategic, container(`"image":"registry.example/mud:1"`)},
		"limits":                {strategic, container(`"resources":{"limits":{"cpu":"1"}}`)},
		"labels":                {strategic, `{"metadata":{"labels":{"app.kubernetes.io/name":null,"controller.nicoleh.io/icecream":"mud"}}}`},
		"template-labels":       {strategic, `{"spec":{"template":{"metadata":{"labels":{"app.kubernetes.io/managed-by":"mud"}}}}}`},
		"hash":                  {strategic, `{"spec":{"template":{"metadata":{"annotations":{"controller.nicoleh.io/spec-hash":null}}}}}`},
		"token":                 {strategic, pod(`{"automountServiceAccountToken":true}`)},
		"root":                  {strategic, pod(`{"securityContext":{"runAsNonRoot":false}}`)},
		"no-security-context":   {strategic, pod(`{"securityContext":null,"containers":[{"name":"icecream","securityContext":null}]}`)},
		"seccomp":               {strategic, pod(`{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}`)},
		"seccomp-of-the-node":   {strategic, pod(`{"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"mud.json"}}}`)},
		"seccomp-by-annotation": {strategic, `{"spec":{"template":{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined"}},"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}}}}`},
		"privileged":            {strategic, container(`"securityContext":{"privileged":true,"allowPrivilegeEscalation":null}`)},
		"escalation":            {strategic, container(`"securityContext":{"allowPrivilegeEscalation":true}`)},
		"sys-admin":             {strategic, container(`"securityContext":{"allowPrivilegeEscalation":true,"capabilities":{"add":["CAP_SYS_ADMIN"]}}`)},
		"capabilities":          {strategic, container(`"securityContext":{"capabilities":{"drop":null}}`)},
		"windows":               {strategic, pod(`{"os":{"name":"windows"},"nodeSelector":{"kubernetes.io/os":"windows"},"securityContext":null,"containers":[{"name":"icecream","securityContext":null}]}`)},
		"owner":                 {plain, `[{"op":"remove","path":"/metadata/ownerReferences"}]`},
		"owner-controls-not":    {plain, `[{"op":"replace","path":"/metadata/ownerReferences/0/controller","value":false}]`},
		"owner-blocks-not":      {plain, `[{"op":"remove","path":"/metadata/ownerReferences/0/blockOwnerDeletion"}]`},
		"container-name":        {plain, `[{"op":"replace","path":"/spec/template/spec/containers/0/name","value":"mud"},{"op":"add","path":"/spec/template/spec/initContainers","value":[{"name":"icecream","image":"mud"}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n.Create(t, name, v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](0)})
			n.EventuallyReady(t, name)
			want := n.Deployment(t, name)
			if _, err := n.Deployments().Patch(t.Context(), name, edit.kind, []byte(edit.patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			n.Eventually(t, "it is repaired", func(ctx context.Context) error {
				got, err := n.Deployments().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				got.Spec.Template.Spec.OS = nil
				if name == "container-name" { // Theirs stays beside ours.
					if len(got.Spec.Template.Spec.Containers) != 2 || len(got.Spec.Template.Spec.InitContainers) != 0 {
						return errors.New("our container is not back")
					}
					return nil
				}
				if diff := lab.Diff([]any{want.Labels, want.OwnerReferences, want.Spec}, []any{got.Labels, got.OwnerReferences, got.Spec}); diff != "" {
					return fmt.Errorf("the Deployment differs (-want +got):\n%s", diff)
				}
				return nil
			})
			n.EventuallyReady(t, name)
		})
	}
}
