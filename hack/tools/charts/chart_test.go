// Package charts tests what no installation shows: that every value has an effect, how objects are
// named, what is refused, and that the chart agrees with the programs that it runs.
package charts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../../.."
	chart = root + "/charts/k8s-controller"
)

type object = map[string]any

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

// read parses a YAML file.
func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// valueFiles are the files that the chart is rendered with.
func valueFiles(t *testing.T) (files []object) {
	t.Helper()
	for _, file := range glob(t, "/charts/k8s-controller/ci/*-values.yaml", "/charts/k8s-controller/ci/*/*-values.yaml") {
		var given object
		read(t, file, &given)
		files = append(files, given)
	}
	return files
}

var load = sync.OnceValues(func() (*v2.Chart, error) { return loader.LoadDir(chart) })

// render does what helm template does, and returns the objects by kind and name.
func render(t *testing.T, release string, given object) (map[string]object, error) {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: release, Namespace: "system", IsInstall: true}
	all, err := util.ToRenderValues(c, runtime.DeepCopyJSON(given), options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]object{}
	for name, content := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq(content, "\n---\n") {
			var found unstructured.Unstructured
			if err := yaml.UnmarshalStrict([]byte(document), &found.Object); err != nil {
				t.Fatal(err)
			}
			if found.Object != nil {
				objects[found.GetKind()+"/"+found.GetName()] = found.Object
			}
		}
	}
	return objects, nil
}

// Each value that the schema knows is in one of the value files, which renders to something else
// without it.
func TestEveryValueHasAnEffect(t *testing.T) {
	var schema object
	read(t, chart+"/values.schema.json", &schema)
	files := valueFiles(t)
	rendered := make([]map[string]object, len(files))
	for i, given := range files {
		var err error
		if rendered[i], err = render(t, "k8s-controller", given); err != nil {
			t.Fatal(err)
		}
	}
	hasEffect := func(path []string) bool {
		for i, given := range files {
			less := runtime.DeepCopyJSON(given)
			if _, found, _ := unstructured.NestedFieldNoCopy(less, path...); found {
				unstructured.RemoveNestedField(less, path...)
				if objects, err := render(t, "k8s-controller", less); err != nil || !cmp.Equal(objects, rendered[i]) {
					return true
				}
			}
		}
		return false
	}
	var walk func(node object, path ...string)
	walk = func(node object, path ...string) {
		if name, ok := node["$ref"].(string); ok {
			node, _, _ = unstructured.NestedMap(schema, "$defs", strings.TrimPrefix(name, "#/$defs/"))
		}
		if properties, ok := node["properties"].(object); ok {
			for name, inner := range properties {
				walk(inner.(object), append(slices.Clone(path), name)...)
			}
		} else if !hasEffect(path) {
			t.Errorf("%s is in no value file that it has an effect in", strings.Join(path, "."))
		}
	}
	values := schema["properties"].(object)
	delete(values, "global") // These two are for charts that this one is a part of.
	delete(values, "enabled")
	delete(values["policies"].(object)["properties"].(object), "ignoredKeys") // the Icecream controller has no use for
	left := 0
	for _, program := range values["program"].(object)["enum"].([]any) {
		if len(glob(t, "/charts/k8s-controller/templates/"+program.(string))) == 0 {
			delete(values, program.(string)) // that has been removed
			continue
		}
		left++
	}
	if left == 1 {
		delete(values, "program") // there is nothing to choose
	}
	walk(schema)
}

