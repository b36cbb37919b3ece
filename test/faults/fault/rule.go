package fault

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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
	Names     []string

	// Of the requests that are selected, the rule spares the first Skip. Each further one it
	// applies to with this Probability, until it has applied to Count of them. A Count of
	// zero is no limit, and a Probability of zero is certainty. Seed makes chance repeatable.
	Skip, Count int
	Probability float64
	Seed        uint64

	Effect Effect
	Status Status        // of Refuse
	Bytes  int           // of Truncate
	After  time.Duration // of Delay, Cut and Expire
}

// A Status is the response by which a request is refused.
type Status struct {
	Code       int
	Reason     string        // such as "Expired"; empty for that of the code
	RetryAfter time.Duration // in whole seconds; zero for none
}

// An Effect is what a rule does to a request.
type Effect string

// The effects.
const (
	// Refuse answers with a status in place of the API server.
	Refuse Effect = "refuse"
	// Delay passes a request on after a while.
	Delay Effect = "delay"
	// ResetBefore resets the connection, and the API server receives no request.
	ResetBefore Effect = "reset=before"
	// ResetAfter passes the request on, and resets the connection in place of the response.
	ResetAfter Effect = "reset=after"
	// HangBefore never answers, and the API server receives no request. Watches that are
	// open already freeze.
	HangBefore Effect = "hang=before"
	// HangAfter passes the request on, but never the response.
	HangAfter Effect = "hang=after"
	// Truncate closes the connection after some bytes of the response.
	Truncate Effect = "truncate"
	// Freeze holds back the events of a watch until the rule is removed.
	Freeze Effect = "freeze"
	// Cut ends a watch a while after it began, or after the rule was added if that is later.
	Cut Effect = "cut"
	// Expire ends a watch like Cut, but with the error that its resource version is too old.
	Expire Effect = "expire"
)

// onWatches are the effects that only watches feel.
var onWatches = []Effect{Freeze, Cut, Expire}

// writes are the verbs that "write" stands for.
var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// Parse reads a rule such as "verb=update,resource=icecreams/status,reset=after,count=3".
// Each key may occur once. Those that select are verb, resource and name, with alternatives
// separated by "|" ("write" stands for all verbs that write), and skip, count, probability
// and seed. Exactly one key is an effect:
//
//	refuse=429        with the optional keys reason=TooManyRequests and retry-after=5s
//	delay=2s
//	reset=before      or after
//	hang=before       or after
//	truncate=100      bytes
//	freeze=watch
//	cut=2s
//	expire=2s
func Parse(text string) (Rule, error) {
	var r Rule
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seen[key] {
			return Rule{}, fmt.Errorf("fault %q has %s twice", text, key)
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return Rule{}, fmt.Errorf("fault %q: %s: %w", text, key, err)
		}
	}
	if err := r.check(); err != nil {
		return Rule{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return r, nil
}

// MustParse is Parse for rules that are known to be valid. It panics if one is not.
func MustParse(text string) Rule {
	r, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return r
}

// set sets what one key says.
func (r *Rule) set(key, value string) (err error) {
	switch key {
	case "verb":
		r.Verbs = strings.Split(value, "|")
		if i := slices.Index(r.Verbs, "write"); i >= 0 {
			r.Verbs = slices.Concat(r.Verbs[:i], writes, r.Verbs[i+1:])
		}
	case "resource":
		r.Resources = strings.Split(value, "|")
	case "name":
		r.Names = strings.Split(value, "|")
	case "skip":
		r.Skip, err = positive(value)
	case "count":
		r.Count, err = positive(value)
	case "probability":
		r.Probability, err = strconv.ParseFloat(value, 64)
	case "seed":
		r.Seed, err = strconv.ParseUint(value, 10, 64)
	case "reason":
		r.Status.Reason = value
	case "retry-after":
		r.Status.RetryAfter, err = time.ParseDuration(value)
	default:
		err = r.setEffect(key, value)
	}
	return err
}

// setEffect sets what a key says that is an effect.
func (r *Rule) setEffect(key, value string) (err error) {
	if r.Effect != "" {
		return fmt.Errorf("the rule has the effect %s already, or the key is unknown", r.Effect)
	}
	switch effect := Effect(key); effect {
	case Refuse:
		r.Effect = effect
		r.Status.Code, err = positive(value)
	case Truncate:
		r.Effect = effect
		r.Bytes, err = strconv.Atoi(value)
	case Delay, Cut, Expire:
		r.Effect = effect
		r.After, err = time.ParseDuration(value)
	default:
		switch effect := Effect(key + "=" + value); effect {
		case ResetBefore, ResetAfter, HangBefore, HangAfter:
			r.Effect = effect
		case Freeze + "=watch":
			r.Effect = Freeze
		default:
			err = fmt.Errorf("there is no %s", effect)
		}
	}
	return err
}

// check returns an error if the keys do not go together.
func (r *Rule) check() error {
	switch {
	case r.Effect == "":
		return errors.New("it has no effect")
	case r.Probability < 0 || r.Probability > 1:
		return errors.New("a probability is from 0 to 1")
	case r.Effect == Refuse && (r.Status.Code < 400 || r.Status.Code > 599):
		return errors.New("refuse needs a status code from 400 to 599")
	case r.Effect != Refuse && r.Status != Status{}:
		return errors.New("only refuse has a reason or retry-after")
	case r.After < 0 || r.Bytes < 0:
		return errors.New("it is negative")
	}
	return nil
}

// selects reports whether the rule is about such requests.
func (r *Rule) selects(in Request) bool {
	if slices.Contains(onWatches, r.Effect) && in.Verb != "watch" {
		return false
	}
	among := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return among(r.Verbs, in.Verb) && among(r.Resources, in.Resource) && among(r.Names, in.Name)
}

// positive reads a positive number.
func positive(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err == nil && n < 1 {
		err = fmt.Errorf("%d is not positive", n)
	}
	return n, err
}
