package fidelity

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// compareWatches reports whether watches of all resources deliver the same events.
func (s *sequence) compareWatches() bool {
	isEqual := true
	for _, resource := range resources {
		for _, asMetadata := range []bool{false, true} {
			isEqual = s.compareWatch(resource, asMetadata) && isEqual
		}
	}
	return isEqual
}

func (s *sequence) compareWatch(resource schema.GroupVersionResource, asMetadata bool) bool {
	want := s.events(resource.GroupResource(), asMetadata)
	is := s.real.watch(s.t, allPath(resource), s.start, asMetadata, len(want), s.isOwn)
	if len(is) < len(want) {
		return false
	}
	for i, event := range want {
		s.bind(event["object"].(map[string]any), is[i]["object"].(map[string]any))
		if diff := cmp.Diff(s.toModel(is[i]), any(event)); diff != "" {
			s.t.Errorf("-seed=%d: event %d of %s (-API server +model):\n%s", s.seed, i, resource.Resource, diff)
			return false
		}
	}
	s.compared += len(want)
	return true
}

// events returns the events of the model, as JSON.
func (s *sequence) events(resource schema.GroupResource, asMetadata bool) []map[string]any {
	watch, err := apiserver.SelectionOf(apiserver.Key{Resource: resource}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	var events []map[string]any
	var before apiserver.Store
	for _, after := range s.steps {
		for _, event := range watch.Events(before, after) {
			content := event.Object.Object
			if asMetadata {
				content = apiserver.Metadata(content)
			}
			object, err := json.Marshal(content)
			if err != nil {
				s.t.Fatal(err)
			}
			events = append(events, map[string]any{"type": string(event.Type), "object": decode(s.t, object)})
		}
		before = after
	}
	return events
}

// isOwn reports whether an object belongs to the sequence.
func (s *sequence) isOwn(object map[string]any) bool {
	meta, _ := object["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	return strings.HasPrefix(namespace, s.namespace) || namespace == "" && strings.HasPrefix(name, s.namespace)
}

// version is the version of an object or a list, as the model and the API server have it.
type version struct {
	model, real string
	isList      bool
}

// compareOrder reports whether the versions of both servers are in the same order. That of a
// list is at least that of each earlier response, and less than that of each later write.
func (s *sequence) compareOrder() bool {
	var versions []version
	for model, reality := range s.reals {
		if len(model) == len(versionText(0)) {
			versions = append(versions, version{model: model, real: reality})
		}
	}
	versions = append(versions, s.lists...) // after the write that they have last
	slices.SortStableFunc(versions, func(a, b version) int { return strings.Compare(a.model, b.model) })
	last := int64(0)
	for _, v := range versions {
		number, err := strconv.ParseInt(v.real, 10, 64)
		if err != nil || number < last || number == last && !v.isList {
			s.t.Errorf("-seed=%d: the model's version %s is %s of the API server, which must come after %d (list: %t)", s.seed, v.model, v.real, last, v.isList)
			return false
		}
		last = number
	}
	return true
}
