package manager

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	flagz "k8s.io/apiserver/pkg/server/flagz/api/v1beta1"
	statusz "k8s.io/apiserver/pkg/server/statusz/api/v1beta1"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/serve"
)

// zpages returns the pages that every Kubernetes component has: /statusz says which
// version has been running since when (KEP-4827), and /flagz shows the value of each flag
// (KEP-4828). Both are text for people, and JSON for clients that ask for an object of the
// same API as other components have.
//
// The handlers in k8s.io/apiserver would add 20 MB to the program.
func zpages(program string, flagSet *flag.FlagSet, clock clock.PassiveClock) []serve.Page {
	started, named := clock.Now(), metav1.ObjectMeta{Name: program}
	status := page{program, statusz.SchemeGroupVersion.WithKind("Statusz"), func(of metav1.TypeMeta) (any, [][2]string) {
		up := clock.Since(started).Truncate(time.Second)
		s := statusz.Statusz{
			TypeMeta:      of,
			ObjectMeta:    named,
			StartTime:     metav1.NewTime(started),
			UptimeSeconds: int64(up.Seconds()),
			GoVersion:     runtime.Version(),
			BinaryVersion: buildVersion(flags.Version().GitVersion),
			Paths:         []string{"/flagz", "/livez", "/metrics", "/readyz", "/statusz"},
		}
		return s, [][2]string{
			{"Started", started.Format(time.UnixDate)},
			{"Up", up.String()},
			{"Go version", s.GoVersion},
			{"Binary version", s.BinaryVersion},
			{"Paths", strings.Join(s.Paths, " ")},
		}
	}}
	values := page{program, flagz.SchemeGroupVersion.WithKind("Flagz"), func(of metav1.TypeMeta) (any, [][2]string) {
		f := flagz.Flagz{TypeMeta: of, ObjectMeta: named, Flags: valuesOf(flagSet)}
		var lines [][2]string
		for _, name := range slices.Sorted(maps.Keys(f.Flags)) {
			lines = append(lines, [2]string{name, f.Flags[name]})
		}
		return f, lines
	}}
	return []serve.Page{{Path: "/statusz", Handler: status}, {Path: "/flagz", Handler: values}}
}

// page is a page about a program, and at the same time an object of a kind.
type page struct {
	program string
	kind    schema.GroupVersionKind
	// content returns the object, and the lines of the text.
	content func(metav1.TypeMeta) (object any, lines [][2]string)
}

// ServeHTTP implements http.Handler.
func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	apiVersion, kind := p.kind.ToAPIVersionAndKind()
	object, lines := p.content(metav1.TypeMeta{APIVersion: apiVersion, Kind: kind})
	if p.isObject(r.Header.Get("Accept")) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object) // there is nobody to tell of an error
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = fmt.Fprintf(w, "%s %s\nThis page is for people: its format may change.\n\n", p.program, strings.ToLower(kind))
	for _, line := range lines {
		_, _ = io.WriteString(w, line[0]+": "+line[1]+"\n")
	}
}

// isObject reports whether a client accepts an object of the page's kind.
func (p page) isObject(accept string) bool {
	return slices.ContainsFunc(strings.Split(accept, ","), func(accepted string) bool {
		mediaType, parameters, err := mime.ParseMediaType(accepted)
		return err == nil && mediaType == "application/json" &&
			parameters["g"] == p.kind.Group && parameters["v"] == p.kind.Version && parameters["as"] == p.kind.Kind
	})
}

// valuesOf returns the values of flags.
func valuesOf(flagSet *flag.FlagSet) map[string]string {
	shown := map[string]string{}
	flagSet.VisitAll(func(f *flag.Flag) { shown[f.Name] = withoutPassword(f.Value.String()) })
	return shown
}

// withoutPassword returns a flag's value without the password that it holds if it is
// a URL such as https://user:password@host.
func withoutPassword(value string) string {
	u, err := url.Parse(value)
	if err != nil || u.User == nil {
		return value
	}
	return u.Redacted()
}

// buildVersion returns what /statusz shows as the version; 0.0 if the build has none.
func buildVersion(text string) string {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return "0.0"
	}
	return v.String()
}
