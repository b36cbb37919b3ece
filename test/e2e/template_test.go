package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/test/lab"
)

// parts are parts of Pod templates that differ in one thing. From each to each other of its group, and to and from
// nothing, an update has to lead to what a creation leads to. In a part that begins with a dash, it is the container
// icecream.
var parts = map[string][]string{
	"variables": {
		`- env: [{name: A, value: a}, {name: B, value: b}]`, `- env: [{name: B, value: b}, {name: A, value: a}]`,
		`- env: [{name: A, value: ""}, {name: C}, {name: B, value: c}]`,
		`- env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]`, `- env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]`,
		`- env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`, `- env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]`,
	},
	"sources of variables": {
		`- envFrom: [{secretRef: {name: a}}, {prefix: B_, configMapRef: {name: b}}]`, `- envFrom: [{prefix: B_, configMapRef: {name: b, optional: true}}]`,
	},
	"ports": {
		`- ports: [{containerPort: 53, protocol: UDP}]`, `- ports: [{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP}]`,
		`- ports: [{containerPort: 53}]`, `- ports: [{name: dns, containerPort: 53}, {name: dns-udp, containerPort: 53, protocol: UDP}]`,
		`- ports: [{name: dns-tcp, containerPort: 53}, {name: dns-udp, containerPort: 53, protocol: UDP}, {containerPort: 80}]`,
	},
	"probes": {
		`- livenessProbe: {httpGet: {path: /, port: 8080}}`, `- livenessProbe: {httpGet: {port: http, scheme: HTTPS, httpHeaders: [{name: a, value: b}]}, periodSeconds: 3}`,
		`- livenessProbe: {exec: {command: [a, b]}}`, `- livenessProbe: {grpc: {port: 9}}`, `- livenessProbe: {tcpSocket: {port: 8080}, initialDelaySeconds: 7}`,
		`- {readinessProbe: {httpGet: {port: 8080}}, startupProbe: {grpc: {port: 9, service: s}}}`,
	},
	"hooks":    {`- lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}`, `- lifecycle: {preStop: {sleep: {seconds: 5}}}`, `- lifecycle: {postStart: {httpGet: {port: 80}}}`},
	"commands": {`- {command: [a], args: [b, c]}`, `- {args: [c]}`, `- {command: [b, a], workingDir: /}`},
	"volumes": {
		`{volumes: [{name: v, emptyDir: {}}], containers: [{name: icecream, volumeMounts: [{name: v, mountPath: /v}]}]}`,
		`{volumes: [{name: v, emptyDir: {sizeLimit: 1024Mi, medium: Memory}}], containers: [{name: icecream, volumeMounts: [{name: v, mountPath: /w, readOnly: true}]}]}`,
		`{volumes: [{name: v, configMap: {name: c}}], containers: [{name: icecream, volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /w, subPath: x}]}]}`,
		`volumes: [{name: v, secret: {secretName: s, items: [{key: a, path: b}]}}, {name: w, emptyDir: {}}]`, `volumes: [{name: w, emptyDir: {}}, {name: v, secret: {secretName: s, defaultMode: 256}}]`,
		`volumes: [{name: v, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.labels}}]}}]`,
		`volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}, {configMap: {name: c}}]}}]`,
		`volumes: [{name: v, projected: {sources: [{configMap: {name: c}}, {secret: {name: s}}]}}]`,
		`volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]`, `volumes: [{name: v, hostPath: {path: /x}}]`,
		`volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`,
	},
	"accounts": {`serviceAccountName: a`, `serviceAccountName: b`, `serviceAccount: c`, `{serviceAccountName: a, automountServiceAccountToken: true}`},
	"sidecars": {
		`containers: [{name: proxy, image: "proxy:latest"}]`, `containers: [{name: proxy, image: "proxy:1"}, {name: log, image: log}]`,
		`containers: [{name: log, image: "log@sha256:` + strings.Repeat("0", 64) + `"}, {name: icecream}, {name: proxy, image: "proxy:1", imagePullPolicy: Always}]`,
		`initContainers: [{name: proxy, image: proxy, restartPolicy: Always}]`, `initContainers: [{name: a, image: a}, {name: b, image: b}]`,
		`initContainers: [{name: b, image: b, resources: {limits: {memory: 1024Mi, cpu: "0.5"}}}, {name: a, image: a}]`,
		`containers: [{name: proxy, image: proxy, resources: {limits: {memory: 1Gi}, requests: {memory: 0.5Gi, cpu: 100u}}}]`,
		`containers: [{name: proxy, image: proxy, resources: {limits: {memory: "1073741824"}}, ports: [{containerPort: 8080}]}]`,
	},
	"security": {
		`- securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true}`, `- securityContext: {allowPrivilegeEscalation: true, privileged: true}`,
		`- securityContext: {capabilities: {add: [NET_BIND_SERVICE]}}`, `- securityContext: {capabilities: {add: [SYS_TIME, NET_ADMIN], drop: [NET_RAW]}}`,
		`securityContext: {runAsNonRoot: false, fsGroup: 5, supplementalGroups: [1, 2]}`, `securityContext: {seccompProfile: {type: Localhost, localhostProfile: p}, sysctls: [{name: a.b, value: "1"}]}`,
		`securityContext: {seccompProfile: {type: Unconfined}, supplementalGroups: [2]}`, `securityContext: {}`,
	},
	"scheduling": {
		`nodeSelector: {disk: ssd}`, `nodeSelector: {disk: hdd, zone: a}`, `tolerations: [{key: a, operator: Exists}, {key: b, value: c, effect: NoSchedule}]`, `tolerations: [{key: b, value: c}]`,
		`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}}}]`,
		`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}, {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]`,
		`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}`,
		`affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: host, labelSelector: {matchLabels: {a: b}}}}]}}`,
		`{priorityClassName: p, schedulerName: s, runtimeClassName: r}`, `{preemptionPolicy: Never, priority: 5}`,
	},
	"network": {
		`{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a], options: [{name: ndots, value: "1"}, {name: edns0}]}}`, `{dnsConfig: {options: [{name: ndots, value: "2"}]}}`,
		`{hostNetwork: true, containers: [{name: icecream, ports: [{containerPort: 80, hostPort: 80}]}]}`, `{hostNetwork: false, enableServiceLinks: true}`,
		`hostAliases: [{ip: 1.1.1.1, hostnames: [a, b]}, {ip: 2.2.2.2, hostnames: [c]}]`, `hostAliases: [{ip: 2.2.2.2, hostnames: [d]}]`, `{hostname: h, subdomain: s, setHostnameAsFQDN: true}`,
	},
	"others": {
		`{terminationGracePeriodSeconds: 0, shareProcessNamespace: true}`, `{imagePullSecrets: [{name: a}, {name: b}]}`, `{imagePullSecrets: [{name: b}]}`, `{readinessGates: [{conditionType: a.b/c}]}`,
		`- {stdin: true, tty: true, terminationMessagePolicy: FallbackToLogsOnError}`, `- {imagePullPolicy: Never, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}`,
		`{resourceClaims: [{name: gpu, resourceClaimTemplateName: t}], containers: [{name: proxy, image: proxy, resources: {claims: [{name: gpu}]}}]}`,
		`{tolerations: [], volumes: [], nodeSelector: {}, containers: [{name: icecream, env: [], command: null}]}`,
	},
}

