// Package charts tests what charts/icecream-controller renders, and what it
// refuses to.
package charts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	podsecurity "k8s.io/pod-security-admission/admission"
	podsecurityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../../.."
	chart = root + "/charts/icecream-controller"
)

// values are the files that the chart is rendered with, by name.
func values(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is nothing to render the chart with: %v", err)
	}
	found := map[string]map[string]any{}
	for _, file := range files {
		found[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = parse(t, string(read(t, file)))
	}
	return found
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

// merged are the values that the chart has when these are given.
func merged(t *testing.T, given map[string]any) map[string]any {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.CoalesceValues(c, given)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// render is what helm template does.
func render(given map[string]any) ([]byte, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "icecream-controller", Namespace: "icecream-system", IsInstall: true}
	all, err := util.ToRenderValues(c, given, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var manifests bytes.Buffer
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, ".yaml") {
			manifests.WriteString("---\n" + files[file] + "\n")
		}
	}
	return manifests.Bytes(), nil
}

// pods are the Pods that the objects of the manifests make, by kind and name.
func pods(t *testing.T, manifests []byte) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
			continue // not one of Kubernetes' own kinds, or nothing but comments
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		meta, spec, err := podsecurity.DefaultPodSpecExtractor{}.ExtractPodSpec(object)
		if err != nil {
			continue // a kind that makes no Pods
		}
		name := kind.Kind + "/" + object.(metav1.Object).GetName()
		found[name] = corev1.PodTemplateSpec{ObjectMeta: *meta, Spec: *spec}
	}
	if len(found) == 0 {
		t.Fatal("no object makes Pods")
	}
	return found
}

// violations are those of the restricted Pod Security Standard.
func violations(t *testing.T, pod corev1.PodTemplateSpec) string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := podsecurityapi.LevelVersion{Level: podsecurityapi.LevelRestricted, Version: podsecurityapi.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
	return result.ForbiddenDetail()
}

func TestPodsAreRestricted(t *testing.T) {
	manifests := map[string][]byte{"install.yaml": read(t, root+"/artifacts/install.yaml")}
	for name, given := range values(t) {
		rendered, err := render(given)
		if err != nil {
			t.Fatalf("rendering %s: %v", name, err)
		}
		manifests[name] = rendered
	}
	for from, rendered := range manifests {
		for name, pod := range pods(t, rendered) {
			if strings.HasSuffix(name, "-reboot-agent") {
				continue // TestRebootAgentIsNoMorePrivilegedThanItHasToBe
			}
			if found := violations(t, pod); found != "" {
				t.Errorf("%s: %s is not restricted: %s", from, name, found)
			}
		}
	}
}

// The agent talks to the host's process 1 and looks for a file of the host. That is
// all: no capability, no way to more privileges, nothing that is written to.
func TestRebootAgentIsNoMorePrivilegedThanItHasToBe(t *testing.T) {
	pod := pods(t, read(t, root+"/artifacts/reboot-agent.yaml"))["DaemonSet/icecream-controller-reboot-agent"]
	pod.Spec.HostPID = false
	pod.Spec.SecurityContext.AppArmorProfile = nil
	pod.Spec.SecurityContext.RunAsUser = nil
	pod.Spec.SecurityContext.RunAsNonRoot = ptr.To(true)
	for _, volume := range pod.Spec.Volumes {
		if volume.HostPath == nil || volume.HostPath.Path != "/var/run" {
			t.Errorf("volume %s", volume.Name)
		}
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("mount %s can be written to", mount.Name)
		}
	}
	pod.Spec.Volumes = nil
	if found := violations(t, pod); found != "" {
		t.Errorf("besides what it needs: %s", found)
	}
}

// What is loosened in a Pod is found: the test above says something.
func TestLoosenedPodsAreNotRestricted(t *testing.T) {
	for name, loosen := range map[string]func(*corev1.PodSpec){
		"root":           func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"seccomp":        func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"escalation":     func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
		"capabilities":   func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
		"host's network": func(s *corev1.PodSpec) { s.HostNetwork = true },
	} {
		for _, pod := range pods(t, read(t, root+"/artifacts/install.yaml")) {
			loosen(&pod.Spec)
			if violations(t, pod) == "" {
				t.Errorf("%s: the Pod is still called restricted", name)
			}
		}
	}
}

// Every switch of the chart is on with one of the value files and off with another.
func TestValueFilesTurnEverySwitch(t *testing.T) {
	seen := map[string]map[bool]bool{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				walk(path+"."+key, inner)
			}
		case bool:
			if seen[path] == nil {
				seen[path] = map[bool]bool{}
			}
			seen[path][value] = true
		}
	}
	for _, given := range values(t) {
		all := merged(t, given)
		delete(all, "controllers") // TestRefused turns them all off
		delete(all, "flags")
		walk("", all)
	}
	for path, values := range seen {
		if len(values) != 2 {
			t.Errorf("%s is %v in every value file", path, slices.Collect(maps.Keys(values)))
		}
	}
}

// elsewhere are the flags that are no values of the chart.
var elsewhere = []string{
	// Templates set them.
	"controllers", "namespace", "leader-elect-resource-name", "tls-cert-file", "tls-private-key-file",
	"secretsync-source-namespace", "secretsync-annotation",
	// Probes, Service and NetworkPolicy know their defaults.
	"bind-address", "insecure-bind-address",
	// Two replicas need it, and one is not harmed.
	"leader-elect", "leader-elect-resource-lock", "leader-elect-resource-namespace",
	// A Pod finds its API server.
	"kubeconfig", "master",
	// The program only says something and ends.
	"version",
}

