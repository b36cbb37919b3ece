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
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

var manifest = regexp.MustCompile("(?s)\n```yaml\n(apiVersion: controller.nicoleh.io/.*?\n)```\n")

// icecreams returns the Icecreams of docs/using.md by their names, and the whole page.
func icecreams(t *testing.T, l *lab.Lab) (found map[string]string, page string) {
	t.Helper()
	using, err := os.ReadFile(l.Path("docs/using.md"))
	if err != nil {
		t.Fatal(err)
	}
	found = map[string]string{}
	for _, match := range manifest.FindAllStringSubmatch(string(using), -1) {
		var ice v1alpha1.Icecream
		if err := yaml.UnmarshalStrict([]byte(match[1]), &ice); err != nil {
			t.Fatal(err)
		}
		found[ice.Name] = match[1]
	}
	return found, string(using)
}

// The files of artifacts/examples/shop find the Icecream and its Pods, and scale it.
func TestNextToAnIcecream(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	lab.Kubectl(t, n.Lab, "apply", "-f", "testdata/verticalpodautoscaler.yaml")
	lab.Kubectl(t, n.Lab, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "-f", "testdata/verticalpodautoscaler.yaml")
	n.Kubectl(t, "apply", "-k", n.Lab.Path("artifacts/examples/shop/base"))
	n.Kubectl(t, "apply", "-f", n.Lab.Path("artifacts/examples/shop/verticalpodautoscaler.yaml"))
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

// The Icecreams of docs/using.md get what it says, in a namespace with the label that it names. Without
// their templates, what these have set is gone. A misspelt one is reported in the words of the page.
func TestIcecreamsOfThePage(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	found, page := icecreams(t, n.Lab)
	label := regexp.MustCompile(`kubectl label namespace NAMESPACE (\S+)`).FindStringSubmatch(page)
	removal := regexp.MustCompile(`kubectl patch icecream \S+ --type=merge -p '(.+)'`).FindStringSubmatch(page)
	misspelt := regexp.MustCompile(`\nspec\.template: unknown field "spec\.containers\[0\]\.(\w+)"\n`).FindStringSubmatch(page)
	if label == nil || removal == nil || misspelt == nil {
		t.Fatal("the page does not name the label, the removal, or a misspelt field")
	}
	lab.Kubectl(t, n.Lab, "label", "namespace", n.Name, label[1])
	n.Kubectl(t, "create", "serviceaccount", "reader")
	n.Kubectl(t, "create", "secret", "generic", "database", "--from-literal=password=secret")
	n.Kubectl(t, "create", "secret", "generic", "tokens", "--from-literal=TOKEN=secret")
	const container = `{.spec.template.spec.containers[?(@.name=="icecream")]`
	for _, c := range []struct{ name, path, with, without string }{
		{
			"example-icecream",
			`{.spec.replicas} {.spec.template.spec.terminationGracePeriodSeconds} ` + container + `.resources}`,
			`3 10 {"requests":{"cpu":"100m","memory":"64Mi"}}`,
			`3 30 {"requests":{"cpu":"100m","memory":"64Mi"}}`,
		},
		{
			"sundae",
			container + `.env}` + container + `.command}` + container + `.args}` + container + `.readinessProbe.httpGet.port}` +
				container + `.securityContext}{.spec.template.spec.volumes[*].emptyDir.sizeLimit}`,
			`[{"name":"GREETING","value":"hello"}]["nginx"]["-e","stderr","-g","daemon off;"]8080` +
				`{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true}64Mi`,
			`{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}`,
		},
		{
			"affogato",
			`{.spec.template.spec.serviceAccountName} {.spec.template.spec.automountServiceAccountToken} ` + container + `.env}` + container + `.envFrom}`,
			`reader true [{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"key":"password","name":"database"}}}][{"secretRef":{"name":"tokens"}}]`,
			` false `,
		},
		{"wafer", `{.spec.template.spec.containers[*].name}`, `icecream proxy`, `icecream`},
	} {
		text := found[c.name]
		delete(found, c.name)
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
	for name := range found {
		t.Errorf("nobody tries %s", name)
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
