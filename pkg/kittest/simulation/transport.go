package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// The kinds of faults of a request.
const (
	slow         = "slow"
	lostRequest  = "lost request"
	lostResponse = "lost response"
	late         = "late request"
	tooMany      = "429"
	invalid      = "422"
	internal     = "500"
	unavailable  = "503"
	timedOut     = "504"
	beforeWrite  = "interference before a write"
	afterRead    = "interference after a read"
	beforeEvent  = "interference before an event"
	killed       = "killed during a write"
	suspended    = "suspended during a request"
	slowWatch    = "slow watch"
	cutWatch     = "cut watch"
	staleList    = "stale list"
)

var faultKinds = []string{
	slow, lostRequest, lostResponse, late, tooMany, invalid, internal, unavailable, timedOut,
	beforeWrite, afterRead, beforeEvent, killed, suspended, slowWatch, cutWatch, staleList,
}

// How long a request or response takes, and one that is slow.
const (
	quickest, quick = 200 * time.Microsecond, 12 * time.Millisecond
	slowest         = 4 * time.Second
	latest          = 15 * time.Second
)

var errCut = fmt.Errorf("the connection was cut: %w", syscall.ECONNRESET)

// call is a request on its way.
type call struct {
	*Process
	request     apiserver.Request
	verb        string
	key         apiserver.Key
	subresource string
	isWatch     bool
	name        string // of the request, for the trace and for what can be dropped
	draw        *rand.Rand
	fault       string
	decided     time.Time
	sent        int64                       // what was stored then
	looked      map[apiserver.Key]knowledge // what the process had read before
	isUnsent    bool                        // A suspended process sends nothing, whatever its timers say.
}

// RoundTrip implements http.RoundTripper.
func (p *Process) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := apiserver.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	c := &call{Process: p, request: request}
	c.isWatch = request.Query.Get("watch") != ""
	p.history.locked(c.begin)
	response, err := c.send(r)
	p.sleepWhileSuspended(c.name)
	p.history.locked(func() { c.isOver(response, err) })
	return response, err
}

// send takes the request to the API server, and the response back.
func (c *call) send(r *http.Request) (*http.Response, error) {
	ctx, p, h := r.Context(), c.Process, c.history
	if c.isUnsent {
		return nil, errCut
	}
	if trouble, isGone := c.trouble(); isGone || trouble > 0 {
		sleep(ctx, max(trouble, time.Second))
		return nil, errCut
	}
	if !sleep(ctx, c.delay()) && c.draw.IntN(2) == 0 {
		return nil, ctx.Err()
	}
	if c.fault == lostRequest {
		sleep(ctx, durationBetween(c.draw, time.Millisecond, 10*time.Second))
		return nil, errCut
	}
	if c.fault == late { // than its sender has waited for it
		if c.draw.IntN(4) == 0 { // A process that is told to stop then gives up its Lease too early, if it does not know that.
			h.locked(func() { h.Note("%s is told to stop", p.Name) })
			p.cancel()
		}
		go func() {
			sleep(context.WithoutCancel(ctx), durationBetween(c.draw, time.Second, latest))
			h.locked(func() { c.arrive() })
		}()
		sleep(ctx, durationBetween(h.Draw(c.name), time.Millisecond, 5*time.Second))
		return nil, errCut
	}
	if c.isWatch {
		return c.watch(ctx, r)
	}
	var response apiserver.Response
	h.locked(func() {
		response = c.arrive()
		if c.fault == suspended {
			p.suspendedUntil = time.Now().Add(durationBetween(c.draw, time.Minute, 100*time.Second))
		}
	})

	isInTime := sleep(ctx, c.delay())
	if c.fault == killed {
		h.locked(p.die)
		p.cancel()
	}
	if c.fault == lostResponse {
		sleep(ctx, durationBetween(c.draw, time.Millisecond, 10*time.Second))
		return nil, errCut
	}
	if !isInTime {
		return nil, ctx.Err()
	}
	if _, isGone := c.trouble(); isGone {
		return nil, errCut
	}
	h.locked(func() { c.end(response) })
	return response.HTTP(r), nil
}

