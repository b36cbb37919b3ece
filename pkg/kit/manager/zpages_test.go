package manager

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

func TestZPages(t *testing.T) {
	flavor := ""
	o, err := shop(&flavor).parse([]string{"-workers=3", "-master=https://admin:hunter2@parlor.example", "-cone-flavor=mint"})
	if err != nil {
		t.Fatal(err)
	}
	const asJSON = "application/json;g=config.k8s.io;v=v1beta1;as="
	for _, tt := range []struct {
		name, path, accept string
		want               []string
	}{
		{"the version, as text", "/statusz", "", []string{"shop statusz", "Started", "Go version", "Binary version", "/flagz /livez /metrics /readyz /statusz"}},
		{"the version, for a browser", "/statusz", "text/html,*/*;q=0.8", []string{"shop statusz"}},
		{"the version, as an object", "/statusz", asJSON + "Statusz", []string{`"kind":"Statusz"`, `"name":"shop"`, `"startTime":"20`}},
		{"the flags, as text", "/flagz", "", []string{"shop flagz", "\nworkers", "cone-flavor", "mint", "leader-elect-lease-duration", "\nv"}},
		{"the flags, as an object", "/flagz", asJSON + "Flagz", []string{`"kind":"Flagz"`, `"workers":"3"`, `"cone-flavor":"mint"`, `"kubeconfig":""`, `"master":"https://admin:xxxxx@parlor.example"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			for _, page := range zpages("shop", o.flags, clock.RealClock{}) {
				mux.Handle(page.Path, page.Handler)
			}
			server := httptest.NewServer(mux)
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+tt.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Accept", tt.accept)
			answer, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			var body strings.Builder
			if err := answer.Write(&body); err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != http.StatusOK {
				t.Errorf("status %d", answer.StatusCode)
			}
			for _, want := range tt.want {
				if !strings.Contains(body.String(), want) {
					t.Errorf("%q is missing", want)
				}
			}
			if strings.Contains(body.String(), "hunter2") {
				t.Error("the password is shown")
			}
			if t.Failed() {
				t.Log(body.String())
			}
		})
	}
}

func TestBuildVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v1.2.3":                             "1.2.3",
		"v1.2.3-4-g0123abc":                  "1.2.3-4-g0123abc",
		"v0.0.0-20261122054444-6561fb3a1b2c": "0.0.0-20261122054444-6561fb3a1b2c",
		"v0.0.0-master+$Format:%H$":          "0.0",
		"(devel)":                            "0.0",
		"6561fb3":                            "0.0",
		"":                                   "0.0",
		"v0.0.0-20261122054444-6561fb3a1b2c+dirty": "0.0.0-20261122054444-6561fb3a1b2c+dirty",
	} {
		if got := buildVersion(text); got != want {
			t.Errorf("of %q: %s, want %s", text, got, want)
		}
	}
}
