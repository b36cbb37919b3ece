package explore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// system knows what can happen in a state. It is shared by all who search.
type system struct {
	*situations
	setup    Setup
	bounds   Bounds
	server   *apiserver.Server
	programs []int                // of each process
	caches   [][]*informer.Manual // of each program: what they are to contain
	actors   []Actor              // the setup's world, and then its edits

	keysMu sync.RWMutex
	keys   []apiserver.Key
	keyIDs map[apiserver.Key]int32

	played   memo[outcome]
	reads    readsSeen
	answered memo[change]
	acted    memo[[]change]
	rested   memo[string]
	decoded  memo[runtime.Object]
	raw      memo[*unstructured.Unstructured]
}

// memo keeps what was worked out, by a key. It is safe for concurrent use.
type memo[V any] struct {
	mu  sync.RWMutex
	all map[string]V
}

func (m *memo[V]) get(key []byte, work func() (V, error)) (V, error) {
	if v, ok := m.find(key); ok {
		return v, nil
	}
	v, err := work()
	if err == nil {
		m.keep(key, v)
	}
	return v, err
}

func (m *memo[V]) find(key []byte) (v V, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok = m.all[string(key)]
	return v, ok
}

func (m *memo[V]) keep(key []byte, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]V{}
	}
	m.all[string(key)] = v
}

func newSystem(ctx context.Context, setup Setup, bounds Bounds) (*system, error) {
	s := &system{
		situations: newSituations(),
		setup:      setup,
		bounds:     bounds,
		actors:     slices.Concat(setup.World, setup.Edits),
		keyIDs:     map[apiserver.Key]int32{},
	}
	s.isExact = setup.Tick > 0
	s.server = apiserver.New(apiserver.Options{Version: func(n int64) string { return versionText(0, n) }, UID: uidText, Generation: firstGeneration}, setup.Kinds...)
	for i, program := range setup.Programs {
		count := 1
		if program.Elected {
			count = max(1, bounds.Processes)
		}
		for range count {
			s.programs = append(s.programs, i)
		}
		in, err := newInstance(ctx, s, i)
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", program.Name, err)
		}
		s.caches = append(s.caches, in.caches)
	}
	return s, nil
}

func (s *system) horizon() int64 {
	if s.setup.Horizon > 0 {
		return int64(s.setup.Horizon)
	}
	return int64(time.Hour)
}

// key returns the number of a key.
func (s *system) key(key apiserver.Key) int32 {
	s.keysMu.RLock()
	id, ok := s.keyIDs[key]
	s.keysMu.RUnlock()
	if ok {
		return id
	}
	s.keysMu.Lock()
	defer s.keysMu.Unlock()
	if id, ok := s.keyIDs[key]; ok {
		return id
	}
	id = int32(len(s.keys))
	s.keys = append(s.keys, key)
	s.keyIDs[key] = id
	return id
}

func (s *system) keyOf(id int32) apiserver.Key {
	s.keysMu.RLock()
	defer s.keysMu.RUnlock()
	return s.keys[id]
}

// first returns the state in which everything begins: the objects exist, and the processes
// are about to start.
func (s *system) first() (*state, error) {
	w := s.world(apiserver.Store{Objects: map[apiserver.Key]*unstructured.Unstructured{}})
	for _, o := range s.setup.Objects {
		var err error
		if w, err = w.with(o); err != nil {
			return nil, err
		}
	}
	first := &state{left: s.bounds.budget()}
	objects, err := s.objectsOf(w.Store)
	if err != nil {
		return nil, err
	}
	first.objects = objects
	for range s.programs {
		first.processes = append(first.processes, process{next: -1})
	}
	return s.canonical(first), nil
}

// objectsOf returns the objects of a store in order.
func (s *system) objectsOf(store apiserver.Store) ([]object, error) {
	objects := make([]object, 0, len(store.Objects))
	for _, key := range slices.SortedFunc(maps.Keys(store.Objects), compareKeys) {
		o, err := s.objectOf(key, store.Objects[key])
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b object) int { return int(a.key - b.key) })
	return objects, nil
}

