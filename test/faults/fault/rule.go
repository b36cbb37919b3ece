package fault

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// A Request is what rules know of a request.
type Request struct {
	// Verb is the verb as in an audit log, such as "list", "watch" or "patch". For a path
	// that is not that of a resource it is the HTTP method in lower case.
	Verb string
	// Resource is the resource, with its subresource if there is one, such as
	// "deployments/status". It is empty for a path that is not that of a resource.
	Resource  string
	Namespace string
	Name      string // empty for a request about many objects, and for a creation
}

// String returns the request as one line of text.
func (r Request) String() string {
	return strings.Join(slices.DeleteFunc([]string{r.Verb, r.Resource, r.Namespace, r.Name}, func(s string) bool { return s == "" }), " ")
}

var resolver = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// describe returns what rules know of a request.
func describe(in *http.Request) Request {
	info, err := resolver.NewRequestInfo(in)
	if err != nil {
		return Request{Verb: strings.ToLower(in.Method)}
	}
	r := Request{Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name}
	if info.Subresource != "" {
		r.Resource += "/" + info.Subresource
	}
	return r
}

// A Rule selects requests, and says what happens to them. Empty lists select everything.
type Rule struct {
	Verbs     []string
	Resources []string // as in [Request]

	// To each request that is selected, the rule applies with this Probability, until it has
	// applied to Count of them. A Count of zero is no limit, and a Probability of zero is
	// certainty. Seed makes chance repeatable.
	Count       int
	Probability float64
	Seed        uint64

	Effect Effect
	Bytes  int           // of Truncate
	After  time.Duration // of Delay, Cut and Expire
}

// Writes are the verbs that write.
var Writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// An Effect is what a rule does to a request.
type Effect string

// The effects.
const (
	// Delay passes a request on after a while.
	Delay Effect = "delay"
	// ResetBefore resets the connection, and the API server receives no request.
	ResetBefore Effect = "reset before"
	// HangBefore never answers, and the API server receives no request. Watches that are
	// open already freeze.
	HangBefore Effect = "hang before"
	// HangAfter passes the request on, but never the response.
	HangAfter Effect = "hang after"
	// Truncate closes the connection after some bytes of the response.
	Truncate Effect = "truncate"
	// Cut ends a watch a while after it began, or after the rule was added if that is later.
	Cut Effect = "cut"
	// Expire ends a watch like Cut, but with the error that its resource version is too old.
	Expire Effect = "expire"
)

// onWatches are the effects that only watches feel.
var onWatches = []Effect{Cut, Expire}

// selects reports whether the rule is about such requests.
func (r *Rule) selects(in Request) bool {
	if slices.Contains(onWatches, r.Effect) && in.Verb != "watch" {
		return false
	}
	among := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return among(r.Verbs, in.Verb) && among(r.Resources, in.Resource)
}
