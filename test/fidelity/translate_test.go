package fidelity

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// UIDs and versions of the model are easy to tell from everything else.
func versionText(n int64) string { return fmt.Sprintf("9%015d", n) }
func uidText(n int64) string     { return fmt.Sprintf("fdfdfdfd-0000-4000-8000-%012x", n) }

const uidPattern = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

var (
	modelTexts = regexp.MustCompile(`fdfdfdfd-0000-4000-8000-[0-9a-f]{12}|9[0-9]{15}`)
	realUIDs   = regexp.MustCompile(uidPattern)
	realTexts  = regexp.MustCompile(uidPattern + `|'[0-9]+'|[0-9]+`)
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

// bind learns the UIDs and versions in a response or an event of both servers.
func (d *dictionary) bind(model, reality map[string]any) {
	for _, name := range []string{"uid", "resourceVersion"} {
		for _, parent := range []string{"metadata", "details"} {
			m, _ := model[parent].(map[string]any)
			r, _ := reality[parent].(map[string]any)
			modelText, _ := m[name].(string)
			realText, _ := r[name].(string)
			if _, isList := model["items"]; isList || modelText == "" || realText == "" || d.reals[modelText] != "" || d.models[realText] != "" {
				continue
			}
			d.reals[modelText], d.models[realText] = realText, modelText
		}
	}
}

// toModel returns JSON of the real API server with the model's UIDs and versions.
func (d *dictionary) toModel(value any) any {
	switch value := value.(type) {
	case map[string]any:
		translated := map[string]any{}
		for name, child := range value {
			name = realUIDs.ReplaceAllStringFunc(name, func(known string) string { return cmp.Or(d.models[known], known) }) // in fieldsV1
			translated[name] = d.toModel(child)
			if text, ok := child.(string); ok {
				translated[name] = d.textToModel(name, text)
			}
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

func (d *dictionary) textToModel(name, text string) string {
	switch name {
	case "uid", "resourceVersion":
		return cmp.Or(d.models[text], text)
	case "message":
		// In single quotes are examples of valid values.
		return realTexts.ReplaceAllStringFunc(text, func(known string) string {
			if number, err := strconv.Atoi(known); err == nil && number < smallestVersion {
				return known
			}
			return cmp.Or(d.models[known], known)
		})
	default:
		return text
	}
}

// A version may be the same number as an example of a valid label.
func TestNumbersInMessages(t *testing.T) {
	d := newDictionary()
	d.models["12345"], d.models["80"] = versionText(8), versionText(9)
	got := d.textToModel("message", "port 80: not version 12345 (e.g. 'my_value', or '12345')")
	want := "port 80: not version " + versionText(8) + " (e.g. 'my_value', or '12345')"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
