package source

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// handleDiscovery adds the paths by which clients find out what there is, in the form that
// is not aggregated, which all of them understand.
func (s *Source) handleDiscovery(mux *http.ServeMux) {
	versions := map[schema.GroupVersion]*metav1.APIResourceList{}
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, c := range s.collections {
		version := c.resource.GroupVersion()
		if versions[version] == nil {
			versions[version] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: version.String()}
			if version.Group != "" {
				only := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
				group := metav1.APIGroup{Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{only}, PreferredVersion: only}
				groups.Groups = append(groups.Groups, group)
				group.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
				mux.Handle("GET /apis/"+version.Group, asJSON(&group))
			}
		}
		versions[version].APIResources = append(versions[version].APIResources,
			metav1.APIResource{Name: c.resource.Resource, Kind: c.kind.Kind, Namespaced: true, Verbs: metav1.Verbs{"create", "get", "list", "patch", "update", "watch"}},
			metav1.APIResource{Name: c.resource.Resource + "/status", Kind: c.kind.Kind, Namespaced: true, Verbs: metav1.Verbs{"patch", "update"}})
	}
	mux.Handle("GET /api", asJSON(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIVersions"}, Versions: []string{"v1"}}))
	mux.Handle("GET /apis", asJSON(groups))
	for version, list := range versions {
		path := "GET /apis/" + version.String()
		if version.Group == "" {
			path = "GET /api/" + version.Version
		}
		mux.Handle(path, asJSON(list))
	}
}

// asJSON returns a handler that always responds with the object.
func asJSON(obj runtime.Object) http.Handler {
	body, err := json.Marshal(obj)
	if err != nil {
		panic(err) // these types can be marshaled
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = w.Write(body)
	})
}