// trouble returns for how long the process reaches nothing, and whether it is dead.
func (c *call) trouble() (frozen time.Duration, isDead bool) {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	frozen = time.Until(c.frozenUntil)
	if c.key.Resource.Resource == "leases" {
		frozen = max(frozen, time.Until(c.leaseCutUntil))
	}
	return frozen, c.isDead
}

// begin reads what the request is about, and draws what happens to it.
func (c *call) begin() {
	h := c.history
	read := c.request
	if c.isWatch {
		read.Query = nil // The model knows no watches.
	}
	verb, key, subresource, ok := h.server.Parse(read)
	if !ok {
		h.Note("%s sends what the model does not know: %s %s", c.Name, c.request.Method, c.request.Path)
	}
	c.verb, c.key, c.subresource = verb, key, subresource
	c.sent = h.Store.Version
	what := c.request.Method + " " + c.request.Path
	switch {
	case c.isWatch:
		what = "WATCH " + c.request.Path
	case verb == "create": // Two at the same time come in any order.
		what += "/" + key.Name
	}
	c.requests[what]++
	n := c.requests[what]
	c.name = fmt.Sprintf("%s %s #%d", c.Name, what, n)
	if version := versionOf(c.request.Query.Get("resourceVersion")); c.isWatch && !c.isList() && version > 0 {
		c.learn(c.cache(), version) // by the list before, or by the watch before
	}
	c.isUnsent = time.Now().Before(c.suspendedUntil)
	c.draw = h.Draw(c.Name, what, strconv.Itoa(n))
	c.fault = c.drawFault()
	h.result.counts["requests"]++
	if key.Resource.Resource == "events" {
		h.Said = append(h.Said, c.request.Body)
		h.checkHidden("an event", c.request.Body)
	}
	h.checkHidden("the log", logged.take())
	if c.isWatch || c.isAside() {
		return
	}
	// Thinking takes no time here, so whoever sends a request has decided on it after the
	// process last did nothing for a while.
	if now := time.Now(); c.inFlight == 0 && now.After(c.busyUntil) {
		c.busySince = now
	}
	c.inFlight++
	c.decided = c.busySince
	if c.request.Method != http.MethodGet {
		c.looked = maps.Clone(c.read)
	}
}

// isOver is when the process stops waiting for a response. If the request has failed, client-go
// may repeat it some seconds later, and nobody decides anew then.
func (c *call) isOver(response *http.Response, err error) {
	if c.isWatch || c.isAside() {
		return
	}
	c.inFlight--
	until := time.Now()
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		until = until.Add(4 * time.Second)
	}
	if until.After(c.busyUntil) {
		c.busyUntil = until
	}
}

// drawFault draws the fault of a request; empty if there is none.
func (c *call) drawFault() string {
	h := c.history
	var possible []string
	for _, kind := range faultKinds {
		if h.weather.kinds[kind] && c.canHave(kind) {
			possible = append(possible, kind)
		}
	}
	chance, kind := c.draw.Float64(), Pick(c.draw, possible)
	if rare := Pick(c.draw, []string{beforeWrite, afterRead, staleList, ""}); slices.Contains(possible, rare) {
		kind = rare // which finds most, and is seldom possible
	}
	if c.verb == "delete" || c.canHave(staleList) { // which are rarer still
		chance /= 3
	}
	if h.weather.isCalm || h.isQuiet || chance > h.weather.rate || h.dropped[c.name] {
		return ""
	}
	switch kind {
	case "", beforeWrite, afterRead, staleList: // which note what they do
	default:
		h.happened(kind, c.name, kind)
	}
	return kind
}

// canHave reports whether a fault makes sense for the request.
func (c *call) canHave(kind string) bool {
	switch kind {
	case beforeWrite, killed, late, invalid:
		return c.request.Method != http.MethodGet && !c.isAside()
	case suspended: // at the worst of times, and once: others take over meanwhile
		return c.history.weather.hasElection && c.verb != "list" && !c.isWatch && !c.isAside() && c.suspendedUntil.IsZero()
	case beforeEvent: // See [watch.read].
		return false
	case afterRead:
		return c.verb == "get" && !c.isAside()
	case slowWatch, cutWatch:
		return c.isWatch
	case staleList:
		return c.isList() && c.request.Query.Get("resourceVersion") != ""
	default:
		return true
	}
}

