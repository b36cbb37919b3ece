package fidelity

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// UIDs and versions of the model are easy to tell from everything else.
func versionText(n int64) string { return fmt.Sprintf("9%015d", n) }
func uidText(n int64) string     { return fmt.Sprintf("fdfdfdfd-0000-4000-8000-%012x", n) }

var (
	modelTexts = regexp.MustCompile(`fdfdfdfd-0000-4000-8000-[0-9a-f]{12}|9[0-9]{15}`)
	uids       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// dictionary translates UIDs and versions.
type dictionary struct {
	reals  map[string]string // by those of the model
	models map[string]string // by the real ones
}

func newDictionary() *dictionary {
	return &dictionary{reals: map[string]string{}, models: map[string]string{}}
}

// toReal returns a request for the real API server.
func (d *dictionary) toReal(r apiserver.Request) apiserver.Request {
	translate := func(text string) string {
		return modelTexts.ReplaceAllStringFunc(text, func(known string) string { return cmp.Or(d.reals[known], known) })
	}
	r.Query = maps.Clone(r.Query)
	for name, values := range r.Query {
		r.Query[name] = []string{translate(values[0])}
	}
	r.Body = []byte(translate(string(r.Body)))
	return r
}

// bind learns the UID and the version in an object of both servers.
func (d *dictionary) bind(model, reality map[string]any) {
	m, _ := model["metadata"].(map[string]any)
	r, _ := reality["metadata"].(map[string]any)
	for _, name := range []string{"uid", "resourceVersion"} {
		modelText, _ := m[name].(string)
		realText, _ := r[name].(string)
		if _, isList := model["items"]; isList || modelText == "" || realText == "" || d.reals[modelText] != "" || d.models[realText] != "" {
			continue
		}
		d.reals[modelText], d.models[realText] = realText, modelText
	}
}

// isTracked reports whether managed fields are those of a workload, which the model has, too.
func isTracked(entries []any) bool {
	return slices.ContainsFunc(entries, func(entry any) bool {
		return entry.(map[string]any)["apiVersion"] == deployments.GroupVersion().String()
	})
}

// toModel returns JSON of the real API server with the model's UIDs and versions, and without
// the managedFields that the model does not have.
func (d *dictionary) toModel(value any) any {
	switch value := value.(type) {
	case map[string]any:
		translated := map[string]any{}
		for name, child := range value {
			name = uids.ReplaceAllStringFunc(name, func(uid string) string { return cmp.Or(d.models[uid], uid) }) // in managedFields
			translated[name] = d.toModel(child)
			if text, ok := child.(string); ok && (name == "uid" || name == "resourceVersion") {
				translated[name] = cmp.Or(d.models[text], text)
			}
		}
		if entries, ok := translated["managedFields"].([]any); ok && !isTracked(entries) {
			delete(translated, "managedFields")
		}
		return translated
	case []any:
		translated := make([]any, len(value))
		for i, child := range value {
			translated[i] = d.toModel(child)
		}
		return translated
	default:
		return value
	}
}
