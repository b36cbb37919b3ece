package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/test/lab"
)

var manifest = regexp.MustCompile("(?s)\n```yaml\n# \\S+\\.yaml\n(.*?)\n```\n")

// The manifests of docs/using.md find the Icecream and its Pods, and scale it.
func TestNextToAnIcecream(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	kubectl(t, n.Lab, "apply", "-f", "testdata/verticalpodautoscaler.yaml")
	kubectl(t, n.Lab, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "-f", "testdata/verticalpodautoscaler.yaml")
	using, err := os.ReadFile(n.Lab.Path("docs/using.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range manifest.FindAllSubmatch(using, -1) {
		if strings.Contains(string(found[1]), "\nkind: ") {
			n.Apply(t, string(found[1]))
		}
	}
	n.EventuallyReady(t, "shop")
	eventuallyShows := func(want string, args ...string) {
		t.Helper()
		n.Eventually(t, strings.Join(args, " "), func(ctx context.Context) error {
			got, err := n.TryKubectl(ctx, "", append([]string{"get"}, args...)...)
			if err == nil && got != want {
				err = fmt.Errorf("it is %q, want %q", got, want)
			}
			return err
		})
	}
	eventuallyShows("3", "endpointslices", "-l=kubernetes.io/service-name=shop", "-o=go-template={{range .items}}{{len .endpoints}}{{end}}")
	eventuallyShows("3 1", "poddisruptionbudget/shop", "-o=jsonpath={.status.expectedPods} {.status.disruptionsAllowed}")
	eventuallyShows("True", "hpa/shop", `-o=jsonpath={.status.conditions[?(@.type=="AbleToScale")].status}`)
	n.Kubectl(t, "patch", "hpa/shop", "--type=merge", `--patch={"spec":{"minReplicas":4}}`)
	eventuallyShows("4 4", "icecream/shop", "-o=jsonpath={.spec.replicas} {.status.availableReplicas}")

	// What a VerticalPodAutoscaler asks for: that nothing controls its target, and that the
	// target's scale selects the Pods.
	target := strings.Fields(n.Kubectl(t, "get", "vpa/shop", "-o=jsonpath={.spec.targetRef.apiVersion} {.spec.targetRef.kind} {.spec.targetRef.name} {.spec.resourcePolicy.containerPolicies[0].containerName}"))
	ice := n.Icecream(t, "shop")
	if fmt.Sprint(target) != "[controller.nicoleh.io/v1alpha1 Icecream shop icecream]" || metav1.GetControllerOf(ice) != nil {
		t.Errorf("the VerticalPodAutoscaler targets %q", target)
	}
	selector := n.Kubectl(t, "get", "icecream/shop", "--subresource=scale", "-o=jsonpath={.status.selector}")
	for _, selected := range []string{selector, n.Kubectl(t, "get", "networkpolicy/shop", `-o=go-template={{range $k, $v := .spec.podSelector.matchLabels}}{{$k}}={{$v}}{{end}}`)} {
		if err := selects(t, n, selected, "icecream", 4); err != nil {
			t.Errorf("%s: %v", selected, err)
		}
	}
}

// selects requires that a selector finds that many Pods, each with a container of that name.
func selects(t *testing.T, n *lab.Namespace, selector, container string, pods int) error {
	t.Helper()
	list, err := n.Pods().List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		if pod.Spec.Containers[0].Name != container {
			return errors.New("a Pod has no container " + container)
		}
	}
	if len(list.Items) != pods {
		return fmt.Errorf("it selects %d Pods, want %d", len(list.Items), pods)
	}
	return nil
}
