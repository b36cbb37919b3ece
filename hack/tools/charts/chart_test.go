// Package charts tests what charts/k8s-controller renders, and what it
// refuses to.
package charts

import (
	"bufio"
	"bytes"
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
	"sigs.k8s.io/yaml"
)

const (
	root  = "../../.."
	chart = root + "/charts/k8s-controller"
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

// optional are the names of the controllers that are off by default, sorted.
func optional(t *testing.T) (names []string) {
	t.Helper()
	for name, block := range parse(t, string(read(t, chart+"/values.yaml")))["controllers"].(map[string]any) {
		if block.(map[string]any)["enabled"] == false {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// allOn are values with every controller on, and some more.
func allOn(t *testing.T, more string) map[string]any {
	t.Helper()
	all := parse(t, more)
	switches := map[string]any{}
	for _, name := range optional(t) {
		switches[name] = map[string]any{"enabled": true}
	}
	all["controllers"] = switches
	return all
}

// byValues are the flags that the values of a controller stand for.
func byValues(t *testing.T, name string) (flags []string) {
	t.Helper()
	var walk func(prefix string, block map[string]any)
	walk = func(prefix string, block map[string]any) {
		for key, value := range block {
			flag := prefix + "-" + strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(key, "-$0"))
			if inner, ok := value.(map[string]any); ok {
				walk(flag, inner)
			} else {
				flags = append(flags, flag)
			}
		}
	}
	walk(name, parse(t, string(read(t, chart+"/values.yaml")))["controllers"].(map[string]any)[name].(map[string]any))
	return flags
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
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
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
func render(given map[string]any) ([]byte, error) { return renderAs("k8s-controller", given) }

// renderAs renders the chart for a release of that name.
func renderAs(name string, given map[string]any) ([]byte, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: name, Namespace: "k8s-controller-system", IsInstall: true}
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

// violations are what a Pod Security Standard forbids in the Pod; nothing if empty.
func violations(t *testing.T, pod corev1.PodTemplateSpec, level podsecurityapi.Level) string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	latest := podsecurityapi.LevelVersion{Level: level, Version: podsecurityapi.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(latest, &pod.ObjectMeta, &pod.Spec))
	return result.ForbiddenDetail()
}

// Pods are restricted, except those of which a file in testdata/switches says otherwise.
// Their controllers have tests of how far that goes.
func TestPodsAreRestricted(t *testing.T) {
	var exceptions []string // such as "DaemonSet/-agent", without the release's name
	for _, lines := range switches(t) {
		for _, line := range lines {
			if object, ok := strings.CutSuffix(line, notRestricted); ok {
				exceptions = append(exceptions, object)
			}
		}
	}
	isMatch := func(exception, name string) bool {
		kind, end, _ := strings.Cut(exception, "/")
		return strings.HasPrefix(name, kind+"/") && strings.HasSuffix(name, end)
	}
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
			if slices.ContainsFunc(exceptions, func(e string) bool { return isMatch(e, name) }) {
				continue
			}
			if found := violations(t, pod, podsecurityapi.LevelRestricted); found != "" {
				t.Errorf("%s: %s is not restricted: %s", from, name, found)
			}
		}
	}
}

// TestPodsAreRestricted finds what is loosened in a Pod.
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
			if violations(t, pod, podsecurityapi.LevelRestricted) == "" {
				t.Errorf("%s: the Pod is still called restricted", name)
			}
		}
	}
}

// objects are those of the manifests by kind and name.
func objects(t *testing.T, manifests []byte) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		if object := parse(t, document); object != nil {
			meta := object["metadata"].(map[string]any)
			found[object["kind"].(string)+"/"+meta["name"].(string)] = object
		}
	}
	return found
}

// notRestricted marks an object in testdata/switches whose Pods are not restricted.
const notRestricted = " (not restricted)"

// switches returns the files in testdata/switches by the name of the controller: each has
// the arguments and the objects that come with it, without the release's name.
func switches(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("testdata/switches/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, file := range files {
		lines := strings.Split(strings.TrimSpace(string(read(t, file))), "\n")
		found[strings.TrimSuffix(filepath.Base(file), ".txt")] = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
	}
	return found
}

