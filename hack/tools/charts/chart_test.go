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
	"github.com/google/go-cmp/cmp/cmpopts"
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

// values are the files that the chart is rendered with, by name, such as "everything", or
// "secrets/everything" of a program called secrets.
func values(t *testing.T) map[string]map[string]any {
	t.Helper()
	files := glob(t, "/charts/k8s-controller/ci/*-values.yaml", "/charts/k8s-controller/ci/*/*-values.yaml")
	if len(files) == 0 {
		t.Fatal("there is nothing to render the chart with")
	}
	found := map[string]map[string]any{}
	for _, file := range files {
		name := strings.TrimPrefix(strings.TrimSuffix(file, "-values.yaml"), chart+"/ci/")
		found[name] = parse(t, file)
	}
	return found
}

// programs are the directories of all programs of the chart, by the names of their images.
func programs(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"k8s-controller": "."}
	for _, file := range glob(t, "/apps/*/main.go", "/apps/*/*/main.go") {
		dir := filepath.Dir(file)
		found[filepath.Base(dir)] = strings.Replace(dir, root, ".", 1)
	}
	return found
}

// glob returns the files of the repository that match one of the patterns.
func glob(t *testing.T, patterns ...string) (files []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
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

// Each object is in the manifest of one program, so whoever deletes a manifest deletes nothing
// of another program.
func TestManifestsShareNothing(t *testing.T) {
	of := map[string]string{}
	for _, file := range glob(t, "/artifacts/install.yaml", "/apps/*/install.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var object unstructured.Unstructured
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				t.Fatal(err)
			}
			key := strings.Join([]string{object.GetKind(), object.GetNamespace(), object.GetName()}, "/")
			if of[key] != "" {
				t.Errorf("%s is in %s and in %s", key, of[key], file)
			}
			of[key] = file
		}
	}
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

// Every switch of the chart is on with one of the value files and off with another. Values of a program
// that has been removed have no effect.
func TestValueFilesTurnEverySwitch(t *testing.T) {
	seen := map[string]map[bool]bool{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				if key != "flags" {
					walk(path+"."+key, inner)
				}
			}
		case bool:
			if seen[path] == nil {
				seen[path] = map[bool]bool{}
			}
			seen[path][value] = true
		}
	}
	programs := programs(t)
	schema := at(parse(t, chart+"/values.schema.json"), "properties", "program")
	for _, given := range values(t) {
		all, _ := render(t, given)
		for _, name := range schema["enum"].([]any) {
			if programs[name.(string)] == "" && name != all["program"] {
				delete(all, name.(string))
			}
		}
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

// elsewhere are the flags that no value "flags" has.
var elsewhere = []string{
	// Templates set them, or what their defaults are made of.
	"namespace", "leader-elect-resource-name", "tls-cert-file", "tls-private-key-file",
	"lease-namespace", "node-name", "sentinel-file", "sentinel-state", "watch-sentinel", "boot-id-file", "prometheus-config",
	// Probes, Service and NetworkPolicy know their defaults.
	"bind-address", "insecure-bind-address",
	// Two replicas need it, and one is not harmed.
	"leader-elect", "leader-elect-resource-lock", "leader-elect-resource-namespace",
	// A Pod finds its API server.
	"kubeconfig", "context", "master",
	// The program only says something and ends.
	"version",
}

// The schema allows exactly those flags that a program has and that are not elsewhere, and the
// files with all values try them all: "flags" has those of every program, NAME.flags those that
// only the program NAME has, and NAME.agent.flags those of its agent.
func TestFlagsAreTheProgramsOwn(t *testing.T) {
	schema, all := parse(t, chart+"/values.schema.json"), values(t)
	common := flagsOf(t, schema, "flags")
	if diff := cmp.Diff(common, slices.Sorted(maps.Keys(at(all["everything"], "flags")))); diff != "" {
		t.Errorf("common flags of the schema (-) and of ci/everything-values.yaml (+):\n%s", diff)
	}
	for _, source := range programs(t) {
		var want []string
		path := strings.Split(strings.TrimPrefix(source, "./apps/"), "/")
		if len(path) > 1 { // NAME/NAMES-agent
			path[1] = path[1][strings.LastIndex(path[1], "-")+1:]
		} else {
			want = slices.Clone(common)
		}
		if source != "." {
			path = append(path, "flags")
			own := flagsOf(t, schema, path...)
			given := at(all[path[0]+"/everything"], path...)
			if diff := cmp.Diff(own, slices.Sorted(maps.Keys(given)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("flags of the schema (-) and of ci/%s/everything-values.yaml (+):\n%s", path[0], diff)
			}
			want = append(want, own...)
			for key, value := range at(parse(t, chart+"/values.yaml"), path[0]) { // Other values of a program are flags, too.
				if _, isMap := value.(map[string]any); !isMap && len(path) == 2 {
					want = append(want, strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(key, "-$0")))
				}
			}
		}
		help, err := exec.Command(build(t, source), "-help").Output()
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
			if name := string(flag[1]); !slices.Contains(elsewhere, name) {
				has = append(has, name)
			}
		}
		slices.Sort(has)
		slices.Sort(want)
		if diff := cmp.Diff(has, want); diff != "" {
			t.Errorf("flags of %s (-) and of the schema (+):\n%s", source, diff)
		}
	}
}

// flagsOf are the properties that the schema allows at this path of the values.
func flagsOf(t *testing.T, schema map[string]any, path ...string) []string {
	t.Helper()
	for _, name := range path {
		schema = at(schema, "properties", name)
	}
	return slices.Sorted(maps.Keys(at(schema, "properties")))
}

// at is what a path of keys leads to, or nothing.
func at(value map[string]any, path ...string) map[string]any {
	for _, key := range path {
		value, _ = value[key].(map[string]any)
	}
	return value
}

// Each program accepts the arguments that its containers have. It has the name of its image.
func TestProgramsAcceptTheirArguments(t *testing.T) {
	binaries := map[string]string{}
	for name, source := range programs(t) {
		binaries[name] = build(t, source)
	}
	image := regexp.MustCompile(`^(.*/)?([^/:@]+)[:@][^/]+$`)
	for name, given := range values(t) {
		_, objects := render(t, given)
		for _, object := range objects {
			for _, container := range containers(object) {
				program := binaries[image.ReplaceAllString(container["image"].(string), "$2")]
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
	permission := regexp.MustCompile(`(?m)^kind: (ServiceAccount|Role|ClusterRole)$`)
	for _, file := range glob(t, "/artifacts/*.yaml", "/apps/*/*.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if parts := permission.Split(string(content), 2); len(parts) == 2 && strings.Contains(parts[1], "\nkind: ValidatingAdmissionPolicy") {
			t.Errorf("%s: a policy comes after permissions", file)
		}
	}
}