func (s *system) objectOf(key apiserver.Key, stored *unstructured.Unstructured) (object, error) {
	raw, err := json.Marshal(stored.Object)
	if err != nil {
		return object{}, err
	}
	return object{s.key(key), s.parse(string(raw), s.class(key.Resource), false)}, nil
}

// unstructured returns an object that is a text.
func (s *system) unstructured(x text) (*unstructured.Unstructured, error) {
	return s.raw.get(exactly(x), func() (*unstructured.Unstructured, error) {
		object := &unstructured.Unstructured{}
		err := object.UnmarshalJSON([]byte(s.render(x)))
		return object, err
	})
}

// typed returns an object as the client of a cache decodes it.
func (s *system) typed(cache *informer.Manual, x text) (runtime.Object, error) {
	example := cache.Example()
	key := append(exactly(x), fmt.Sprintf("%T", example)...)
	return s.decoded.get(key, func() (runtime.Object, error) {
		object := example.DeepCopyObject()
		return object, json.Unmarshal([]byte(s.render(x)), object)
	})
}

// exactly returns a key for a text with these very values.
func exactly(x text) []byte {
	key := binary.AppendUvarint(nil, uint64(x.template))
	for _, value := range x.values {
		key = binary.AppendVarint(key, value)
	}
	return key
}

// class returns the class of a resource.
func (s *system) class(resource schema.GroupResource) class {
	return class(1 + slices.IndexFunc(s.setup.Kinds, func(k apiserver.Kind) bool { return k.Resource.GroupResource() == resource }))
}

// requestText returns a request as a text.
func (s *system) requestText(r apiserver.Request) (text, error) {
	raw, err := json.Marshal(wire{Method: r.Method, Path: r.Path, Query: r.Query.Encode(), ContentType: r.ContentType, UserAgent: r.UserAgent, Body: r.Body})
	_, key, _, _ := s.server.Parse(r)
	return s.parse(string(raw), s.class(key.Resource), false), err
}

// store returns what is stored, with the names of a renaming.
func (s *system) store(c cached, r *renaming) (apiserver.Store, error) {
	store := apiserver.Store{Version: r.top(), UIDs: int64(len(r.uids)), Objects: map[apiserver.Key]*unstructured.Unstructured{}}
	for _, o := range c.objects {
		object, err := s.unstructured(o.text)
		if err != nil {
			return store, err
		}
		store.Objects[s.keyOf(o.key)] = object
	}
	return store, nil
}

// change is what becomes of the stored objects.
type change struct {
	did      string
	ends     []string // programs
	isChange bool
	objects  []object
	events   []resourceEvent
	response text
	wrong    string // what Checks.Stored says
}

// resourceEvent is an event of a resource, and its kind for each cache of each program.
type resourceEvent struct {
	event
	kinds [][]eventKind
}

// names gives a situation canonical names, and returns it as a key.
func (s *system) names(parts ...text) (r *renaming, key []byte) {
	r = &renaming{horizon: s.horizon()}
	for _, part := range parts {
		r.collect(s.get(part.template).gaps, part.values)
	}
	r.settle()
	for _, part := range parts {
		key = r.append(key, s.get(part.template).gaps, part)
	}
	return r, key
}

// renamed returns a text with canonical names.
func (s *system) renamed(r *renaming, x text) text {
	gaps := s.get(x.template).gaps
	values := make([]int64, len(x.values))
	for i, g := range gaps {
		values[i] = r.rename(g, x.values[i])
	}
	return text{x.template, values}
}

// back returns a text with the values that its names stand for.
func (s *system) back(r *renaming, x text, beyond free) text {
	if len(x.values) == 0 {
		return x
	}
	values := make([]int64, len(x.values))
	for i, g := range s.get(x.template).gaps {
		values[i] = r.restore(g, x.values[i], beyond)
	}
	return text{x.template, values}
}

