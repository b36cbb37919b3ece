package explore

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Setup is what is explored: programs, and the world around them.
type Setup struct {
	// Kinds are the resources of the API server.
	Kinds []apiserver.Kind
	// Objects exist at the beginning.
	Objects []Object
	// Programs run, each in a process or more.
	Programs []Program
	// World are those that act on objects by themselves, such as Kubernetes' own
	// controllers. What they can do, they do at some time.
	World []Actor
	// Edits are what people may do. Each of their moves is one of [Bounds].Edits.
	Edits []Actor
	// Checks say what is wrong.
	Checks Checks
	// Requests is how many requests the programs may send if nothing goes wrong and nobody
	// edits anything; 0 is any number. It also finds a storm that changes something every
	// time. It is checked by a search without bounds.
	Requests int
	// Settles is how soon everything is right once nothing else can happen: Rest is also called
	// for a state in which nothing but time changes anything, for longer than that. Without it,
	// whatever a program does from time to time hides the events that it misses. It is checked
	// by a search in which no request fails; 0 is any time.
	Settles time.Duration
	// Tick makes time pass in multiples of it, and times in API objects exact: without it,
	// only their order matters. It must be whole seconds. A program that compares these times
	// with its clock needs it. What is due within one Tick is due at the same time, and a
	// long Tick has few states.
	Tick time.Duration
	// Horizon is how far the past matters to the programs: they must treat everything
	// that was longer ago alike. 0 is an hour.
	Horizon time.Duration
}

// Object is an object that somebody has made.
type Object struct {
	Manager string
	Object  runtime.Object
	// UID is the UID that the object gets. States in which other UIDs differ count as equal,
	// so an object whose UID a program hashes must have one here.
	UID types.UID
}

// Program is a controller that runs in one process, or in several of which one leads.
type Program struct {
	Name string
	// Elected programs run in [Bounds].Processes processes, of which one leads.
	Elected bool
	// Waits is true of a program whose syncs wait for more than responses. Only such a sync may
	// read again what it has read.
	Waits bool
	// New makes the controller, as [manager.Descriptor].New does.
	New func(manager.Dependencies) (Instance, error)
}

// Actor is somebody who changes objects. Moves returns all that it can do next. It must
// depend on the world alone.
type Actor struct {
	Name  string
	Moves func(World) []Move
}

// Move is a change of the stored objects.
type Move struct {
	// Did says what happens, to follow the actor's name: "scales the Deployment to 2".
	Did string
	// After is the world after it: what Create, Update and Delete made of the one before.
	After World
	// Ends names the programs whose processes end by it, as in a crash.
	Ends []string
}

// World is what the API server has stored.
type World struct {
	Server *apiserver.Server
	Store  apiserver.Store
	Now    time.Time

	events []worldEvent // since the beginning of the move
}

// worldEvent is an event of the watches of a resource.
type worldEvent struct {
	apiserver.Event
	key      apiserver.Key
	previous *unstructured.Unstructured
}

// to returns the world with another store, after one change.
func (w World) to(after apiserver.Store) World {
	var resources []schema.GroupResource
	for _, store := range []apiserver.Store{w.Store, after} {
		for _, key := range slices.SortedFunc(maps.Keys(store.Objects), compareKeys) {
			if !slices.Contains(resources, key.Resource) {
				resources = append(resources, key.Resource)
			}
		}
	}
	w.events = slices.Clip(w.events)
	for _, resource := range resources {
		for _, e := range apiserver.Events(w.Store, after, resource) {
			key := apiserver.Key{Resource: resource, Namespace: e.Object.GetNamespace(), Name: e.Object.GetName()}
			w.events = append(w.events, worldEvent{e, key, w.Store.Objects[key]})
		}
	}
	w.Store = after
	return w
}

// Object returns an object, or nil if there is none. It must not be changed.
func (w World) Object(resource schema.GroupResource, namespace, name string) *unstructured.Unstructured {
	return w.Store.Objects[apiserver.Key{Resource: resource, Namespace: namespace, Name: name}]
}

// Checks are asked about everything that happens. They must depend on their arguments alone,
// and must not change them: each is asked once for what looks the same. A nil function finds
// nothing wrong.
type Checks struct {
	// Sent is called for each request that a program sends.
	Sent func(Sent) error
	// Stored is called for each change of the stored objects.
	Stored func(Change) error
	// Rest is called for each state in which nothing can happen by itself any more, or not for
	// longer than [Setup].Settles.
	Rest func(World) error
}

// Sent is a request that a program sends.
type Sent struct {
	// Syncing is the object whose sync sends the request.
	Syncing cache.ObjectName
	// IsBehind says that when the sync began, the caches did not show all changes that the
	// process had made in syncs of the object, as the responses had told it.
	IsBehind    bool
	Verb        string // get, list, create, update, patch, apply or delete
	Key         apiserver.Key
	Subresource string
	Body        []byte
	// Caches are what the caches had when the sync began, and Answers the responses since.
	Caches  []*unstructured.Unstructured
	Answers []*unstructured.Unstructured
}

// Change is a change of the stored objects.
type Change struct {
	// By is the program or the actor whose change it is.
	By string
	// Verb, Key and Subresource are those of the program's request.
	Verb, Subresource string
	Key               apiserver.Key
	Before, After     World
}