// isList reports whether the request is for a list, which a watch can send, too.
func (c *call) isList() bool {
	return !c.isWatch && c.verb == "list" || c.isWatch && c.request.Query.Get("sendInitialEvents") == "true"
}

// listed returns what a list shows: what is stored now, or, if the list is stale, at some time
// since the version that the client asks for.
func (c *call) listed() apiserver.Store {
	h := c.history
	if c.fault != staleList {
		return h.Store
	}
	least := max(h.compacted, versionOf(c.request.Query.Get("resourceVersion")))
	since := slices.DeleteFunc(slices.Clone(h.states), func(s state) bool { return s.store.Version < least })
	store := Pick(c.draw, append(since, state{store: h.Store})).store
	h.happened(c.fault, c.name, fmt.Sprintf("a list of version %d, when there is %d", store.Version, h.Store.Version))
	return store
}

// isAside reports whether the request is about what is not the program's work.
func (c *call) isAside() bool {
	return c.key.Resource.Resource == "events" || c.key.Resource.Resource == "leases"
}

// delay draws how long a request or a response takes.
func (c *call) delay() time.Duration {
	d := durationBetween(c.draw, quickest, quick)
	if c.fault == slow {
		d = durationBetween(c.draw, quick, slowest)
	}
	return d
}

// arrive is when the request reaches the API server. The caller holds mu.
func (c *call) arrive() apiserver.Response {
	h := c.history
	switch c.fault {
	case tooMany:
		err := apierrors.NewTooManyRequests("too many requests, please try again later", 1+c.draw.IntN(3))
		return apiserver.Refuse(err)
	case invalid:
		return apiserver.Refuse(apierrors.NewInvalid(schema.GroupKind{Group: c.key.Resource.Group, Kind: c.key.Resource.Resource}, c.key.Name,
			field.ErrorList{field.Forbidden(field.NewPath("spec"), "not today")}))
	case internal:
		return apiserver.Refuse(apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
	case unavailable:
		return apiserver.Refuse(apierrors.NewServiceUnavailable("the server is shutting down"))
	case timedOut:
		if c.isWatch || c.draw.IntN(2) == 0 {
			return timeout
		}
	case beforeWrite:
		c.interfere()
	}
	x := Exchange{
		Process: c.Process, Verb: c.verb, Key: c.key, Subresource: c.subresource,
		Decided: c.decided, IsLate: c.fault == late, sent: c.sent, looked: c.looked, Request: c.request, Before: h.Store, After: h.Store,
	}
	if h.server.Creates(h.Store, c.request) {
		x.Verb = "create" // also by an apply
	}
	x.Response = c.answer(&x)
	if x.IsWrite() {
		h.result.counts["writes"]++
	}
	if c.verb == "get" || c.verb == "list" {
		c.read[c.key] = knowledge{time.Now(), h.Store.Version}
	}
	if x.IsWrite() || c.request.Method != http.MethodGet {
		h.Note("%s: %s %s %s: %d%s", c.Name, c.verb, Describe(c.key), c.subresource, x.Response.Code, c.knowledge())
	}
	h.check(x)
	switch c.fault {
	case afterRead:
		c.interfere()
	case timedOut: // The client cannot know that it was carried out.
		return timeout
	}
	return x.Response
}

var timeout = apiserver.Refuse(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))

// interfere has somebody act on the object of the request.
func (c *call) interfere() {
	h := c.history
	if what := h.world.Interfere(c.draw, c.verb, c.key); what != "" {
		h.happened(c.fault, c.name, c.fault+": "+what)
	}
}

// answer has the model answer the request.
func (c *call) answer(x *Exchange) apiserver.Response {
	h := c.history
	isWrite := c.request.Method != http.MethodGet
	store, request := c.listed(), c.request
	if c.verb == "list" {
		query := request.Query
		query.Del("limit")
		request.Query = query
	}
	h.isAsked = true
	after, response := h.server.Answer(store, time.Now(), request)
	h.isAsked = false
	if isWrite && after.Version != store.Version {
		h.commit(after)
		x.After = after
	}
	if value := h.Hidden(request.Body); isWrite && value != nil {
		response.Warning = fmt.Sprintf("an admission policy has seen %s", value)
	}
	return response
}

