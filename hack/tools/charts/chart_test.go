// Package charts tests what charts/k8s-controller renders, and what it
// refuses to.
package charts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	// The switches of all controllers, and flags that the file does not mention.
	everything := found["everything"]
	switches, flags := everything["controllers"].(map[string]any), everything["flags"].(map[string]any)
	for _, c := range controllers(t) {
		if switches[c.Name] == nil {
			switches[c.Name] = map[string]any{"enabled": true}
		}
		for _, f := range c.Flags {
			if flags[f.Name] == nil && !slices.Contains(byValues(t, c.Name), f.Name) {
				flags[f.Name] = f.value(t)
			}
		}
	}
	return found
}

// described is what the program says of a controller.
type described struct {
	Name                     string
	OnByDefault, ClusterWide bool
	Flags                    []flag
}

type flag struct{ Name, Type, Default string }

// value is the flag's default, as YAML has it.
func (f flag) value(t *testing.T) any {
	t.Helper()
	if f.Type == "string" || f.Type == "duration" {
		return f.Default
	}
	var value any
	if err := yaml.Unmarshal([]byte(f.Default), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// controllers are all that the program has, in the order of its table.
func controllers(t *testing.T) (all []described) {
	t.Helper()
	if err := json.Unmarshal(read(t, chart+"/files/controllers.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// optional are the names of those that are off by default.
func optional(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range controllers(t) {
		if !c.OnByDefault {
			names = append(names, c.Name)
		}
	}
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
			if found := violations(t, pod, podsecurityapi.LevelRestricted); found != "" {
				t.Errorf("%s: %s is not restricted: %s", from, name, found)
			}
		}
	}
}

// The agent talks to the host's process 1 as its user, and a container beside it looks
// for a file of the host. That takes the privileged standard, but no more of it than
// this: no capability, no way to more privileges, nothing of the host that is written
// to, and nothing at all of its files for root.
func TestRebootAgentIsNoMorePrivilegedThanItHasToBe(t *testing.T) {
	pod := pods(t, read(t, root+"/artifacts/reboot-agent.yaml"))["DaemonSet/k8s-controller-reboot-agent"]
	const both = `forbidden AppArmor profile (container "reboot-agent" must not set AppArmor profile type to "Unconfined"), host namespaces (hostPID=true), `
	for level, want := range map[podsecurityapi.Level]string{
		podsecurityapi.LevelPrivileged: "",
		podsecurityapi.LevelBaseline:   both + `hostPath volumes (volume "host")`,
		podsecurityapi.LevelRestricted: both + `restricted volume types (volume "host" uses restricted volume type "hostPath"), ` +
			`runAsNonRoot != true (pod or container "reboot-agent" must set securityContext.runAsNonRoot=true), runAsUser=0 (container "reboot-agent" must not set runAsUser=0)`,
	} {
		if found := violations(t, pod, level); found != want {
			t.Errorf("%s forbids %s, want %s", level, found, want)
		}
	}
	mounts := map[string][]string{}
	for _, container := range pod.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			mode := "rw"
			if mount.ReadOnly {
				mode = "ro"
			}
			mounts[container.Name] = append(mounts[container.Name], mount.Name+" "+mode)
		}
		if isReadOnly := container.SecurityContext.ReadOnlyRootFilesystem; isReadOnly == nil || !*isReadOnly {
			t.Errorf("%s: its own files can be written to", container.Name)
		}
	}
	if diff := cmp.Diff(map[string][]string{"reboot-agent": {"token ro", "sentinel ro"}, "sentinel": {"host ro", "sentinel rw"}}, mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.HostPath != nil && volume.Name != "host" {
			t.Errorf("volume %s is the host's", volume.Name)
		}
	}
}

// Nobody has the agent's permissions before the policies restrict them, if the manifest
// is applied from the top.
func TestPoliciesComeBeforeTheAgent(t *testing.T) {
	var kinds []string
	for document := range strings.SplitSeq(string(read(t, root+"/artifacts/reboot-agent.yaml")), "\n---\n") {
		if object := parse(t, document); object != nil {
			kinds = append(kinds, object["kind"].(string))
		}
	}
	isPolicy := func(kind string) bool { return strings.HasPrefix(kind, "ValidatingAdmissionPolicy") }
	first := slices.IndexFunc(kinds, func(kind string) bool { return !isPolicy(kind) })
	if first != 8 || slices.ContainsFunc(kinds[first:], isPolicy) || !slices.Contains(kinds, "DaemonSet") {
		t.Errorf("four policies and their bindings do not come first: %v", kinds)
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

// A controller that is switched on brings its own roles and flags, nodereboot its
// agent as well, and changes nothing else; one that is off leaves nothing behind.
func TestEachSwitchBringsItsOwn(t *testing.T) {
	installed := func(values string) map[string]map[string]any {
		manifests, err := render(parse(t, values))
		if err != nil {
			t.Fatal(err)
		}
		return objects(t, manifests)
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
	before := installed("{}")
	argsBefore := args(before)
	type own struct {
		flags   []string
		objects []string // with the release's name before
	}
	known := map[string]own{
		"podtimestamp": {
			[]string{"-controllers=icecream,podtimestamp"},
			[]string{
				"ClusterRole/-podtimestamp", "ClusterRoleBinding/-podtimestamp",
				"ValidatingAdmissionPolicy/-podtimestamp-writes", "ValidatingAdmissionPolicyBinding/-podtimestamp-writes",
			},
		},
		"secretsync": {
			[]string{"-controllers=icecream,secretsync", "-secretsync-annotation=controller.nicoleh.io/secretsync", "-secretsync-require-receivers=false", "-secretsync-source-namespace=secretsync"},
			[]string{
				"ClusterRole/-secretsync", "ClusterRoleBinding/-secretsync", "Role/-secretsync", "RoleBinding/-secretsync",
				"ValidatingAdmissionPolicy/-secretsync-writes", "ValidatingAdmissionPolicyBinding/-secretsync-writes",
			},
		},
		"nodereboot": {
			[]string{"-controllers=icecream,nodereboot", "-nodereboot-agent-namespace=k8s-controller-reboot-agent"},
			[]string{
				"ClusterRole/-nodereboot", "ClusterRole/-reboot-agent", "ClusterRoleBinding/-nodereboot", "ClusterRoleBinding/-reboot-agent",
				"DaemonSet/-reboot-agent", "Namespace/-reboot-agent", "NetworkPolicy/-reboot-agent", "Role/-reboot-agent", "Role/-reboot-agent-report", "Role/-reboot-agent-reports",
				"RoleBinding/-reboot-agent", "RoleBinding/-reboot-agent-report", "RoleBinding/-reboot-agent-reports", "ServiceAccount/-reboot-agent",
				"ValidatingAdmissionPolicy/-nodereboot-writes", "ValidatingAdmissionPolicy/-reboot-agent", "ValidatingAdmissionPolicy/-reboot-agent-event", "ValidatingAdmissionPolicy/-reboot-agent-lease", "ValidatingAdmissionPolicy/-reboot-annotations",
				"ValidatingAdmissionPolicyBinding/-nodereboot-writes", "ValidatingAdmissionPolicyBinding/-reboot-agent", "ValidatingAdmissionPolicyBinding/-reboot-agent-event", "ValidatingAdmissionPolicyBinding/-reboot-agent-lease", "ValidatingAdmissionPolicyBinding/-reboot-annotations",
			},
		},
	}
	for _, name := range optional(t) {
		t.Run(name, func(t *testing.T) {
			want, isKnown := known[name]
			if !isKnown { // what every controller brings
				want = own{
					[]string{"-controllers=" + strings.Join(slices.Sorted(slices.Values([]string{"icecream", name})), ",")},
					[]string{
						"ClusterRole/-" + name, "ClusterRoleBinding/-" + name,
						"ValidatingAdmissionPolicy/-" + name + "-writes", "ValidatingAdmissionPolicyBinding/-" + name + "-writes",
					},
				}
			}
			after := installed("controllers: {" + name + ": {enabled: true}}")
			isNew := func(arg string) bool { return !slices.Contains(argsBefore, arg) }
			var flags []string
			for _, arg := range args(after) {
				if isNew(arg) {
					flags = append(flags, arg)
				}
			}
			if !isKnown {
				flags = slices.DeleteFunc(flags, func(f string) bool { return strings.HasPrefix(f, "-"+name+"-") })
			}
			if diff := cmp.Diff(want.flags, flags); diff != "" {
				t.Errorf("its flags (-want +got):\n%s", diff)
			}
			var added []string
			for _, object := range slices.Sorted(maps.Keys(after)) {
				if _, isOld := before[object]; !isOld {
					added = append(added, strings.Replace(object, "/k8s-controller-", "/-", 1))
					delete(after, object)
				}
			}
			if diff := cmp.Diff(want.objects, added); diff != "" {
				t.Errorf("its objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("what has nothing to do with it (-without +with):\n%s", diff)
			}
		})
	}
}

// policyOf are the text of a policy that the chart renders, and the expression by which
// it is about an account.
func policyOf(t *testing.T, values, name string) (text, condition string) {
	t.Helper()
	manifests, err := render(parse(t, values))
	if err != nil {
		t.Fatal(err)
	}
	policy := objects(t, manifests)["ValidatingAdmissionPolicy/"+name]
	if policy == nil {
		t.Fatalf("%s gives no policy %s", values, name)
	}
	written, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	conditions := policy["spec"].(map[string]any)["matchConditions"].([]any)
	return string(written), conditions[0].(map[string]any)["expression"].(string)
}

// A policy is about the account that the controllers really have, and about what they
// are really told to write.
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
			if _, condition := policyOf(t, string(all), name+"-"+of+"-writes"); condition != want {
				t.Errorf("%s: the policy of %s is about %s, want %s", values, of, condition, want)
			}
		}
	}
	text, _ := policyOf(t, "{policies: {ignoredKeys: [example.com/seen]}, controllers: {secretsync: {enabled: true, sourceNamespace: vault, annotation: example.com/share}}}", "k8s-controller-secretsync-writes")
	for _, want := range []string{`'"vault"'`, `'"example.com/share"'`, `'["example.com/seen"]'`} {
		if !strings.Contains(text, want) {
			t.Errorf("the policy of secretsync does not have %s:\n%s", want, text)
		}
	}
}

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
	if diff := cmp.Diff(rows, append(usual, optional(t)...)); diff != "" {
		t.Errorf("rows of all controllers (-) and of Icecream's with those of the others (+):\n%s", diff)
	}
	if diff := cmp.Diff(all[:slices.Index(all, "podtimestamp")], panels); diff != "" {
		t.Errorf("panels of Icecream's (-artifacts +chart):\n%s", diff)
	}
}

// elsewhere are the flags that are no values of the chart.
var elsewhere = map[string][]string{
	"controller": {
		// Templates set them.
		"controllers", "namespace", "leader-elect-resource-name", "leader-elect-former-resource-name", "tls-cert-file", "tls-private-key-file",
		// Probes, Service and NetworkPolicy know their defaults.
		"bind-address", "insecure-bind-address",
		// Two replicas need it, and one is not harmed.
		"leader-elect", "leader-elect-resource-lock", "leader-elect-resource-namespace",
		// A Pod finds its API server.
		"kubeconfig", "master",
		// The program only says something and ends.
		"version", "describe",
	},
	"reboot-agent": {
		// Templates set them, or what their defaults are made of.
		"lease-namespace", "node-name", "sentinel-file", "sentinel-state", "watch-sentinel",
		// It is the kernel's.
		"boot-id-file",
		// As above.
		"kubeconfig", "version",
	},
}

// The schema allows exactly those flags that the programs have and that are not
// elsewhere; all of them are tried.
func TestFlagsAreTheProgramsOwn(t *testing.T) {
	schema, everything := parse(t, string(read(t, chart+"/values.schema.json"))), values(t)["everything"]
	binaries := map[string]string{}
	for program, from := range map[string]struct {
		source string
		values []string
	}{
		"controller":   {".", []string{"flags"}},
		"reboot-agent": {"./cmd/reboot-agent", []string{"controllers", "nodereboot", "agent", "flags"}},
	} {
		binaries[program] = filepath.Join(t.TempDir(), program)
		if output, err := exec.Command("go", "build", "-C", root, "-o", binaries[program], from.source).CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", program, err, output)
		}
		help, err := exec.Command(binaries[program], "-help").Output()
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, flag := range regexp.MustCompile(`(?m)^  -([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
			has = append(has, string(flag[1]))
		}
		slices.Sort(has)
		property, given := schema, everything
		for _, name := range from.values {
			property, given = property["properties"].(map[string]any)[name].(map[string]any), given[name].(map[string]any)
		}
		allowed := slices.Sorted(maps.Keys(property["properties"].(map[string]any)))
		if diff := cmp.Diff(allowed, slices.Sorted(maps.Keys(given))); diff != "" {
			t.Errorf("flags of the schema (-) and of ci/everything-values.yaml (+):\n%s", diff)
		}
		if program == "controller" { // Values of controllers are flags, too.
			for _, c := range controllers(t) {
				for _, f := range byValues(t, c.Name) {
					if slices.Contains(has, f) {
						allowed = append(allowed, f)
					}
				}
			}
		}
		if diff := cmp.Diff(has, slices.Sorted(slices.Values(slices.Concat(allowed, elsewhere[program])))); diff != "" {
			t.Errorf("flags of %s (-) and of the schema or elsewhere (+):\n%s", program, diff)
		}
	}
	for name, given := range values(t) {
		rendered, err := render(given)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods(t, rendered) {
			for _, container := range pod.Spec.Containers {
				binary := binaries[container.Name]
				if container.Name == "sentinel" {
					binary = binaries["reboot-agent"]
				}
				if output, err := exec.Command(binary, append(container.Args, "-version")...).CombinedOutput(); err != nil {
					t.Errorf("%s: %s refuses %q: %s", name, container.Name, container.Args, output)
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"no controller":                  {"controllers: {icecream: {enabled: false}}", "no controller is enabled: set controllers.<name>.enabled of at least one"},
		"an unknown controller":          {"controllers: {sorbet: {enabled: true}}", "at '/controllers': additional properties 'sorbet' not allowed"},
		"secretsync in one namespace":    {"{namespace: team, controllers: {secretsync: {enabled: true}}}", "namespace=team: secretsync cannot be restricted to one namespace, and needs a release of its own"},
		"no namespace of sources":        {`controllers: {secretsync: {sourceNamespace: ""}}`, "at '/controllers/secretsync/sourceNamespace'"},
		"an annotation with a space":     {"controllers: {secretsync: {annotation: a b}}", "at '/controllers/secretsync/annotation': 'a b' does not match pattern"},
		"a misspelt value":               {"replcas: 3", "at '': additional properties 'replcas' not allowed"},
		"a negative number":              {"replicas: -1", "at '/replicas': minimum: got -1, want 0"},
		"a number in words":              {"replicas: two", "at '/replicas': got string, want integer"},
		"a switch in words":              {`podDisruptionBudget: {enabled: "yes"}`, "at '/podDisruptionBudget/enabled': got string, want boolean"},
		"several namespaces":             {"namespace: a,b", "at '/namespace': 'a,b' does not match pattern"},
		"an agent's unknown flag":        {"controllers: {nodereboot: {agent: {flags: {drain: 3}}}}", "at '/controllers/nodereboot/agent/flags': additional properties 'drain' not allowed"},
		"a sentinel that is a directory": {"controllers: {nodereboot: {agent: {sentinelFile: /run/}}}", "at '/controllers/nodereboot/agent/sentinelFile': '/run/' does not match pattern"},
		"an unknown flag":                {"flags: {wrokers: 3}", "at '/flags': additional properties 'wrokers' not allowed"},
		"a flag of the chart's":          {"flags: {leader-elect: false}", "at '/flags': additional properties 'leader-elect' not allowed"},
		"a flag's bad value":             {"flags: {workers: 0}", "at '/flags/workers': minimum: got 0, want 1"},
		"a time without a unit":          {"flags: {stall-after: 60}", "at '/flags/stall-after': got number, want string"},
		"a log format":                   {"flags: {logging-format: xml}", "at '/flags/logging-format': value must be one of 'text', 'json'"},
		"no limits":                      {"resources: {limits: null}", "at '/resources': missing property 'limits'"},
		"no memory request":              {"resources: {requests: {memory: null}}", "at '/resources/requests': missing property 'memory'"},
		"root":                           {"user: 0", "at '/user': minimum: got 0, want 1"},
		"no key":                         {"policies: {ignoredKeys: [\"a b\"]}", "at '/policies/ignoredKeys/0': 'a b' does not match pattern"},
		"nobody's account":               {"serviceAccount: {create: false}", "at '/serviceAccount/name': minLength: got 0, want 1"},
		"a short digest":                 {"image: {digest: abc}", "at '/image/digest': 'abc' does not match pattern"},
		"nodes of a namespace":           {"{namespace: team, controllers: {nodereboot: {enabled: true}}}", "namespace=team: nodereboot cannot be restricted to one namespace, and needs a release of its own"},
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
