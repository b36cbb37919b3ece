package explore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// readWire reads a request or a response.
func readWire(raw string) (w wire, err error) {
	err = json.Unmarshal([]byte(raw), &w)
	return w, err
}

// reason returns the reason of a Status.
func (w wire) reason() string {
	var status struct{ Kind, Reason string }
	if err := json.Unmarshal(w.Body, &status); err != nil || status.Kind != "Status" {
		return ""
	}
	return status.Reason
}

// differences says what has changed in the store, a line each.
func (s *system) differences(before, after *state) (lines []string) {
	was, is := map[int32]text{}, map[int32]text{}
	for _, o := range before.objects {
		was[o.key] = o.text
	}
	for _, o := range after.objects {
		is[o.key] = o.text
		name := s.object(o)
		old, existed := was[o.key]
		switch {
		case !existed:
			lines = append(lines, "there is "+name)
		case old.template != o.text.template:
			for _, line := range s.fields(old, o.text) {
				lines = append(lines, name+": "+line)
			}
		}
	}
	for _, o := range before.objects {
		if _, exists := is[o.key]; !exists {
			lines = append(lines, s.object(o)+" is gone")
		}
	}
	return lines
}

// fields says which fields differ.
func (s *system) fields(from, to text) (lines []string) {
	was, err1 := s.unstructured(from)
	is, err2 := s.unstructured(to)
	if err1 != nil || err2 != nil {
		return nil
	}
	a, b := map[string]string{}, map[string]string{}
	flatten("", was.Object, a)
	flatten("", is.Object, b)
	for _, path := range slices.Sorted(maps.Keys(b)) {
		if a[path] != b[path] && !isNoise(path) {
			lines = append(lines, path+" is "+b[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[path]; !ok && !isNoise(path) {
			lines = append(lines, path+" is gone")
		}
	}
	return lines
}

func isNoise(path string) bool {
	return strings.HasPrefix(path, "metadata.managedFields") || path == "metadata.resourceVersion" || strings.HasSuffix(path, "lastTransitionTime")
}

// flatten adds the leaves of a JSON value by their paths.
func flatten(path string, value any, to map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			flatten(strings.TrimPrefix(path+"."+key, "."), v, to)
		}
	case []any:
		for i, v := range value {
			flatten(fmt.Sprintf("%s[%d]", path, i), v, to)
		}
	default:
		to[path] = plain(fmt.Sprint(value))
	}
}
