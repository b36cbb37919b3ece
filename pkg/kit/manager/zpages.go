package manager

import (
	"flag"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/serve"
)

// zpages returns the pages that every Kubernetes component has: /statusz says which
// version has been running since when, and /flagz shows the value of each flag.
func zpages(program string, flagSet *flag.FlagSet) []serve.Page {
	var pages pages
	paths := []string{"/flagz", "/livez", "/metrics", "/readyz", "/statusz"}
	statusz.Install(&pages, program, statusz.NewRegistry(buildVersion(flags.Version().GitVersion), statusz.WithListedPaths(paths)))
	flagz.Install(&pages, program, values{flagSet})
	return pages
}

// pages collects what is installed into it.
type pages []serve.Page

// Handle implements what the two Install functions need of a mux.
func (p *pages) Handle(path string, page http.Handler) {
	*p = append(*p, serve.Page{Path: path, Handler: page})
}

// values are the values of flags.
type values struct{ *flag.FlagSet }

// GetFlagz implements flagz.Reader.
func (v values) GetFlagz() map[string]string {
	shown := map[string]string{}
	v.VisitAll(func(f *flag.Flag) { shown[f.Name] = withoutPassword(f.Value.String()) })
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
// component-base's own would panic where the build has no number, as with "(devel)".
func buildVersion(text string) compatibility.EffectiveVersion {
	v, err := version.ParseSemantic(text)
	if err != nil {
		v = version.MajorMinor(0, 0)
	}
	return built{version: v}
}

// built is a version of a program that emulates no other.
type built struct {
	compatibility.EffectiveVersion // the rest of the interface, which /statusz does not use
	version                        *version.Version
}

// BinaryVersion implements compatibility.EffectiveVersion.
func (b built) BinaryVersion() *version.Version { return b.version }

// EmulationVersion implements compatibility.EffectiveVersion.
func (built) EmulationVersion() *version.Version { return nil }