// template returns the spec.template with that part of a Pod's spec.
func template(t rapid.TB, part string) *runtime.RawExtension {
	t.Helper()
	if part == "" {
		return nil
	}
	if ours, isOurs := strings.CutPrefix(part, "- "); isOurs {
		ours = strings.TrimSuffix(strings.TrimPrefix(ours, "{"), "}")
		if !strings.HasPrefix(part, "- {") {
			ours = strings.TrimPrefix(part, "- ")
		}
		part = "containers: [{name: icecream, " + ours + "}]"
	}
	if !strings.HasPrefix(part, "{") {
		part = "{" + part + "}"
	}
	return raw(t, "{spec: "+part+"}")
}

// raw returns the spec.template that a YAML says.
func raw(t rapid.TB, text string) *runtime.RawExtension {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &runtime.RawExtension{Raw: asJSON}
}

// writer writes Deployments as the controller does, one request after the other.
type writer struct {
	rapid.TB
	n   *lab.Namespace
	ctx context.Context
}

// icecreamOf returns an Icecream that runs no Pod. It exists, or the garbage collector would delete its Deployment.
func (w *writer) icecreamOf(name string, template *runtime.RawExtension) *v1alpha1.Icecream {
	w.Helper()
	spec := v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](0), Image: "registry.example/vanilla:1"}
	ice, err := w.n.Icecreams().Create(w.ctx, &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		ice, err = w.n.Icecreams().Get(w.ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	ice.Spec.Template = template
	return ice
}

// get returns the Deployment of an Icecream; nil if there is none.
func (w *writer) get(ice *v1alpha1.Icecream) *appsv1.Deployment {
	w.Helper()
	d, err := w.n.Deployments().Get(w.ctx, ice.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return d
}

// decide returns what is decided from what a new process keeps of the Deployment.
func (w *writer) decide(ice *v1alpha1.Icecream, live *appsv1.Deployment) icecream.Plan {
	w.Helper()
	o := icecream.Observed{Now: time.Now(), Icecream: ice}
	if live != nil {
		kept, err := icecream.StripDeployment(live)
		if err != nil {
			w.Fatal(err)
		}
		o.Live = kept.(*appsv1.Deployment)
	}
	return icecream.Decide(o)
}

// sync writes what is decided, and requires that then nothing is.
func (w *writer) sync(ice *v1alpha1.Icecream) (*appsv1.Deployment, error) {
	w.Helper()
	plan := w.decide(ice, w.get(ice))
	if plan.Held.Message != "" {
		return nil, errors.New(plan.Held.Message)
	}
	if plan.Apply != nil {
		options := plan.Apply.Options(icecream.FieldManager)
		if _, err := w.n.Deployments().Patch(w.ctx, ice.Name, plan.Apply.Type, plan.Apply.Body, options); err != nil {
			return nil, err
		}
	}
	live := w.get(ice)
	if again := w.decide(ice, live); again.IsOpen() {
		w.Errorf("it is written again: %s", again.Apply.Body)
	}
	return live, nil
}

// remove deletes the Deployment of an Icecream, if there is one.
func (w *writer) remove(ice *v1alpha1.Icecream) {
	w.Helper()
	if err := w.n.Deployments().Delete(w.ctx, ice.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// requireEqual requires that an updated Deployment is like one that is created from the same template.
func (w *writer) requireEqual(updated *appsv1.Deployment, template *runtime.RawExtension) {
	w.Helper()
	fresh := w.icecreamOf("fresh", template)
	created, err := w.sync(fresh)
	if err != nil {
		w.Fatal(err)
	}
	w.remove(fresh)
	asUpdated := func(labels map[string]string) {
		for key, value := range labels {
			if value == fresh.Name {
				labels[key] = updated.Name
			}
		}
	}
	asUpdated(created.Spec.Template.Labels)
	asUpdated(created.Spec.Selector.MatchLabels)
	if diff := cmp.Diff(created.Spec, updated.Spec); diff != "" {
		w.Errorf("the Deployment differs from a new one (-new +updated):\n%s", diff)
	}
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	return &writer{TB: t, n: NewQuietNamespace(t), ctx: t.Context()}
}

// A Deployment that is updated from one template to another equals one that is created from the other. Then there is
// nothing left to write, for a new process either.
func TestUpdatedEqualsCreated(t *testing.T) {
	t.Parallel()
	for group, parts := range parts {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			w := newWriter(t)
			parts := append([]string{""}, parts...)
			for i, from := range parts {
				for j, to := range parts {
					if i == j {
						continue
					}
					name := fmt.Sprintf("from-%d-to-%d", i, j)
					ice := w.icecreamOf(name, template(t, from))
					if _, err := w.sync(ice); err != nil {
						t.Fatalf("%s: %v", from, err)
					}
					ice.Spec.Template = template(t, to)
					updated, err := w.sync(ice)
					if err != nil {
						t.Fatalf("%s, and then %s: %v", from, to, err)
					}
					w.requireEqual(updated, ice.Spec.Template)
					if t.Failed() {
						t.Fatalf("from %s to %s", from, to)
					}
				}
			}
		})
	}
}

// The same after several edits of templates that combine parts of several groups. Of templates that the API server
// does not take, such as those that mount a volume that is missing, it takes neither.
func TestGeneratedUpdatesEqualCreations(t *testing.T) {
	t.Parallel()
	quiet := newWriter(t)
	if err := flag.Set("rapid.checks", "30"); err != nil { // each takes a second
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		w := &writer{TB: r, n: quiet.n, ctx: quiet.ctx}
		ice := w.icecreamOf("mint", nil)
		defer w.remove(ice)
		for range rapid.IntRange(2, 4).Draw(r, "edits") {
			before := ice.Spec.Template
			ice.Spec.Template = combined(r)
			updated, err := w.sync(ice)
			if err == nil {
				w.requireEqual(updated, ice.Spec.Template)
				continue
			}
			fresh := w.icecreamOf("fresh", ice.Spec.Template)
			if _, errCreated := w.sync(fresh); errCreated == nil {
				r.Fatalf("a creation is accepted, and an update is not: %v", err)
			}
			ice.Spec.Template = before
		}
	})
}

// combined draws a template with parts of some groups.
func combined(t *rapid.T) *runtime.RawExtension {
	t.Helper()
	all := map[string]any{}
	groups := rapid.SampledFrom([]string{"variables", "ports", "probes", "hooks", "volumes", "sidecars", "security", "accounts"})
	for _, group := range rapid.SliceOfNDistinct(groups, 0, 4, rapid.ID).Draw(t, "groups") {
		var one struct{ Spec map[string]any }
		if err := json.Unmarshal(template(t, rapid.SampledFrom(parts[group]).Draw(t, group)).Raw, &one); err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, one.Spec)
	}
	asJSON, err := json.Marshal(map[string]any{"spec": all})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: asJSON}
}

