package fidelity

import (
	"encoding/json"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

type object = map[string]any

// content returns what a new object of a kind has besides metadata.
func (g *generator) content(resource schema.GroupVersionResource) object {
	switch resource {
	case deployments, statefuls:
		return asJSON(object{"spec": g.workload(resource)})
	case pods:
		return asJSON(object{"spec": g.podSpec()})
	case secrets:
		return asJSON(g.secret())
	case nodes, leases, icecreams:
		return object{"spec": g.partialSpec(resource)}
	default:
		return object{}
	}
}

// asJSON returns content as it is decoded from JSON.
func asJSON(content object) object {
	encoded, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	var decoded object
	if err := utiljson.Unmarshal(encoded, &decoded); err != nil {
		panic(err)
	}
	return decoded
}

func (g *generator) container(name string) object {
	container := object{"name": name, "image": pick(g, "i", "i:latest", "r.io:5000/i:1", "r.io:5000/i", "i@sha256:"+strings.Repeat("0", 64))}
	if g.in(20) {
		container["resources"] = object{"limits": object{"memory": pick(g, "1Gi", "1024Mi"), "cpu": "1000m"}, "requests": object{"cpu": "0.5"}}
	}
	g.furnish(container)
	return container
}

// furnish gives a container environment variables, one of them perhaps twice, and ports, which two
// fields tell apart.
func (g *generator) furnish(container object) {
	if g.in(30) {
		env := []any{object{"name": pick(g, "A", "B"), "value": pick(g, "1", "2")}}
		for g.in(50) {
			env = append(env, object{"name": pick(g, "A", "B", "C"), "value": pick(g, "1", "2")})
		}
		container["env"] = env
	}
	if g.in(30) {
		ports := []any{
			object{"containerPort": 53, "protocol": "TCP"},
			object{"containerPort": 53, "protocol": "UDP"},
			object{"containerPort": 443, "protocol": "TCP", "name": "https"},
		}
		g.rand.Shuffle(len(ports), func(i, j int) { ports[i], ports[j] = ports[j], ports[i] })
		container["ports"] = ports[:1+g.rand.IntN(len(ports))]
	}
}

// workload returns the spec of a Deployment or a StatefulSet, mostly a valid one.
func (g *generator) workload(resource schema.GroupVersionResource) object {
	containers := []any{g.container("c")}
	if g.in(20) {
		containers = append(containers, g.container("d"))
	}
	template := object{"metadata": object{"labels": object{"app": "x"}}, "spec": object{"containers": containers}}
	spec := object{"selector": object{"matchLabels": object{"app": "x"}}, "template": template}
	if g.in(50) {
		spec["replicas"] = g.rand.IntN(4)
	}
	if g.in(20) && resource == statefuls {
		spec["serviceName"] = pick(g, "x", "y")
	}
	if g.in(15) && resource == deployments {
		spec["strategy"] = object{"type": "Recreate"}
	}
	if g.in(20) {
		template["spec"].(object)["initContainers"] = []any{g.container(pick(g, "c", "init"))}
	}
	if g.in(20) {
		g.spoil(spec, template)
	}
	return spec
}

// spoil makes the spec of a workload invalid.
func (g *generator) spoil(spec, template object) {
	podSpec := template["spec"].(object)
	switch g.rand.IntN(8) {
	case 0:
		spec["replicas"] = -1
	case 1:
		delete(spec, "selector")
	case 2:
		spec["selector"] = object{}
	case 3:
		template["metadata"] = object{"labels": object{"app": "y"}}
	case 4:
		podSpec["containers"] = []any{}
	case 5:
		podSpec["containers"] = []any{g.container("Not_Valid")}
	case 6:
		podSpec["containers"] = []any{g.container("c"), g.container("c")}
	case 7:
		podSpec["containers"] = []any{object{"name": "c"}}
	}
}

func (g *generator) podSpec() object {
	spec := object{"containers": []any{g.container("c")}, "automountServiceAccountToken": false}
	if g.in(70) {
		spec["nodeName"] = "somewhere"
	}
	if g.in(30) {
		spec["terminationGracePeriodSeconds"] = pick(g, 0, 5, 60)
	}
	return spec
}

func (g *generator) secret() object {
	content := object{}
	if g.in(70) {
		content["data"] = object{pick(g, "a", "b"): pick(g, "MQ==", "Mg==")}
	}
	if g.in(30) {
		content["stringData"] = object{"c": pick(g, "1", "2")}
	}
	if g.in(20) {
		content["type"] = pick(g, "Opaque", "example.com/type")
	}
	if g.in(5) {
		content["immutable"] = true
	}
	if g.in(5) {
		content["data"] = object{"not valid": "MQ=="}
	}
	return content
}

// partialSpec returns some fields of a spec.
func (g *generator) partialSpec(resource schema.GroupVersionResource) object {
	spec := object{}
	switch resource {
	case deployments, statefuls:
		spec["replicas"] = pick(g, 0, 1, 2, 3, -1)
		if g.in(20) {
			spec["selector"] = object{"matchLabels": object{"app": pick(g, "x", "y")}}
		}
		if g.in(40) {
			spec["template"] = object{"metadata": object{"annotations": object{"hash": pick(g, "1", "2")}}}
		}
	case nodes:
		if g.in(50) {
			spec["unschedulable"] = g.in(50)
		}
	case leases:
		spec["holderIdentity"] = pick(g, "me", "you", "")
		spec["leaseDurationSeconds"] = pick(g, 15, 30, 60)
		if g.in(50) {
			spec["renewTime"] = pick(g, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.500000Z")
		}
	case icecreams:
		spec["replicas"] = g.rand.IntN(4)
		if g.in(20) {
			spec["deploymentName"] = pick(g, "x", "y")
		}
	}
	return asJSON(spec)
}

// change changes an object beyond its metadata.
func (g *generator) change(resource schema.GroupVersionResource, obj *unstructured.Unstructured) {
	if resource == secrets {
		maps.Copy(obj.Object, g.content(secrets))
		return
	}
	spec, _ := obj.Object["spec"].(object)
	if spec == nil {
		spec = object{}
	}
	changed := g.partialSpec(resource)
	delete(changed, "template") // of which it has only a part
	maps.Copy(spec, changed)
	obj.Object["spec"] = spec
}

// status returns a valid status.
func (g *generator) status(resource schema.GroupVersionResource) object {
	condition := func(of string) []any {
		return []any{object{"type": of, "status": pick(g, "True", "False"), "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
	}
	status := object{}
	switch resource {
	case deployments, statefuls:
		status = object{"replicas": 3, "readyReplicas": 3, "availableReplicas": g.rand.IntN(3), "observedGeneration": 1}
	case pods:
		status = object{"phase": pick(g, "Running", "Running", "Failed", "Succeeded"), "conditions": condition("Ready")}
	case nodes:
		status = object{"conditions": condition("Ready")}
	case icecreams:
		status = object{"replicas": g.rand.IntN(3)}
		if g.in(50) {
			status["conditions"] = condition("Ready")
		}
	}
	return asJSON(status)
}
