// Package charts tests what the suites in charts/k8s-controller/tests cannot: that the chart
// agrees with the programs that it runs.
package charts

import (
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		found[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = parse(t, file)
	}
	return found
}

// controllers are the chart's values of each controller.
func controllers(t *testing.T) map[string]any {
	t.Helper()
	return parse(t, chart+"/values.yaml")["controllers"].(map[string]any)
}

func parse(t *testing.T, file string) (parsed map[string]any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

// render does what helm template does. It returns all values, and the objects by kind and name.
func render(t *testing.T, given map[string]any) (common.Values, map[string]map[string]any) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "k8s-controller", Namespace: "k8s-controller-system", IsInstall: true}
	all, err := util.ToRenderValues(c, given, release, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	for name, content := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq(content, "\n---\n") {
			var object unstructured.Unstructured
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				t.Fatal(err)
			}
			if object.Object != nil {
				objects[object.GetKind()+"/"+object.GetName()] = object.Object
			}
		}
	}
	return all["Values"].(common.Values), objects
}

// A controller that is switched on brings objects and arguments of its own, and changes
// nothing else.
func TestSwitchesOnlyAdd(t *testing.T) {
	_, before := render(t, nil)
	for name := range controllers(t) {
		_, after := render(t, map[string]any{"controllers": map[string]any{name: map[string]any{"enabled": true}}})
		for object, was := range before {
			is := after[object]
			if object == "Deployment/k8s-controller" {
				is, was = withoutArgs(t, is), withoutArgs(t, was)
			}
			if diff := cmp.Diff(was, is); diff != "" {
				t.Errorf("%s changes the %s (-without +with):\n%s", name, object, diff)
			}
		}
	}
}

func withoutArgs(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	for _, container := range containers(object) {
		delete(container, "args")
	}
	return object
}

// containers are those of an object's Pods, if it has any.
func containers(object map[string]any) (found []map[string]any) {
	list, _, err := unstructured.NestedFieldNoCopy(object, "spec", "template", "spec", "containers")
	if err != nil || list == nil {
		return nil
	}
	for _, container := range list.([]any) {
		found = append(found, container.(map[string]any))
	}
	return found
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
		all, _ := render(t, given)
		delete(all, "controllers") // tests/values_test.yaml turns them all off
		delete(all, "flags")
		walk("", map[string]any(all))
	}
	for path, values := range seen {
		if len(values) != 2 {
			t.Errorf("%s is %v in every value file", path, slices.Collect(maps.Keys(values)))
		}
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
		"kubeconfig", "context", "master",
		// The program only says something and ends.
		"version",
	}
	for name, block := range controllers(t) { // Values of controllers are flags, too.
		elsewhere = append(elsewhere, byValues(name, block.(map[string]any))...)
	}
	requireFlags(t, ".", elsewhere, "flags")
}

// byValues are the flags that the values of a controller stand for.
func byValues(prefix string, block map[string]any) (flags []string) {
	for key, value := range block {
		flag := prefix + "-" + strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(key, "-$0"))
		if inner, ok := value.(map[string]any); ok {
			flags = append(flags, byValues(flag, inner)...)
		} else {
			flags = append(flags, flag)
		}
	}
	return flags
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
	property, given := parse(t, chart+"/values.schema.json"), values(t)["everything"]
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
		_, objects := render(t, given)
		for _, object := range objects {
			for _, container := range containers(object) {
				program := programs[image.ReplaceAllString(container["image"].(string), "$2")]
				if program == "" {
					t.Errorf("%s: no program has the image %s", name, container["image"])
					continue
				}
				args := []string{"-version"}
				for _, arg := range container["args"].([]any) {
					args = append(args, arg.(string))
				}
				if output, err := exec.Command(program, args...).CombinedOutput(); err != nil {
					t.Errorf("%s: %s refuses %q: %s", name, container["name"], args, output)
				}
			}
		}
	}
}

// Nobody has permissions before the policies restrict them, if a manifest is applied from
// the top.
func TestPoliciesComeBeforePermissions(t *testing.T) {
	files, err := filepath.Glob(root + "/artifacts/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	permission := regexp.MustCompile(`(?m)^kind: (ServiceAccount|Role|ClusterRole)$`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if parts := permission.Split(string(content), 2); len(parts) == 2 && strings.Contains(parts[1], "\nkind: ValidatingAdmissionPolicy") {
			t.Errorf("%s: a policy comes after permissions", file)
		}
	}
}