// What others set in a Deployment stays while the template changes. Fields of it that they change are taken back.
func TestOthersFieldsStayBesideTemplates(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	patch := func(ice *v1alpha1.Icecream, body string) {
		t.Helper()
		options := metav1.PatchOptions{FieldManager: "somebody"}
		if _, err := w.n.Deployments().Patch(w.ctx, ice.Name, types.StrategicMergePatchType, []byte(body), options); err != nil {
			t.Fatal(err)
		}
	}
	const spec = `{"spec":{"template":{"spec":{"containers":[{"name":"icecream",%s}]}}}}`
	// requireHas requires that the Deployment has all this after a sync.
	requireHas := func(ice *v1alpha1.Icecream, after string, words ...string) {
		t.Helper()
		live, err := w.sync(ice)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(live.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if !lab.ContainsAll(string(raw), words...) || !metav1.IsControlledBy(live, ice) {
			t.Errorf("after %s, there is %s, want %q", after, raw, words)
		}
	}
	ice := w.icecreamOf("lime", template(t, `{containers: [{name: icecream, env: [{name: A, value: a}], ports: [{containerPort: 80}]}], tolerations: [{key: a}]}`))
	if _, err := w.sync(ice); err != nil {
		t.Fatal(err)
	}
	patch(ice, fmt.Sprintf(spec, `"env":[{"name":"THEIRS","value":"1"}],"resources":{"limits":{"memory":"1Gi"}}`))
	patch(ice, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}},"spec":{"containers":[{"name":"theirs","image":"theirs"}]}}}}`)
	if plan := w.decide(ice, w.get(ice)); plan.IsOpen() {
		t.Errorf("fields of others are undone: %s", plan.Apply.Body)
	}
	for _, next := range []string{`- {env: [{name: A, value: b}, {name: B, value: b}]}`, ``, `- {env: [{name: B, value: c}]}`} {
		ice.Spec.Template = template(t, next)
		requireHas(ice, "an edit", `"THEIRS"`, `"memory":"1Gi"`, `"Recreate"`, "restartedAt", `"name":"theirs"`)
	}
	for field, theft := range map[string]string{
		"a value":       fmt.Sprintf(spec, `"env":[{"name":"B","value":"mud"}]`),
		"a removal":     fmt.Sprintf(spec, `"env":[{"name":"B","$patch":"delete"}]`),
		"the image":     fmt.Sprintf(spec, `"image":"mud"`),
		"a label":       `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`,
		"the owner":     fmt.Sprintf(`{"metadata":{"ownerReferences":[{"uid":%q,"$patch":"delete"}]}}`, ice.UID),
		"ours":          `{"metadata":{"annotations":{"controller.nicoleh.io/asked":null}}}`,
		"all ownership": `{"metadata":{"managedFields":[{}]}}`,
		"a node":        `{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}`,
	} {
		patch(ice, theft)
		if plan := w.decide(ice, w.get(ice)); plan.Apply == nil {
			t.Errorf("%s is not taken back", field)
		}
		requireHas(ice, "a change of "+field, `{"name":"B","value":"c"}`, ice.Spec.Image)
	}
}

// A template that the API server does not take is refused with the path of the field. For what the controller refuses,
// see pkg/icecream.
func TestBrokenTemplates(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	ice := w.icecreamOf("good", template(t, `- env: [{name: A, value: a}]`))
	if _, err := w.sync(ice); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{spec: {initContainers: [{name: icecream, image: x}]}}`:                             `spec.template.spec.initContainers[0].name: Duplicate value: "icecream"`,
		`{spec: {containers: [{image: a}]}}`:                                                 "spec.template.spec.containers[1].name: Required value",
		`{spec: {restartPolicy: Never}}`:                                                     "spec.template.spec.restartPolicy: Unsupported value",
		`{spec: {containers: [{name: icecream, volumeMounts: [{name: v, mountPath: /v}]}]}}`: "spec.template.spec.containers[0].volumeMounts[0].name: Not found",
		`{spec: {containers: [{name: icecream, livenessProbe: {}}]}}`:                        "spec.template.spec.containers[0].livenessProbe: Required value",
		`{spec: {containers: [{name: a}]}}`:                                                  "spec.template.spec.containers[1].image: Required value",
		`{metadata: {labels: {"a b": c}}}`:                                                   "spec.template.labels: Invalid value",
		`{spec: {containers: [{name: icecream, env: [{name: A}, {name: A, value: b}]}]}}`:    `.spec.template.spec.containers[name="icecream"].env: duplicate entries for key [name="A"]`,
	} {
		ice.Spec.Template = raw(t, text)
		_, err := w.sync(ice)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s, the error is: %v\nwant %q", text, err, want)
		}
		ice.Spec.Replicas = ptr.To(*ice.Spec.Replicas + 1)
	}
}
