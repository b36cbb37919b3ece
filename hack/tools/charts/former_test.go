package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The Lease of a release has the name of its Deployment. The program and its permissions
// also know the name that the Lease had when the chart was called icecream-controller,
// unless it is the same.
func TestFormerLease(t *testing.T) {
	for _, tt := range []struct{ release, values, want, former string }{
		{"k8s-controller", "{}", "k8s-controller", "icecream-controller"},
		{"ice", "{}", "ice-k8s-controller", "ice-icecream-controller"},
		{"icecream-controller", "{}", "icecream-controller-k8s-controller", "icecream-controller"},
		{"my-icecream-controller", "{}", "my-icecream-controller-k8s-controller", "my-icecream-controller"},
		{"k8s-controller", "{fullnameOverride: ice}", "ice", ""},
		{"icecream-controller", "{fullnameOverride: ice}", "ice", ""},
		{"icecream-controller", "{nameOverride: icecream-controller}", "icecream-controller", ""},
		{"ice", "{nameOverride: icecream-controller}", "ice-icecream-controller", ""},
		{"a-release-with-a-very-long-name-of-53-characters-indeed", "{}", "a-release-with-a-very-l-k8s-controller", "a-release-with-a-very-l-icecream-controller"},
	} {
		manifests, err := renderAs(tt.release, parse(t, tt.values))
		if err != nil {
			t.Fatal(err)
		}
		names, args := []any{tt.want}, []string{"-leader-elect-resource-name=" + tt.want}
		if tt.former != "" {
			names, args = append(names, tt.former), append(args, "-leader-elect-former-resource-name="+tt.former)
		}
		all := objects(t, manifests)
		var elect []string
		for _, arg := range pods(t, manifests)["Deployment/"+tt.want].Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "-leader-elect") {
				elect = append(elect, arg)
			}
		}
		if diff := cmp.Diff(args, elect); diff != "" {
			t.Errorf("%s with %s: arguments (-want +got):\n%s", tt.release, tt.values, diff)
		}
		role := all["Role/"+tt.want+"-leader-election"]["rules"].([]any)[1].(map[string]any)
		if diff := cmp.Diff(names, role["resourceNames"]); diff != "" {
			t.Errorf("%s with %s: the role's Leases (-want +got):\n%s", tt.release, tt.values, diff)
		}
		validations := all["ValidatingAdmissionPolicy/"+tt.want+"-lease-writes"]["spec"].(map[string]any)["validations"].([]any)
		list := strings.ReplaceAll(fmt.Sprintf("%q", names), " ", ",")
		if expression := validations[0].(map[string]any)["expression"].(string); !strings.HasSuffix(expression, " in "+list) {
			t.Errorf("%s with %s: the policy says %s, want %s", tt.release, tt.values, expression, list)
		}
		if labels := all["Deployment/"+tt.want]["metadata"].(map[string]any)["labels"].(map[string]any); strings.HasPrefix(tt.values, "{nameOverride") != (labels["app.kubernetes.io/name"] == "icecream-controller") {
			t.Errorf("%s with %s: labels %v", tt.release, tt.values, labels)
		}
	}
}