// end is when the response reaches the process.
func (c *call) end(response apiserver.Response) {
	if response.Code >= http.StatusBadRequest || c.request.Method == http.MethodGet || c.verb == "delete" {
		return
	}
	var obj struct{ Metadata metav1.ObjectMeta }
	if json.Unmarshal(response.Body, &obj) == nil {
		c.acknowledged[c.key] = obj.Metadata.ResourceVersion
	}
}

// cache returns the cache that a watch is for.
func (c *call) cache() cacheOf {
	return cacheOf{c.key.Resource.Resource, c.request.Query.Get("labelSelector")}
}

// knowledge says what the process's caches show.
func (p *Process) knowledge() string {
	var words []string
	for of, all := range p.knows {
		words = append(words, fmt.Sprintf("%s %d", strings.TrimSpace(of.resource+" "+of.labels), all[len(all)-1].version))
	}
	slices.Sort(words)
	return fmt.Sprintf(", version %d; it knew %s", p.history.Store.Version, strings.Join(words, ", "))
}

// check is what is checked of every request, whatever the world.
func (h *History) check(x Exchange) {
	isDenied := bytes.Contains(x.Response.Body, []byte("admission webhook")) || // with any code
		bytes.Contains(x.Response.Body, []byte(" denied request: ")) || // a policy
		bytes.Contains(x.Response.Body, []byte(metav1.CauseTypeFieldManagerConflict)) // by other managers, whenever they wrote
	if code := x.Response.Code; !isDenied && (code == http.StatusConflict || code == http.StatusUnprocessableEntity) {
		stored := x.Before.Objects[x.Key]
		if stored != nil && x.Process.acknowledged[x.Key] == stored.GetResourceVersion() && x.Verb != "create" && !x.IsLate {
			h.Fail("own conflict", "%s: %s %s conflicts with its own write, which the API server has acknowledged with version %s: %s",
				x.Process.Name, x.Verb, Describe(x.Key), stored.GetResourceVersion(), x.Response.Body)
		}
	}
	if x.Response.Code == http.StatusNotImplemented || x.Response.Code == http.StatusMethodNotAllowed {
		h.Fail("simulation", "the model does not know %s %s: %s", x.Request.Method, x.Request.Path, x.Response.Body)
	}
	if h.isAtRest && x.Request.Method != http.MethodGet && x.Key.Name != Lease {
		h.Fail("rest", "%s sends %s %s, although nothing has happened for minutes", x.Process.Name, x.Verb, Describe(x.Key))
	}
	switch holder := h.leader(); {
	case holder == "" || x.Request.Method == http.MethodGet || x.Key.Resource.Resource == "events":
	case x.Key.Name != Lease && holder != x.Process.identity: // whether or not a precondition saves it
		h.Fail("leader", "%s: %s %s arrives, but another process leads", x.Process.Name, x.Verb, Describe(x.Key))
	case x.Key.Name == Lease && x.IsWrite():
		x.Process.identity = holder
	}
	h.world.Check(x)
}

// Lease is the name of the Lease for the election.
const Lease = "election"

// leader returns who holds the Lease.
func (h *History) leader() string {
	for key, obj := range h.Store.Objects {
		if key.Resource.Resource == "leases" && key.Name == Lease {
			holder, _, _ := unstructured.NestedString(obj.Object, "spec", "holderIdentity")
			return holder
		}
	}
	return ""
}

func encode(content any) []byte {
	encoded, err := json.Marshal(content)
	if err != nil {
		panic(err) // There is nothing in a Kubernetes object that cannot be encoded.
	}
	return encoded
}

func versionOf(text string) int64 {
	version, _ := strconv.ParseInt(text, 10, 64) // Zero if there is none.
	return version
}

// Describe names an object in words.
func Describe(key apiserver.Key) string { return key.String() }

// sleep returns false if ctx ends before the time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
