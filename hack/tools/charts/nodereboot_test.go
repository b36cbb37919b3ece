package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	podsecurityapi "k8s.io/pod-security-admission/api"
)

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

func TestFlagsAreTheAgentsOwn(t *testing.T) {
	requireFlags(t, "./cmd/reboot-agent", []string{
		// Templates set them, or what their defaults are made of.
		"lease-namespace", "node-name", "sentinel-file", "sentinel-state", "watch-sentinel",
		// It is the kernel's.
		"boot-id-file",
		// A Pod finds its API server.
		"kubeconfig",
		// The program only says something and ends.
		"version",
	}, "controllers", "nodereboot", "agent", "flags")
}

// The files with the authorities of a Prometheus and with the token come from objects that
// the user names, and are mounted as a directory, so that they change with those.
func TestFilesForPrometheus(t *testing.T) {
	const given = "{flags: {nodereboot-prometheus-url: 'https://prometheus:9090', nodereboot-alerts: x}, controllers: {nodereboot: {enabled: %t, prometheus: %s}}}"
	const ca, token = "-nodereboot-prometheus-ca-file=/etc/k8s-controller/prometheus/ca.crt", "-nodereboot-prometheus-token-file=/etc/k8s-controller/prometheus/token"
	for prometheus, want := range map[string][]string{
		"{}":                       nil,
		"null":                     nil,
		"{ca: {secretName: a}}":    {ca, "secret a ca.crt as ca.crt"},
		"{token: {secretName: b}}": {token, "secret b token as token"},
		"{ca: null, token: null}":  nil,
		"{ca: {configMapName: c, key: service-ca.crt}, token: {secretName: d, key: t}}": {ca, token, "configMap c service-ca.crt as ca.crt", "secret d t as token"},
	} {
		for _, isOn := range []bool{true, false} {
			manifests, err := render(parse(t, fmt.Sprintf(given, isOn, prometheus)))
			if err != nil {
				t.Errorf("%s: %v", prometheus, err)
				continue
			}
			pod := pods(t, manifests)["Deployment/k8s-controller"]
			var got []string
			for _, arg := range pod.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "-nodereboot-prometheus-") && strings.Contains(arg, "-file=") {
					got = append(got, arg)
				}
			}
			for _, volume := range pod.Spec.Volumes {
				for _, source := range volume.Projected.Sources {
					if source.Secret != nil {
						got = append(got, fmt.Sprintf("secret %s %s as %s", source.Secret.Name, source.Secret.Items[0].Key, source.Secret.Items[0].Path))
					} else {
						got = append(got, fmt.Sprintf("configMap %s %s as %s", source.ConfigMap.Name, source.ConfigMap.Items[0].Key, source.ConfigMap.Items[0].Path))
					}
				}
			}
			if !isOn {
				want = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, enabled %t (-want +got):\n%s", prometheus, isOn, diff)
			}
			if mounts := pod.Spec.Containers[0].VolumeMounts; len(want) > 0 && (len(mounts) != 1 || mounts[0].MountPath != "/etc/k8s-controller/prometheus" || mounts[0].SubPath != "" || !mounts[0].ReadOnly) {
				t.Errorf("%s: mounts %v", prometheus, mounts)
			}
		}
	}
}

func TestNoderebootRefused(t *testing.T) {
	refusals{
		"nodereboot in one namespace":    {"{namespace: team, controllers: {nodereboot: {enabled: true}}}", "namespace=team: nodereboot cannot be restricted to one namespace, and needs a release of its own"},
		"two sources of authorities":     {"{flags: {nodereboot-prometheus-url: 'https://x'}, controllers: {nodereboot: {enabled: true, prometheus: {ca: {secretName: a, configMapName: b}}}}}", "is a Secret or a ConfigMap, not both"},
		"a token in the clear":           {"{flags: {nodereboot-prometheus-url: 'http://x'}, controllers: {nodereboot: {enabled: true, prometheus: {token: {secretName: a}}}}}", "needs a flag nodereboot-prometheus-url that begins with https://"},
		"a token for nobody":             {"controllers: {nodereboot: {enabled: true, prometheus: {token: {secretName: a}}}}", "needs a flag nodereboot-prometheus-url that begins with https://"},
		"a key that is a path":           {"controllers: {nodereboot: {prometheus: {token: {key: a/b}}}}", "does not match pattern"},
		"an agent's unknown flag":        {"controllers: {nodereboot: {agent: {flags: {drain: 3}}}}", "at '/controllers/nodereboot/agent/flags': additional properties 'drain' not allowed"},
		"a sentinel that is a directory": {"controllers: {nodereboot: {agent: {sentinelFile: /run/}}}", "at '/controllers/nodereboot/agent/sentinelFile': '/run/' does not match pattern"},
		"more nodes than there are":      {"flags: {nodereboot-max-unavailable: 101%}", "at '/flags/nodereboot-max-unavailable': '101%' does not match pattern"},
	}.check(t)
}