// answerTo returns what the API server makes of a request.
func (s *system) answerTo(st *state, request text, by string) (change, error) {
	sit := s.compose(situation{action: answers, caches: []cached{{objects: st.objects}}, extra: request})
	r, key := s.names(sit)
	key = append(key, by...)
	local, err := s.answered.get(key, func() (change, error) {
		sit := s.decompose(s.renamed(r, sit))
		before, err := s.store(sit.caches[0], r)
		if err != nil {
			return change{}, err
		}
		request, err := parseRequest(s.render(sit.extra))
		if err != nil {
			return change{}, err
		}
		after, response := s.server.Answer(before, now, request)
		made, err := s.changed(before, s.world(before).to(after))
		if err != nil {
			return change{}, err
		}
		body, err := json.Marshal(wire{Code: response.Code, Body: response.Body})
		if err != nil {
			return change{}, fmt.Errorf("the response to %s %s: %w", request.Method, request.Path, err)
		}
		_, target, _, _ := s.server.Parse(request)
		made.response = s.parse(string(body), s.class(target.Resource), false)
		if check := s.setup.Checks.Stored; check != nil && after.Version != before.Version {
			c := Change{By: by, Before: s.world(before), After: s.world(after)}
			c.Verb, c.Key, c.Subresource, _ = s.server.Parse(request)
			made.wrong = message(check(c))
		}
		return made, nil
	})
	if err != nil {
		return local, err
	}
	return s.changeBack(r, local, st), nil
}

// message returns the text of an error, if there is one, with generations as people know
// them.
func message(err error) string {
	if err == nil {
		return ""
	}
	return generations.ReplaceAllStringFunc(err.Error(), plain)
}

var generations = regexp.MustCompile(generationPrefix + `\d{11}`)

// plain returns a generation as people know it; anything else stays as it is.
func plain(raw string) string {
	if _, n, ok := numbered(raw, generationPrefix); ok {
		return strconv.FormatInt(n+1, 10)
	}
	return raw
}

func (s *system) world(store apiserver.Store) World {
	return World{Server: s.server, Store: store, Now: now}
}

