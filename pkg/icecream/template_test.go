package icecream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// filled returns a template that has as many of these items as it can have, or too many.
func filled(before, item, after string, bytes int) string {
	var items []string
	for length := len(before) + len(after); ; length += len(item) + 4 {
		if length >= bytes {
			return before + strings.Join(items, ",") + after
		}
		items = append(items, fmt.Sprintf(item, len(items)))
	}
}

// Whatever a template has, a sync takes no time that others would notice, and the caches keep little of it.
func TestCostOfTemplates(t *testing.T) {
	const ours = `{"spec":{"containers":[{"name":"icecream",`
	digits := strings.Repeat("9", 60_000)
	for name, template := range map[string]string{
		"1.4 MB":                   filled(ours+`"args":[`, `"%05d"`, `]}]}}`, 1_400_000),
		"10,000 containers":        filled(`{"spec":{"containers":[`, `{"name":"%05d","image":"x"}`, `]}}`, 300_000),
		"containers":               filled(`{"spec":{"containers":[`, `{"name":"%04d","image":"x"}`, `]}}`, maxTemplate),
		"variables":                filled(ours+`"env":[`, `{"name":"A%04d"}`, `]}]}}`, maxTemplate),
		"ports":                    filled(ours+`"ports":[`, `{"containerPort":1%04d}`, `]}]}}`, maxTemplate),
		"volumes":                  filled(`{"spec":{"volumes":[`, `{"name":"%04d","emptyDir":{}}`, `]}}`, maxTemplate),
		"labels":                   filled(`{"metadata":{"labels":{`, `"a%04d":""`, `}}}`, maxTemplate),
		"tolerations":              filled(`{"spec":{"tolerations":[`, `{"key":"%04d"}`, `]}}`, maxTemplate),
		"unknown fields":           filled(`{"spec":{`, `"a%04d":1`, `}}`, maxTemplate),
		"a number of 200,000":      `{"spec":{"priority":` + strings.Repeat("9", 200_000) + `}}`,
		"a number of many digits":  `{"spec":{"priority":` + digits + `}}`,
		"a quantity of many":       `{"spec":{"initContainers":[{"name":"a","resources":{"limits":{"cpu":"` + digits + `"}}}]}}`,
		"a quantity unquoted":      `{"spec":{"initContainers":[{"name":"a","resources":{"limits":{"cpu":` + digits + `}}}]}}`,
		"a quantity with exponent": `{"spec":{"initContainers":[{"name":"a","resources":{"limits":{"cpu":"1e999999999"}}}]}}`,
		"a tiny quantity":          `{"spec":{"initContainers":[{"name":"a","resources":{"limits":{"cpu":"1e-999999999"}}}]}}`,
		"a tiny quantity unquoted": `{"spec":{"overhead":{"cpu":1e-999999999}}}`,
		"quantities":               filled(`{"spec":{"initContainers":[{"name":"a","resources":{"limits":{`, `"a%04d":"1e99999999"`, `}}}]}}`, maxTemplate),
		"nesting":                  `{"spec":{"affinity":` + strings.Repeat(`{"a":`, 9_000) + `1` + strings.Repeat(`}`, 9_001) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			kept, err := StripIcecream(newIcecream(withTemplate(template)))
			if err != nil {
				t.Fatal(err)
			}
			ice := kept.(*v1alpha1.Icecream)
			start := time.Now()
			plan := Decide(Observed{Now: now, Icecream: ice})
			took := time.Since(start)
			if plan.Apply == nil && plan.Held.Reason != v1alpha1.ReasonInvalidSpec || len(plan.Held.Message) > 4<<10 {
				t.Errorf("what is held: %.300s", plan.Held.Message)
			}
			p := &parlor{TB: t}
			p.apply(newIcecream())
			if plan.Apply != nil {
				p.store = apiserver.Store{}
				p.apply(ice)
			}
			live := stripped(p.stored())
			start = time.Now()
			again := Decide(Observed{Now: now, Icecream: ice, Live: live})
			atRest := time.Since(start)
			if sum := took + atRest; sum > 5*time.Second {
				t.Errorf("a creation takes %s, and then a sync %s", took, atRest)
			}
			ofDeployment, err := json.Marshal(live)
			if err != nil {
				t.Fatal(err)
			}
			const atMost = maxFields + 4<<10
			if len(ice.Spec.Template.Raw) > maxTemplate+1 || len(ofDeployment) > atMost {
				t.Errorf("the caches keep %d and %d bytes", len(ice.Spec.Template.Raw), len(ofDeployment))
			}
			t.Logf("decided in %s, at rest in %s; %d bytes of the Icecream, %d of the Deployment; is open: %t; %.200s",
				took.Round(time.Millisecond), atRest.Round(time.Millisecond), len(ice.Spec.Template.Raw), len(ofDeployment), again.IsOpen(), plan.Held.Message)
		})
	}
}