// All objects have names that begin with the Deployment's. So releases of different names have none in
// common, except the CustomResourceDefinition, however long the names are. Where one names
// another, it has that name.
func TestNames(t *testing.T) {
	for _, test := range []struct{ release, given, name, user string }{
		{"k8s-controller", "{}", "k8s-controller", ` == "system:serviceaccount:system:k8s-controller"`},
		{"ice", "{}", "ice-k8s-controller", ` == "system:serviceaccount:system:ice-k8s-controller"`},
		{"ice", "{nameOverride: dessert, namespace: team}", "ice-dessert", ` == "system:serviceaccount:system:ice-dessert"`},
		{"ice", "{fullnameOverride: scoop}", "scoop", ` == "system:serviceaccount:system:scoop"`},
		{"ice", "{serviceAccount: {create: false, name: scoop}}", "ice-k8s-controller", ` == "system:serviceaccount:system:scoop"`},
		{
			"ice", "{policies: {everyNamespace: true}}", "ice-k8s-controller",
			`.startsWith("system:serviceaccount:") && request.userInfo.username.endsWith(":ice-k8s-controller")`,
		},
		{"a-team-with-a-rather-long-name-1", "{}", "a-team-with-a-ra-dfbf1a-k8s-controller", ` == "system:serviceaccount:system:a-team-with-a-ra-dfbf1a-k8s-controller"`},
		{"a-team-with-a-rather-long-name-2", "{}", "a-team-with-a-ra-4c36b2-k8s-controller", ` == "system:serviceaccount:system:a-team-with-a-ra-4c36b2-k8s-controller"`},
		{
			"a-team-with-a-rather-long-name-dessert-production-1", "{nameOverride: dessert}",
			"a-team-with-a-rather-long-name-desse-edc8fa", ` == "system:serviceaccount:system:a-team-with-a-rather-long-name-desse-edc8fa"`,
		},
	} {
		t.Run(test.release+test.given, func(t *testing.T) {
			given := object{}
			if err := yaml.Unmarshal([]byte(test.given), &given); err != nil {
				t.Fatal(err)
			}
			given["monitoring"] = object{"rules": object{"enabled": true}, "dashboard": object{"enabled": true}}
			objects, err := render(t, test.release, given)
			if err != nil {
				t.Fatal(err)
			}
			for key, rendered := range objects {
				kind, name, _ := strings.Cut(key, "/")
				if kind != "CustomResourceDefinition" && name != test.name && !strings.HasPrefix(name, test.name+"-") {
					t.Errorf("%s has another name", key)
				}
				if kind == "ValidatingAdmissionPolicy" && strings.HasSuffix(name, "-writes") {
					requireText(t, key, rendered, "expression:request.userInfo.username"+test.user+" ")
				}
			}
			requireText(t, "the Deployment", objects["Deployment/"+test.name], "-leader-elect-resource-name="+test.name)
			requireText(t, "the role", objects["Role/"+test.name+"-leader-election"], "["+test.name+"]")
			requireText(t, "the policy", objects["ValidatingAdmissionPolicy/"+test.name+"-lease-writes"], ` == "`+test.name+`" `)
			requireText(t, "the FlowSchema", objects["FlowSchema/"+test.name+"-lease"], "namespace:system]", "namespaces:[system]")
			requireText(t, "the alerts", objects["PrometheusRule/"+test.name], `job="`+test.name+`-metrics"`, "name:icecream")
			data := objects["ConfigMap/"+test.name+"-dashboard"]["data"].(object)
			var dashboard struct{ UID, Title string }
			if err := json.Unmarshal([]byte(data[test.name+".json"].(string)), &dashboard); err != nil || dashboard.UID != test.name || dashboard.Title != test.name {
				t.Errorf("the dashboard is %v: %v", dashboard, err)
			}
		})
	}
}

// requireText requires that each of the texts is somewhere in an object.
func requireText(t *testing.T, what string, in object, texts ...string) {
	t.Helper()
	content := fmt.Sprint(in)
	for _, text := range texts {
		if !strings.Contains(content, text) {
			t.Errorf("%s does not say %s: %s", what, text, content)
		}
	}
}

// The tables tests/values.yaml have what the chart refuses, and why, since a typo must not be left
// out silently and some values contradict each other; and what others become.
func TestValues(t *testing.T) {
	for _, file := range glob(t, "/charts/k8s-controller/tests/values.yaml", "/charts/k8s-controller/tests/*/values.yaml") {
		var table []struct {
			Values                     object
			Error, Object, Says, Lacks string
		}
		read(t, file, &table)
		for _, test := range table {
			objects, err := render(t, "k8s-controller", test.Values)
			if (err != nil) != (test.Error != "") || err != nil && !strings.Contains(err.Error(), test.Error) {
				t.Errorf("%v: the error is %v, want %q", test.Values, err, test.Error)
			} else if err == nil {
				requireText(t, test.Object, objects[test.Object], "kind:", test.Says)
				if test.Lacks != "" && strings.Contains(fmt.Sprint(objects[test.Object]), test.Lacks) {
					t.Errorf("%v: %s says %s", test.Values, test.Object, test.Lacks)
				}
			}
		}
	}
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
	"kubeconfig", "context",
	// The program only says something and ends.
	"version",
}

// Each program accepts the arguments that its containers have, and those of all value files together are
// all of its flags. (Flags of every program are the Icecream controller's.) It has the name of its
// image.
func TestFlags(t *testing.T) {
	image := regexp.MustCompile(`([^/:@]+)[:@][^/]+$`)
	argument := regexp.MustCompile(`^-([a-z0-9-]+)`)
	programs, used := build(t), map[string]map[string]bool{}
	for name := range programs {
		used[name] = map[string]bool{}
	}
	for _, given := range valueFiles(t) {
		objects, err := render(t, "k8s-controller", given)
		if err != nil {
			t.Fatal(err)
		}
		for key, object := range objects {
			containers, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", "containers")
			for _, each := range containers {
				container := each.(map[string]any)
				name := image.FindStringSubmatch(container["image"].(string))[1]
				if programs[name] == "" {
					t.Fatalf("%s: no program is called %s", key, name)
				}
				args := []string{"-version"}
				for _, arg := range container["args"].([]any) {
					args = append(args, arg.(string))
					used[name][argument.FindStringSubmatch(arg.(string))[1]] = true
				}
				if output, err := exec.Command(programs[name], args...).CombinedOutput(); err != nil {
					t.Errorf("%s: %s refuses %q: %s", key, name, args, output)
				}
			}
		}
	}
	for name, program := range programs {
		help, err := exec.Command(program, "-help").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
			if flag := string(flag[1]); !slices.Contains(elsewhere, flag) && !used[name][flag] && !used["k8s-controller"][flag] {
				t.Errorf("no value file gives %s its flag %s", name, flag)
			}
		}
	}
}

// build compiles all programs and returns their paths by name.
func build(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	command := exec.Command("bash", "-c", `set -a && . hack/build.env && go build -ldflags=-w -o "$0/" . $(test -d apps && echo ./apps/...)`, dir)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, entry := range entries {
		programs[entry.Name()] = filepath.Join(dir, entry.Name())
	}
	return programs
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