// A controller that is switched on brings what its file in testdata/switches says, and
// changes nothing else; one that is off leaves nothing behind. A controller without a file
// brings its flags, a ClusterRole and a policy.
func TestEachSwitchBringsItsOwn(t *testing.T) {
	installed := func(values string) (map[string]map[string]any, map[string]corev1.PodTemplateSpec) {
		manifests, err := render(parse(t, values))
		if err != nil {
			t.Fatal(err)
		}
		return objects(t, manifests), pods(t, manifests)
	}
	const deployment = "Deployment/k8s-controller"
	args := func(objects map[string]map[string]any) []string {
		template := objects[deployment]["spec"].(map[string]any)["template"].(map[string]any)
		var args []string
		for _, arg := range template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["args"].([]any) {
			args = append(args, arg.(string))
		}
		template["spec"] = nil // all else of it is compared
		return args
	}
	before, _ := installed("{}")
	argsBefore := args(before)
	known := switches(t)
	for name := range known {
		if !slices.Contains(optional(t), name) {
			t.Errorf("testdata/switches/%s.txt: there is no such controller, or it is always on", name)
		}
	}
	for _, name := range optional(t) {
		t.Run(name, func(t *testing.T) {
			after, podsAfter := installed("controllers: {" + name + ": {enabled: true}}")
			want, isKnown := known[name]
			var got []string
			for _, arg := range args(after) {
				flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
				if !slices.Contains(argsBefore, arg) && (isKnown || !slices.Contains(byValues(t, name), flag)) {
					got = append(got, arg)
				}
			}
			if !isKnown {
				want = []string{
					"-controllers=" + strings.Join(slices.Sorted(slices.Values([]string{"icecream", name})), ","),
					"ClusterRole/-" + name, "ClusterRoleBinding/-" + name,
					"ValidatingAdmissionPolicy/-" + name + "-writes", "ValidatingAdmissionPolicyBinding/-" + name + "-writes",
				}
			}
			for _, object := range slices.Sorted(maps.Keys(after)) {
				if _, isOld := before[object]; isOld {
					continue
				}
				line := strings.Replace(object, "/k8s-controller-", "/-", 1)
				if pod, ok := podsAfter[object]; ok && violations(t, pod, podsecurityapi.LevelRestricted) != "" {
					line += notRestricted
				}
				got = append(got, line)
				delete(after, object)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("its arguments and objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("what has nothing to do with it (-without +with):\n%s", diff)
			}
		})
	}
}

// policyOf is a policy that the chart renders.
func policyOf(t *testing.T, values, name string) map[string]any {
	t.Helper()
	manifests, err := render(parse(t, values))
	if err != nil {
		t.Fatal(err)
	}
	policy := objects(t, manifests)["ValidatingAdmissionPolicy/"+name]
	if policy == nil {
		t.Fatalf("%s gives no policy %s", values, name)
	}
	return policy
}

// A policy is about the account that the controllers really have.
func TestPoliciesFollowTheValues(t *testing.T) {
	for values, want := range map[string]string{
		"{}": `request.userInfo.username == "system:serviceaccount:k8s-controller-system:k8s-controller"`,
		"{serviceAccount: {create: false, name: dessert}}":                    `request.userInfo.username == "system:serviceaccount:k8s-controller-system:dessert"`,
		"{fullnameOverride: ice}":                                             `request.userInfo.username == "system:serviceaccount:k8s-controller-system:ice"`,
		"{policies: {everyNamespace: true}, serviceAccount: {name: dessert}}": `request.userInfo.username.startsWith("system:serviceaccount:") && request.userInfo.username.endsWith(":dessert")`,
	} {
		name := "k8s-controller"
		if strings.Contains(values, "fullnameOverride") {
			name = "ice"
		}
		all, err := yaml.Marshal(allOn(t, values))
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range append(optional(t), "icecream", "event", "lease") {
			spec := policyOf(t, string(all), name+"-"+of+"-writes")["spec"].(map[string]any)
			if condition := spec["matchConditions"].([]any)[0].(map[string]any)["expression"]; condition != want {
				t.Errorf("%s: the policy of %s is about %s, want %s", values, of, condition, want)
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

// The dashboard has a row for each controller that can be off, if it is on.
func TestDashboardHasRowsOfWhatIsOn(t *testing.T) {
	titles := func(dashboard map[string]any) (rows, all []string) {
		for _, panel := range dashboard["panels"].([]any) {
			panel := panel.(map[string]any)
			all = append(all, panel["title"].(string))
			if panel["type"] == "row" {
				rows = append(rows, panel["title"].(string))
			}
		}
		return rows, all
	}
	installed := func(values map[string]any) map[string]any {
		manifests, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		data := objects(t, manifests)["ConfigMap/k8s-controller-dashboard"]["data"].(map[string]any)
		return parse(t, data["k8s-controller.json"].(string))
	}
	whole := parse(t, string(read(t, root+"/artifacts/monitoring/dashboard.json")))
	if diff := cmp.Diff(whole, installed(allOn(t, "monitoring: {dashboard: {enabled: true}}"))); diff != "" {
		t.Errorf("with all controllers (-artifacts +chart):\n%s", diff)
	}
	rows, all := titles(whole)
	usual, panels := titles(installed(parse(t, "monitoring: {dashboard: {enabled: true}}")))
	for i, title := range rows {
		if i < len(usual) && title != usual[i] || i >= len(usual) && !slices.Contains(optional(t), title) {
			t.Errorf("row %d is %q, which is neither about all controllers nor about one that is off by default", i, title)
		}
	}
	if i := slices.IndexFunc(all, func(title string) bool { return slices.Contains(optional(t), title) }); i >= 0 {
		all = all[:i]
	}
	if diff := cmp.Diff(all, panels); diff != "" {
		t.Errorf("panels of Icecream's (-artifacts +chart):\n%s", diff)
	}
}

// build compiles a program and returns its path.
func build(t *testing.T, source string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	command := exec.Command("bash", "-c", `set -a && . hack/build.env && go build -ldflags=-w -o "$0" "$1"`, binary, source)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", source, err, output)
	}
	return binary
}

// The schema allows exactly those flags that the program has and that are not elsewhere;
// all of them are tried.
func TestFlagsAreTheProgramsOwn(t *testing.T) {
	elsewhere := []string{
		// Templates set them.
		"controllers", "namespace", "leader-elect-resource-name", "tls-cert-file", "tls-private-key-file",
		// Probes, Service and NetworkPolicy know their defaults.
		"bind-address", "insecure-bind-address",
		// Two replicas need it, and one is not harmed.
		"leader-elect", "leader-elect-resource-lock", "leader-elect-resource-namespace",
		// A Pod finds its API server.
		"kubeconfig", "master",
		// The program only says something and ends.
		"version",
	}
	for _, name := range append(optional(t), "icecream") { // Values of controllers are flags, too.
		elsewhere = append(elsewhere, byValues(t, name)...)
	}
	requireFlags(t, ".", elsewhere, "flags")
}

// requireFlags requires that the schema, at this path of the values, and
// ci/everything-values.yaml have all flags of a program except those that are set elsewhere.
func requireFlags(t *testing.T, source string, elsewhere []string, path ...string) {
	t.Helper()
	help, err := exec.Command(build(t, source), "-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
		has = append(has, string(flag[1]))
	}
	slices.Sort(has)
	property, given := parse(t, string(read(t, chart+"/values.schema.json"))), values(t)["everything"]
	for _, name := range path {
		property, given = property["properties"].(map[string]any)[name].(map[string]any), given[name].(map[string]any)
	}
	allowed := slices.Sorted(maps.Keys(property["properties"].(map[string]any)))
	if diff := cmp.Diff(allowed, slices.Sorted(maps.Keys(given))); diff != "" {
		t.Errorf("flags of the schema (-) and of ci/everything-values.yaml (+):\n%s", diff)
	}
	has = slices.DeleteFunc(has, func(flag string) bool { return slices.Contains(elsewhere, flag) })
	if diff := cmp.Diff(has, allowed); diff != "" {
		t.Errorf("flags of %s (-) and of the schema (+):\n%s", source, diff)
	}
}

// Each program accepts the arguments that its containers have. The program that is not the
// controller has the name of its image.
func TestProgramsAcceptTheirArguments(t *testing.T) {
	programs := map[string]string{"k8s-controller": build(t, ".")}
	others, err := filepath.Glob(root + "/cmd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range others {
		programs[filepath.Base(dir)] = build(t, "./cmd/"+filepath.Base(dir))
	}
	image := regexp.MustCompile(`^(.*/)?([^/:@]+)[:@][^/]+$`)
	for name, given := range values(t) {
		rendered, err := render(given)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods(t, rendered) {
			for _, container := range pod.Spec.Containers {
				program := programs[image.ReplaceAllString(container.Image, "$2")]
				if program == "" {
					t.Errorf("%s: no program has the image %s", name, container.Image)
					continue
				}
				if output, err := exec.Command(program, append(container.Args, "-version")...).CombinedOutput(); err != nil {
					t.Errorf("%s: %s refuses %q: %s", name, container.Name, container.Args, output)
				}
			}
		}
	}
}

// refusals are values that the chart refuses, and what it says about them.
type refusals map[string]struct{ values, want string }

func TestRefused(t *testing.T) {
	refusals{
		"no controller":                  {"controllers: {icecream: {enabled: false}}", "no controller is enabled: set controllers.<name>.enabled of at least one"},
		"an unknown controller":          {"controllers: {sorbet: {enabled: true}}", "at '/controllers': additional properties 'sorbet' not allowed"},
		"a misspelt value":               {"replcas: 3", "at '': additional properties 'replcas' not allowed"},
		"a negative number":              {"replicas: -1", "at '/replicas': minimum: got -1, want 0"},
		"a number in words":              {"replicas: two", "at '/replicas': got string, want integer"},
		"a switch in words":              {`podDisruptionBudget: {enabled: "yes"}`, "at '/podDisruptionBudget/enabled': got string, want boolean"},
		"several namespaces":             {"namespace: a,b", "at '/namespace': 'a,b' does not match pattern"},
		"an unknown flag":                {"flags: {wrokers: 3}", "at '/flags': additional properties 'wrokers' not allowed"},
		"a flag of the chart's":          {"flags: {leader-elect: false}", "at '/flags': additional properties 'leader-elect' not allowed"},
		"a flag's bad value":             {"flags: {workers: 0}", "at '/flags/workers': minimum: got 0, want 1"},
		"a time without a unit":          {"flags: {icecream-stall-after: 60}", "at '/flags/icecream-stall-after': got number, want string"},
		"a log format":                   {"flags: {logging-format: xml}", "at '/flags/logging-format': value must be one of 'text', 'json'"},
		"misspelt limits":                {"resources: {limts: {cpu: 1}}", "at '/resources': additional properties 'limts' not allowed"},
		"root":                           {"user: 0", "at '/user': minimum: got 0, want 1"},
		"no rule":                        {"policies: {allow: [root]}", "at '/policies/allow/0': value must be one of"},
		"no key":                         {"policies: {ignoredKeys: [\"a b\"]}", "at '/policies/ignoredKeys/0': 'a b' does not match pattern"},
		"nobody's account":               {"serviceAccount: {create: false}", "at '/serviceAccount/name': minLength: got 0, want 1"},
		"a short digest":                 {"image: {digest: abc}", "at '/image/digest': 'abc' does not match pattern"},
		"scraping what is not there":     {"{metrics: {enabled: false}, monitoring: {serviceMonitor: {enabled: true}}}", "monitoring.serviceMonitor.enabled needs metrics.enabled"},
		"an API server without a port":   {"networkPolicy: {apiServer: {ports: []}}", "at '/networkPolicy/apiServer/ports': minItems: got 0, want 1"},
		"an API server without a prefix": {"networkPolicy: {apiServer: {cidrs: [10.0.0.1]}}", "at '/networkPolicy/apiServer/cidrs/0': '10.0.0.1' does not match pattern"},
	}.check(t)
}

func (all refusals) check(t *testing.T) {
	for name, test := range all {
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
