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
	return asJSON(g.newContent(resource))
}

func (g *generator) newContent(resource schema.GroupVersionResource) object {
	switch resource {
	case deployments, replicaSets:
		return object{"spec": g.workload(resource)}
	case pods:
		return object{"spec": g.podSpec()}
	case secrets:
		return g.secret()
	case nodes:
		return object{"spec": g.partialSpec(nodes), "status": g.status(nodes)}
	case leases, icecreams:
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
		container["ports"] = []any{object{"containerPort": 80}}
	}
	if g.in(20) {
		container["resources"] = object{"limits": object{"memory": pick(g, "1Gi", "1024Mi"), "cpu": "1000m"}, "requests": object{"cpu": "0.5"}}
	}
	if g.in(10) {
		container["readinessProbe"] = object{"httpGet": object{"port": 80}}
	}
	if g.in(10) {
		container["env"] = []any{object{"name": "NODE", "valueFrom": object{"fieldRef": object{"fieldPath": "spec.nodeName"}}}}
	}
	return container
}

// workload returns the spec of a Deployment or ReplicaSet, mostly a valid one.
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
	if resource == deployments && g.in(15) {
		spec["strategy"] = object{"type": "Recreate"}
	}
	if g.in(15) {
		spec["minReadySeconds"] = 5
	}
	if g.in(20) {
		g.spoil(resource, spec, template)
	}
	return spec
}

// spoil makes the spec of a workload invalid.
func (g *generator) spoil(resource schema.GroupVersionResource, spec, template object) {
	podSpec := template["spec"].(object)
	switch g.rand.IntN(10) {
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
	case 8:
		spec["minReadySeconds"] = -1
	case 9:
		if resource == deployments {
			spec["minReadySeconds"] = 1000
		}
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
	if g.in(20) {
		spec["tolerations"] = []any{object{"operator": "Exists"}}
	}
	if g.in(10) {
		spec["containers"] = pick(g, []any{}, []any{g.container("Not_Valid")}, []any{object{"name": "c"}})
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
	return asJSON(g.newSpec(resource))
}

func (g *generator) newSpec(resource schema.GroupVersionResource) object {
	spec := object{}
	switch resource {
	case deployments, replicaSets:
		if g.in(25) {
			return g.workload(resource)
		}
		spec["replicas"] = pick(g, 0, 1, 2, 3, -1)
		if g.in(20) {
			spec["selector"] = object{"matchLabels": object{"app": pick(g, "x", "y")}}
		}
		if g.in(40) {
			spec["template"] = object{"metadata": object{"annotations": object{"hash": pick(g, "1", "2")}}}
		}
	case pods:
		spec["containers"] = []any{object{"name": "c", "image": pick(g, "i:1", "i:2")}}
		spec["automountServiceAccountToken"] = false
	case nodes:
		if g.in(50) {
			spec["unschedulable"] = g.in(50)
		}
		if g.in(20) {
			spec["providerID"] = pick(g, "cloud://1", "cloud://2")
		}
		if g.in(20) {
			spec["taints"] = []any{object{"key": "example.com/full", "effect": "NoSchedule"}}
		}
	case leases:
		spec["holderIdentity"] = pick(g, "me", "you", "")
		spec["leaseDurationSeconds"] = pick(g, 15, 30, 60, 0)
		if g.in(50) {
			spec["renewTime"] = pick(g, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.500000Z")
		}
		if g.in(20) {
			spec["leaseTransitions"] = pick(g, 0, 1, -1)
		}
	case icecreams:
		if g.in(60) {
			spec["replicas"] = pick(g, 0, 1, 2, 3, 3, 2, 1, -1)
		}
		if g.in(40) {
			spec["image"] = pick(g, "i:1", "i:2")
		}
		if g.in(20) {
			spec["deploymentName"] = pick(g, "x", "y")
		}
		if g.in(20) {
			spec["resources"] = object{"limits": object{"memory": pick(g, "1Gi", "2Gi")}}
		}
	}
	return spec
}

// change changes an object beyond its metadata. Of Pods, it changes images only.
func (g *generator) change(resource schema.GroupVersionResource, obj *unstructured.Unstructured) {
	switch resource {
	case pods:
		if containers, ok, _ := unstructured.NestedSlice(obj.Object, "spec", "containers"); ok && len(containers) > 0 {
			containers[0].(object)["image"] = pick(g, "i:1", "i:2")
			_ = unstructured.SetNestedSlice(obj.Object, containers, "spec", "containers")
		}
	case secrets:
		maps.Copy(obj.Object, asJSON(g.secret()))
	case namespaces:
	default:
		spec, _ := obj.Object["spec"].(object)
		if spec == nil {
			spec = object{}
		}
		for name, value := range g.partialSpec(resource) {
			if name != "template" && name != "resources" {
				spec[name] = value
			}
		}
		obj.Object["spec"] = spec
	}
}

// status returns the status of an object, mostly a valid one.
func (g *generator) status(resource schema.GroupVersionResource) object {
	return asJSON(g.newStatus(resource))
}

func (g *generator) newStatus(resource schema.GroupVersionResource) object {
	switch resource {
	case deployments:
		status := object{"replicas": 3, "readyReplicas": g.rand.IntN(5), "availableReplicas": g.rand.IntN(3), "observedGeneration": 1}
		if g.in(30) {
			status["conditions"] = []any{object{"type": "Available", "status": pick(g, "True", "False")}}
		}
		return status
	case replicaSets:
		return object{"replicas": 2, "readyReplicas": g.rand.IntN(4), "fullyLabeledReplicas": g.rand.IntN(4)}
	case pods:
		status := object{"phase": pick(g, "Running", "Running", "Failed", "Succeeded")}
		if g.in(50) {
			status["conditions"] = []any{object{"type": "Ready", "status": pick(g, "True", "False"), "observedGeneration": g.rand.IntN(3)}}
		}
		return status
	case nodes:
		status := object{"conditions": []any{object{"type": "Ready", "status": pick(g, "True", "False")}}}
		if g.in(30) {
			status["capacity"] = object{"pods": "10", "cpu": "2"}
		}
		return status
	case namespaces:
		return object{"phase": pick(g, "Active", "Active", "Terminating")}
	case icecreams:
		status := object{"replicas": g.rand.IntN(3)}
		if g.in(50) {
			status["conditions"] = []any{object{"type": "Ready", "status": pick(g, "True", "False"), "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
		}
		return status
	default:
		return object{}
	}
}
