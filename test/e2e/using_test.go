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

var manifest = regexp.MustCompile("(?s)\n```yaml\n# (\\S+)\\.yaml\n(.*?)\n```\n")

// manifests returns the manifests of docs/using.md by their file names, and the whole page.
func manifests(t *testing.T, l *lab.Lab) (found map[string]string, page string) {
	t.Helper()
	using, err := os.ReadFile(l.Path("docs/using.md"))
	if err != nil {
		t.Fatal(err)
	}
	found = map[string]string{}
	for _, match := range manifest.FindAllStringSubmatch(string(using), -1) {
		if strings.Contains(match[2], "\nkind: ") {
			found[match[1]] = match[2]
		}
	}
	return found, string(using)
}

// The manifests of docs/using.md find the Icecream and its Pods, and scale it.
func TestNextToAnIcecream(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	lab.Kubectl(t, n.Lab, "apply", "-f", "testdata/verticalpodautoscaler.yaml")
	lab.Kubectl(t, n.Lab, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "-f", "testdata/verticalpodautoscaler.yaml")
	found, _ := manifests(t, n.Lab)
	for file, text := range found {
		if !strings.HasPrefix(file, "template/") {
			n.Apply(t, text)
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

// The templates of docs/using.md do what it says, in a namespace with the label that it names. Without
// them, what they have set is gone. A misspelt one is reported in the words of the page.
func TestTemplatesOfThePage(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	found, page := manifests(t, n.Lab)
	label := regexp.MustCompile(`kubectl label namespace NAMESPACE (\S+)`).FindStringSubmatch(page)
	removal := regexp.MustCompile(`kubectl patch icecream variable --type=merge -p '(.+)'`).FindStringSubmatch(page)
	misspelt := regexp.MustCompile(`\nspec\.template: unknown field "spec\.containers\[0\]\.(\w+)"\n`).FindStringSubmatch(page)
	if label == nil || removal == nil || misspelt == nil {
		t.Fatal("the page does not name the label, the removal, or a misspelt field")
	}
	lab.Kubectl(t, n.Lab, "label", "namespace", n.Name, label[1])
	n.Kubectl(t, "create", "serviceaccount", "reader")
	n.Kubectl(t, "create", "secret", "generic", "password", "--from-literal=PASSWORD=secret")
	const container = `{.spec.template.spec.containers[?(@.name=="icecream")]`
	for _, c := range []struct{ name, path, with, without string }{
		{"variable", container + `.env}`, `[{"name":"GREETING","value":"hello"}]`, ``},
		{"command", container + `.command}` + container + `.args}`, `["nginx"]["-e","stderr","-g","daemon off;"]`, ``},
		{"probe", container + `.readinessProbe.httpGet.port}`, `8080`, ``},
		{
			"volume", `{.spec.template.spec.volumes[*].emptyDir.sizeLimit} ` + container + `.securityContext}`,
			`64Mi {"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true}`,
			` {"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}`,
		},
		{
			"account", `{.spec.template.spec.serviceAccountName} {.spec.template.spec.automountServiceAccountToken} ` + container + `.envFrom}`,
			`reader true [{"secretRef":{"name":"password"}}]`, ` false `,
		},
		{"sidecar", `{.spec.template.spec.containers[*].name}`, `icecream proxy`, `icecream`},
	} {
		text := found["template/"+c.name]
		delete(found, "template/"+c.name)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requireShows := func(want string) {
				t.Helper()
				n.EventuallyReady(t, c.name)
				if got := n.Kubectl(t, "get", "deployment", c.name, "-o=jsonpath="+c.path); got != want {
					t.Errorf("the Deployment has %s, want %s", got, want)
				}
			}
			n.Apply(t, text)
			requireShows(c.with)
			if wrong := strings.Replace(text, "env:", misspelt[1]+":", 1); wrong != text {
				n.Apply(t, wrong)
				n.EventuallyStalled(t, c.name, "InvalidSpec")
				if words := n.Kubectl(t, "get", "icecream", c.name, `-o=jsonpath={.status.conditions[?(@.type=="Ready")].message}`); words != strings.TrimSpace(misspelt[0]) {
					t.Errorf("the message is %q", words)
				}
			}
			n.Kubectl(t, "patch", "icecream", c.name, "--type=merge", "-p", removal[1])
			requireShows(c.without)
		})
	}
	for file := range found {
		if strings.HasPrefix(file, "template/") {
			t.Errorf("nobody tries %s.yaml", file)
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
