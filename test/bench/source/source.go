// Package source is an API server for a benchmark with more objects than a control plane on
// one machine can hold. It serves Icecreams, their Deployments and their Pods as they are
// after a complete rollout, when there is nothing to do.
//
// It holds an encoded sample instead of the objects of a kind, and makes each object from it
// by replacing digits. So it takes little of the time and memory of the programs that are
// measured next to it.
//
// It serves only what these programs ask for: discovery, and watches that begin with all
// objects. A list tells only that it is allowed, and everything else is refused. Built-in
// kinds are always sent as protobuf, and Icecreams as JSON. Selectors match all objects.
package source

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Source is an API server.
type Source struct {
	server      *httptest.Server
	collections []*collection
	icecreams   int

	mu      sync.Mutex
	sent    map[string]bool // whether all objects of a resource have been sent
	refused []string
}

// Start starts a server on a free port of this machine, with that many Icecreams, at most
// 100,000, and that many Pods of each, at most 40.
func Start(icecreams, pods int) (*Source, error) {
	samples, err := newSamples(pods)
	if err != nil {
		return nil, err
	}
	s := &Source{icecreams: icecreams, sent: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.refuse)
	for _, of := range [][]object{{samples.icecream}, {samples.deployment}, samples.pods} {
		c, err := newCollection(of)
		if err != nil {
			return nil, err
		}
		s.collections = append(s.collections, c)
		mux.HandleFunc("GET "+c.path(), func(w http.ResponseWriter, r *http.Request) { s.read(w, r, c) })
	}
	mux.HandleFunc("GET /api", s.discover)
	mux.HandleFunc("GET /apis", s.discover)
	s.server = httptest.NewUnstartedServer(mux)
	s.server.EnableHTTP2 = true
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that are killed
	s.server.StartTLS()
	return s, nil
}

// Close stops the server, and ends all watches.
func (s *Source) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// WriteKubeconfig writes a kubeconfig for the server into a directory, and returns its path.
func (s *Source) WriteKubeconfig(dir string) (path string, err error) {
	const name = "source"
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.server.URL, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path = filepath.Join(dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// IsSent reports whether all objects of each resource have been sent to a client.
func (s *Source) IsSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent) == len(s.collections)
}

// Refused returns the methods and paths of the requests that were refused so far.
func (s *Source) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

func (s *Source) refuse(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.refused = append(s.refused, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	http.Error(w, "everything is at rest", http.StatusForbidden)
}

// read serves a watch until the client closes it, or says that the client may list.
func (s *Source) read(w http.ResponseWriter, r *http.Request, c *collection) {
	query := r.URL.Query()
	switch {
	case query.Get("watch") != "true" && query.Get("watch") != "1":
		if query.Get("limit") != "1" {
			s.refuse(w, r) // a list without objects would be a lie
			return
		}
		respond(w, runtime.ContentTypeJSON, &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		})
		return
	case query.Get("sendInitialEvents") == "true":
		w.Header().Set("Content-Type", c.watchType())
		if c.writeAll(w, s.icecreams) != nil {
			return // the client is gone
		}
		s.mu.Lock()
		s.sent[c.resource.Resource] = true
		s.mu.Unlock()
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// discover tells which resources there are, in the aggregated form.
func (s *Source) discover(w http.ResponseWriter, r *http.Request) {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{APIVersion: apidiscoveryv2.SchemeGroupVersion.String(), Kind: "APIGroupDiscoveryList"},
	}
	for _, c := range s.collections {
		if isCore := c.kind.Group == ""; isCore != (r.URL.Path == "/api") {
			continue
		}
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: c.kind.Group},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{
				Version: c.kind.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
				Resources: []apidiscoveryv2.APIResourceDiscovery{{
					Resource:     c.resource.Resource,
					ResponseKind: &metav1.GroupVersionKind{Group: c.kind.Group, Version: c.kind.Version, Kind: c.kind.Kind},
					Scope:        apidiscoveryv2.ScopeNamespace,
					Verbs:        []string{"list", "watch"},
				}},
			}},
		})
	}
	respond(w, discovery.AcceptV2, list)
}

// respond sends an object as JSON. A client that is gone need not be told of an error.
func respond(w http.ResponseWriter, contentType string, obj runtime.Object) {
	w.Header().Set("Content-Type", contentType)
	_ = json.NewEncoder(w).Encode(obj)
}