// moves returns what an actor can do.
func (s *system) moves(st *state, actor int) ([]change, error) {
	sit := s.compose(situation{action: acts, arg: int64(actor), caches: []cached{{objects: st.objects}}})
	r, key := s.names(sit)
	local, err := s.acted.get(key, func() (all []change, err error) {
		sit := s.decompose(s.renamed(r, sit))
		before, err := s.store(sit.caches[0], r)
		if err != nil {
			return nil, err
		}
		for _, move := range s.actors[actor].Moves(s.world(before)) {
			made, err := s.changed(before, move.After)
			if err != nil {
				return nil, err
			}
			made.did, made.ends = move.Did, move.Ends
			if check := s.setup.Checks.Stored; check != nil {
				made.wrong = message(check(Change{By: s.actors[actor].Name, Before: s.world(before), After: move.After}))
			}
			all = append(all, made)
		}
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	var all []change
	for _, c := range local {
		all = append(all, s.changeBack(r, c, st))
	}
	return all, nil
}

// atRest returns what is wrong with a state in which nothing happens any more.
func (s *system) atRest(st *state) (string, error) {
	if s.setup.Checks.Rest == nil {
		return "", nil
	}
	sit := s.compose(situation{action: acts, arg: -1, caches: []cached{{objects: st.objects}}})
	r, key := s.names(sit)
	return s.rested.get(key, func() (string, error) {
		store, err := s.store(s.decompose(s.renamed(r, sit)).caches[0], r)
		if err != nil {
			return "", err
		}
		return message(s.setup.Checks.Rest(s.world(store))), nil
	})
}

// changed returns the change from a store to a world that has come from it.
func (s *system) changed(before apiserver.Store, after World) (c change, err error) {
	c.isChange = after.Store.Version != before.Version
	if c.objects, err = s.objectsOf(after.Store); err != nil {
		return c, err
	}
	for _, e := range after.events {
		made := resourceEvent{kinds: s.kinds(e)}
		if made.object, err = s.objectOf(e.key, e.Object); err != nil {
			return c, err
		}
		_, made.version, _ = numbered(e.Object.GetResourceVersion(), versionPrefix)
		c.events = append(c.events, made)
	}
	return c, nil
}

// changeBack returns a change with the values of a state.
func (s *system) changeBack(r *renaming, c change, st *state) change {
	beyond := st.free(s.templates)
	back := func(o object) object { return object{o.key, s.back(r, o.text, beyond)} }
	c.objects = slices.Clone(c.objects)
	for i, o := range c.objects {
		c.objects[i] = back(o)
	}
	c.events = slices.Clone(c.events)
	for i, e := range c.events {
		e.object = back(e.object)
		e.version = r.restore(gap{versionGap, s.class(s.keyOf(e.object.key).Resource)}, e.version, beyond)
		c.events[i] = e
	}
	c.response = s.back(r, c.response, beyond)
	return c
}

// apply makes a change in a state, which must be a copy: it replaces what is stored, and each
// watch of what has changed will deliver that. It does so at once to a process that waits for
// another one to end: its caches matter only when it begins to lead, and by then they have caught
// up with what the other one has written. A process that is alone need not wait for that.
func (s *system) apply(st *state, c change) {
	st.objects = c.objects
	for _, e := range c.events {
		for i := range st.processes {
			p := &st.processes[i]
			for j := range p.caches {
				c, seen := &p.caches[j], e.event
				seen.kind = e.kinds[s.programs[i]][j]
				switch {
				case seen.kind == filtered:
				case p.phase == standby && !s.isAlone(i):
					*c = c.after(seen)
				default:
					c.unseen = append(slices.Clip(c.unseen), seen)
				}
			}
		}
	}
}

// isAlone reports whether no other process runs the same program.
func (s *system) isAlone(process int) bool {
	for i, program := range s.programs {
		if i != process && program == s.programs[process] {
			return false
		}
	}
	return true
}

// kinds returns the kind of an event for each cache of each program.
func (s *system) kinds(e worldEvent) (kinds [][]eventKind) {
	for _, caches := range s.caches {
		of := make([]eventKind, len(caches))
		for i, cache := range caches {
			of[i] = kindFor(cache, e)
		}
		kinds = append(kinds, of)
	}
	return kinds
}

// kindFor returns the kind of an event for a cache: an object is added to it when it begins
// to match, and deleted when it no longer does.
func kindFor(cache *informer.Manual, e worldEvent) eventKind {
	if cache.Resource().GroupResource() != e.key.Resource {
		return filtered
	}
	was := e.Type != watch.Added && cache.Matches(e.previous)
	is := e.Type != watch.Deleted && cache.Matches(e.Object)
	switch {
	case was && is:
		return modified
	case was:
		return deleted
	case is:
		return added
	default:
		return filtered
	}
}

// listed returns what a list for a cache has.
func (s *system) listed(st *state, cache *informer.Manual) (cached, error) {
	resource := cache.Resource().GroupResource()
	c := cached{class: s.class(resource), version: st.free(s.templates).version}
	for _, o := range st.objects {
		if s.keyOf(o.key).Resource != resource {
			continue
		}
		stored, err := s.unstructured(o.text)
		if err != nil {
			return c, err
		}
		if cache.Matches(stored) {
			c.objects = append(c.objects, o)
		}
	}
	return c, nil
}

// parseRequest is the inverse of readRequest.
func parseRequest(raw string) (apiserver.Request, error) {
	var w wire
	if err := json.Unmarshal([]byte(raw), &w); err != nil {
		return apiserver.Request{}, err
	}
	query, err := url.ParseQuery(w.Query)
	return apiserver.Request{Method: w.Method, Path: w.Path, Query: query, ContentType: w.ContentType, UserAgent: w.UserAgent, Body: w.Body}, err
}

// The refusals that a server may answer with.
var refused = []metav1.Status{
	{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
	{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid},
	{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 1}},
	{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError},
}

// refusal returns the response with one of them. It has no header Retry-After, because
// client-go's client would then wait for that time itself.
func (s *system) refusal(i int) (text, error) {
	status := refused[i]
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status, status.Message = metav1.StatusFailure, "refused"
	body, err := json.Marshal(status)
	if err != nil {
		return text{}, err
	}
	raw, err := json.Marshal(wire{Code: int(status.Code), Body: body})
	return s.parse(string(raw), 0, false), err
}

func (s *system) lost() (text, error) {
	raw, err := json.Marshal(wire{Lost: true})
	return s.parse(string(raw), 0, false), err
}
