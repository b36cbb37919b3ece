// Package source is an API server for benchmarks with more objects than a control plane on
// one machine can hold. It has Icecreams, their Deployments and their Pods at rest, as they
// are after a complete rollout, and serves lists and watches of them, and writes, to the
// real programs.
//
// It holds a few samples instead of the objects, and generates each object when it is asked
// for, by replacing digits in an encoded sample. So a million of them cost it nothing but
// the time to send them. Only objects that somebody has changed are held.
//
// It behaves as an API server does in what clients of these programs rely on: resource
// versions, watches that begin with a list and go on from any version, bookmarks, selectors,
// preconditions, generations, and the owners of fields in an apply. It knows nothing of
// authentication, admission, validation, compression, or deletion, and nobody acts on what
// is written: a Deployment that is changed stays in the middle of its rollout.
package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Config says what there is in the cluster.
type Config struct {
	Icecreams int // at most 10,000,000, each with a Deployment
	Pods      int // of each Icecream, at most 250
	Others    int // Deployments that are no Icecream's, each with a Pod; at most 10,000,000
}

// Source is an API server.
type Source struct {
	config      Config
	collections map[schema.GroupVersionResource]*collection
	server      *http.Server
	address     string
	authority   []byte // the certificate, in PEM
	stopped     chan struct{}

	mu       sync.Mutex
	version  int
	changed  chan struct{} // closed at the next change
	requests []Request
	recorded chan struct{} // closed at the next request
}

// Start starts a server on a free port of this machine.
func Start(config Config) (*Source, error) {
	if max(config.Icecreams, config.Others) > 10_000_000 || config.Pods > 250 {
		return nil, fmt.Errorf("too many objects: %+v", config)
	}
	s := &Source{config: config, changed: make(chan struct{}), recorded: make(chan struct{}), stopped: make(chan struct{})}
	if err := s.fill(); err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.address, s.authority = "https://"+socket.Addr().String(), certificate
	s.server = &http.Server{
		Handler:           s.handler(),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that are killed
	}
	go func() {
		if err := s.server.ServeTLS(socket, "", ""); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return s, nil
}

// Close stops the server, and ends all watches.
func (s *Source) Close() error {
	close(s.stopped)
	return s.server.Close()
}

// fill makes the collections.
func (s *Source) fill() error {
	samples, err := newSamples(s.config.Pods)
	if err != nil {
		return err
	}
	var pods []object
	for _, pod := range samples.pods {
		pods = append(pods, pod)
	}
	s.collections, s.version = map[schema.GroupVersionResource]*collection{}, firstVersion
	add := func(resource schema.GroupVersionResource, kind string, all ...series) {
		for i := range all {
			all[i].first = s.version + 1
			s.version += all[i].size()
		}
		s.collections[resource] = &collection{resource: resource, kind: resource.GroupVersion().WithKind(kind), series: all, changed: map[cache.ObjectName]object{}}
	}
	own, others := s.config.Icecreams, s.config.Others
	add(Icecreams, "Icecream", series{samples: []object{samples.icecream}, count: own})
	add(Deployments, "Deployment", series{samples: []object{samples.deployment}, count: own}, series{samples: []object{samples.otherDeployment}, count: others})
	add(Pods, "Pod", series{samples: pods, count: own}, series{samples: []object{samples.otherPod}, count: others})
	add(leases, "Lease")
	return nil
}

// The resources at rest.
var (
	Icecreams   = v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)
	Deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	Pods        = corev1.SchemeGroupVersion.WithResource("pods")
)

// WriteKubeconfig writes a kubeconfig for the server into a directory, and returns its path.
func (s *Source) WriteKubeconfig(dir string) (path string, err error) {
	const name = "source"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.address, CertificateAuthorityData: s.authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path = filepath.Join(dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// Icecream returns the name of an Icecream, and of its Deployment.
func (s *Source) Icecream(number int) cache.ObjectName {
	return s.collections[Icecreams].name(item{0, number})
}

// SetImage changes the image in the spec of an Icecream, as a user would.
func (s *Source) SetImage(name cache.ObjectName, image string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[Icecreams]
	obj, err := s.get(c, name)
	if err != nil {
		return err
	}
	ice := obj.DeepCopyObject().(*v1alpha1.Icecream)
	ice.Spec.Image = image
	ice.Generation++
	s.store(c, watch.Modified, ice)
	return nil
}

// get returns an object, which must not be changed, or an error that says that it does not
// exist. The caller holds the mutex.
func (s *Source) get(c *collection, name cache.ObjectName) (object, error) {
	if obj, ok := c.changed[name]; ok {
		return obj, nil
	}
	if i, ok := c.find(name); ok {
		return c.generate(i)
	}
	return nil, notFound(c, name.Name)
}

// store stores an object under a new resource version. The caller holds the mutex.
func (s *Source) store(c *collection, of watch.EventType, obj object) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	c.changed[cache.MetaObjectToName(obj)] = obj
	c.log = append(c.log, change{of, obj, s.version})
	close(s.changed)
	s.changed = make(chan struct{})
}

// snapshot returns the present state of a collection.
func (s *Source) snapshot(c *collection) snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := snapshot{collection: c, version: s.version, logged: len(c.log), changed: maps.Clone(c.changed), stale: map[item]bool{}}
	for name := range snap.changed {
		if i, ok := c.find(name); ok {
			snap.stale[i] = true
		}
	}
	return snap
}

// since returns the changes of a collection from a place in its log, the resource version
// that they lead to, and a channel that is closed when there may be more.
func (s *Source) since(c *collection, logged int) (changes []change, version int, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.log[logged:], s.version, s.changed
}

// A Request is a request of a client: a watch once its initial events have been sent, any
// other once it has been answered.
type Request struct {
	At          time.Time // when it was received, or a watch had sent its initial events
	Agent       string    // the user agent up to the first slash, such as the name of a program
	Verb        string    // as in an audit log
	Resource    string
	Subresource string
	Name        cache.ObjectName // empty for a list or watch of many
	Code        int
}

// IsWrite reports whether the request is a write that was accepted.
func (r Request) IsWrite() bool {
	return (r.Verb == "create" || r.Verb == "update" || r.Verb == "patch") && r.Code < 300
}

// Requests returns all requests so far.
func (s *Source) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.requests)
}

// Await waits for a request, and returns the first one that matches.
func (s *Source) Await(ctx context.Context, matches func(Request) bool) (Request, error) {
	seen := 0
	for {
		s.mu.Lock()
		requests, recorded := s.requests[seen:], s.recorded
		seen = len(s.requests)
		s.mu.Unlock()
		for _, r := range requests {
			if matches(r) {
				return r, nil
			}
		}
		select {
		case <-recorded:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("waiting for a request: %w", context.Cause(ctx))
		}
	}
}

// record records a request.
func (s *Source) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	close(s.recorded)
	s.recorded = make(chan struct{})
}