// What is not part of a Pod template is refused with the path of the field.
func TestBrokenTemplates(t *testing.T) {
	for template, want := range map[string]string{
		`{spec: {containers: [{name: icecream, evn: []}]}}`: `unknown field "spec.containers[0].evn"`,
		`{spec: {Containers: []}}`:                          `unknown field "spec.Containers"`,
		`{status: {}}`:                                      `unknown field "status"`,
		`{$patch: delete}`:                                  `unknown field "$patch"`,
		`{spec: {containers: [{name: icecream, $patch: delete}, {name: x, image: x}]}}`:                                                             `unknown field "spec.containers[0].$patch"`,
		`{spec: {$retainKeys: [containers]}}`:                                                                                                       `unknown field "spec.$retainKeys"`,
		`{spec: {securityContext: {$patch: replace}}}`:                                                                                              `unknown field "spec.securityContext.$patch"`,
		`{spec: {$setElementOrder/containers: []}}`:                                                                                                 `unknown field "spec.$setElementOrder/containers"`,
		`{metadata: {name: x}}`:                                                                                                                     "metadata can have labels and annotations only",
		`{metadata: {finalizers: [a.b/c]}}`:                                                                                                         "metadata can have labels and annotations only",
		`{metadata: {ownerReferences: [{uid: x}]}}`:                                                                                                 "metadata can have labels and annotations only",
		`{spec: {containers: [{name: icecream, image: x}]}}`:                                                                                        "spec.containers[0]: set the image and the resources of container icecream in spec.image and spec.resources",
		`{spec: {containers: [{name: a, image: a}, {name: icecream, resources: {}}]}}`:                                                              "spec.containers[1]: set the image and the resources",
		`{spec: {containers: [{name: icecream}, {name: icecream, tty: true}]}}`:                                                                     `spec.containers[1].name: duplicate "icecream"`,
		`{spec: {containers: [{name: a, image: a}, {name: a, image: b}]}}`:                                                                          `.spec.template.spec.containers: duplicate entries for key [name="a"]`,
		`{spec: {containers: [{name: icecream, env: [{name: A}, {name: A, value: b}]}]}}`:                                                           `.spec.template.spec.containers[name="icecream"].env: duplicate entries for key [name="A"]`,
		`{spec: {containers: [{name: icecream, ports: [{containerPort: 1}, {containerPort: 1, protocol: TCP}]}]}}`:                                  `.ports: duplicate entries for key [containerPort=1,protocol="TCP"]`,
		`{spec: {volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]}}`:                                                                     `.spec.template.spec.volumes: duplicate entries for key [name="v"]`,
		`{spec: {containers: [{name: icecream, ports: [{containerPort: eighty}]}]}}`:                                                                "spec.containers.ports.containerPort",
		`{spec: {hostNetwork: "yes"}}`:                                                                                                              "spec.hostNetwork",
		`{spec: {containers: [{name: icecream, env: [{name: A, value: 1}]}]}}`:                                                                      "spec.containers.env.value",
		`{spec: {containers: [{name: a, image: a, resources: {limits: {cpu: 1e99999999}}}]}}`:                                                       "spec.template: spec.containers[0].resources.limits.cpu is too large or too small a number",
		`{spec: {volumes: [{name: v, emptyDir: {sizeLimit: "1e999999999"}}]}}`:                                                                      "spec.template: spec.volumes[0].emptyDir.sizeLimit is too large or too small a number",
		`{spec: {overhead: {memory: "1e-99999999"}}}`:                                                                                               "spec.template: spec.overhead.memory is too large or too small a number",
		`{spec: {containers: [{name: icecream, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1e-99999999"}}}]}]}}`: "env[0].valueFrom.resourceFieldRef.divisor is too",
		`{spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: "1E-99999999"}}}}}}]}}`:               "volumeClaimTemplate.spec.resources.requests.storage is too",
		`{spec: []}`:               "spec",
		`{spec: {containers: {}}}`: "spec.containers",
	} {
		raw, err := yaml.YAMLToJSON([]byte(template))
		if err != nil {
			t.Fatal(err)
		}
		if got := decided(Observed{Now: now, Icecream: newIcecream(withTemplate(string(raw)))}); !strings.HasPrefix(got, "Stalled: InvalidSpec: ") || !strings.Contains(got, want) {
			t.Errorf("of %s, got %s\nwant %s", template, got, want)
		}
	}
	unknown := filled(`{"spec":{`, `"a%04d":1`, `}}`, maxTemplate)
	if got := decided(Observed{Now: now, Icecream: newIcecream(withTemplate(unknown))}); strings.Count(got, "unknown field") != maxUnknown {
		t.Errorf("of many unknown fields, got %s", got)
	}
}