// The schema allows exactly those flags that the controller has and that are not elsewhere.
func TestFlagsAreTheControllers(t *testing.T) {
	var schema struct {
		Properties struct {
			Flags struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(read(t, chart+"/values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	given := values(t)["everything"]
	allowed := slices.Sorted(maps.Keys(schema.Properties.Flags.Properties))
	tried := slices.Sorted(maps.Keys(given["flags"].(map[string]any)))
	if diff := cmp.Diff(allowed, tried); diff != "" {
		t.Errorf("flags of the schema (-) and of ci/everything-values.yaml (+):\n%s", diff)
	}

	binary := filepath.Join(t.TempDir(), "controller")
	build := exec.Command("go", "build", "-C", root, "-o", binary, ".")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the controller: %v\n%s", err, output)
	}
	agent := filepath.Join(t.TempDir(), "reboot-agent")
	if output, err := exec.Command("go", "build", "-C", root, "-o", agent, "./cmd/reboot-agent").CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, output)
	}
	help, err := exec.Command(binary, "-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, flag := range regexp.MustCompile(`(?m)^  -([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
		has = append(has, string(flag[1]))
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(has)), slices.Sorted(slices.Values(slices.Concat(allowed, elsewhere)))); diff != "" {
		t.Errorf("flags of the controller (-) and of the schema or elsewhere (+):\n%s", diff)
	}
	for name, given := range values(t) {
		rendered, err := render(given)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods(t, rendered) {
			args := slices.Concat(pod.Spec.Containers[0].Args, []string{"-version"})
			binary := binary
			if pod.Spec.Containers[0].Name == "reboot-agent" {
				binary = agent
			}
			if output, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: the controller refuses %q: %s", name, args, output)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"no controller":                  {"controllers: {icecream: {enabled: false}}", "no controller is enabled: set controllers.<name>.enabled of at least one"},
		"an unknown controller":          {"controllers: {sorbet: {enabled: true}}", "at '/controllers': additional properties 'sorbet' not allowed"},
		"secretsync in one namespace":    {"{namespace: team, controllers: {secretsync: {enabled: true}}}", "secretsync copies between namespaces"},
		"no namespace of sources":        {`controllers: {secretsync: {sourceNamespace: ""}}`, "at '/controllers/secretsync/sourceNamespace'"},
		"an annotation with a space":     {"controllers: {secretsync: {annotation: a b}}", "at '/controllers/secretsync/annotation': 'a b' does not match pattern"},
		"a misspelt value":               {"replcas: 3", "at '': additional properties 'replcas' not allowed"},
		"a negative number":              {"replicas: -1", "at '/replicas': minimum: got -1, want 0"},
		"a number in words":              {"replicas: two", "at '/replicas': got string, want integer"},
		"a switch in words":              {`podDisruptionBudget: {enabled: "yes"}`, "at '/podDisruptionBudget/enabled': got string, want boolean"},
		"several namespaces":             {"namespace: a,b", "at '/namespace': 'a,b' does not match pattern"},
		"an unknown flag":                {"flags: {wrokers: 3}", "at '/flags': additional properties 'wrokers' not allowed"},
		"a flag of the chart's":          {"flags: {leader-elect: false}", "at '/flags': additional properties 'leader-elect' not allowed"},
		"a flag's bad value":             {"flags: {workers: 0}", "at '/flags/workers': minimum: got 0, want 1"},
		"a time without a unit":          {"flags: {stall-after: 60}", "at '/flags/stall-after': got number, want string"},
		"a log format":                   {"flags: {logging-format: xml}", "at '/flags/logging-format': value must be one of 'text', 'json'"},
		"no limits":                      {"resources: {limits: null}", "at '/resources': missing property 'limits'"},
		"no memory request":              {"resources: {requests: {memory: null}}", "at '/resources/requests': missing property 'memory'"},
		"root":                           {"user: 0", "at '/user': minimum: got 0, want 1"},
		"nobody's account":               {"serviceAccount: {create: false}", "at '/serviceAccount/name': minLength: got 0, want 1"},
		"a short digest":                 {"image: {digest: abc}", "at '/image/digest': 'abc' does not match pattern"},
		"nodes of a namespace":           {"{namespace: team, controllers: {nodereboot: {enabled: true}}}", "nodes are in no namespace"},
		"more nodes than there are":      {"flags: {nodereboot-max-unavailable: 101%}", "at '/flags/nodereboot-max-unavailable': '101%' does not match pattern"},
		"scraping what is not there":     {"{metrics: {enabled: false}, monitoring: {serviceMonitor: {enabled: true}}}", "monitoring.serviceMonitor.enabled needs metrics.enabled"},
		"an API server without a port":   {"networkPolicy: {apiServer: {ports: []}}", "at '/networkPolicy/apiServer/ports': minItems: got 0, want 1"},
		"an API server without a prefix": {"networkPolicy: {apiServer: {cidrs: [10.0.0.1]}}", "at '/networkPolicy/apiServer/cidrs/0': '10.0.0.1' does not match pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(parse(t, test.values))
			if err == nil {
				t.Fatalf("%s gives:\n%s", test.values, rendered)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s is refused with %q, want %q", test.values, err, test.want)
			}
		})
	}
}
