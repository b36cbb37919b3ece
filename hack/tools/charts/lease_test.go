package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The Lease of a release has the name of its Deployment: for the program, for its
// permissions and for the policy. So a release that keeps its former names by nameOverride
// also keeps its Lease.
func TestLease(t *testing.T) {
	for _, tt := range []struct{ release, values, want string }{
		{"k8s-controller", "{}", "k8s-controller"},
		{"ice", "{}", "ice-k8s-controller"},
		{"icecream-controller", "{}", "icecream-controller-k8s-controller"},
		{"k8s-controller", "{fullnameOverride: ice}", "ice"},
		{"icecream-controller", "{nameOverride: icecream-controller}", "icecream-controller"},
		{"ice", "{nameOverride: icecream-controller}", "ice-icecream-controller"},
		{"a-release-with-a-very-long-name-of-53-characters-indeed", "{}", "a-release-with-a-668e67-k8s-controller"},
	} {
		manifests, err := renderAs(tt.release, parse(t, tt.values))
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, manifests)
		var elect []string
		for _, arg := range pods(t, manifests)["Deployment/"+tt.want].Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "-leader-elect") {
				elect = append(elect, arg)
			}
		}
		if diff := cmp.Diff([]string{"-leader-elect-resource-name=" + tt.want}, elect); diff != "" {
			t.Errorf("%s with %s: arguments (-want +got):\n%s", tt.release, tt.values, diff)
		}
		role := all["Role/"+tt.want+"-leader-election"]["rules"].([]any)[1].(map[string]any)
		if diff := cmp.Diff([]any{tt.want}, role["resourceNames"]); diff != "" {
			t.Errorf("%s with %s: the role's Lease (-want +got):\n%s", tt.release, tt.values, diff)
		}
		validations := all["ValidatingAdmissionPolicy/"+tt.want+"-lease-writes"]["spec"].(map[string]any)["validations"].([]any)
		if expression, want := validations[0].(map[string]any)["expression"].(string), fmt.Sprintf(" == %q", tt.want); !strings.HasSuffix(expression, want) {
			t.Errorf("%s with %s: the policy says %s, want ...%s", tt.release, tt.values, expression, want)
		}
		if labels := all["Deployment/"+tt.want]["metadata"].(map[string]any)["labels"].(map[string]any); strings.HasPrefix(tt.values, "{nameOverride") != (labels["app.kubernetes.io/name"] == "icecream-controller") {
			t.Errorf("%s with %s: labels %v", tt.release, tt.values, labels)
		}
	}
}
