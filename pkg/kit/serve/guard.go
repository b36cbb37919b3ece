package serve

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
)

// The limits of each lane. A request causes at most one TokenReview and one
// SubjectAccessReview, each of which is tried up to three times if the API server fails.
const (
	requestsPerSecond = 10
	requestBurst      = 20
	requestsInFlight  = 5
	// knownCredentials is how many allowed credentials are remembered.
	knownCredentials = 64
)

// guard lets a request pass if the API server authorizes it. If there are too many
// requests to review, it responds with 429.
//
// Credentials that were allowed before have a lane of their own, so that a client that
// tries one invented token after another cannot keep Prometheus from its next scrape.
type guard struct {
	who authenticator.Request
	may *permissions

	known            *lru.Cache // the SHA-256 digests of credentials that were allowed last
	friends, strange lane
	complain         rate.Sometimes
}

// newGuard returns a guard that sends its reviews with the client.
func newGuard(client Reviewer) *guard {
	// What apiserver's own delegation would add to these two requests is 30 MB of program:
	// gRPC, CEL and OpenTelemetry. Its cache of tokens alone needs the types of audit logs.
	tokens := &identities{client: client, known: utilcache.NewLRUExpireCache(knownTokens)}
	return &guard{
		who:      group.NewAuthenticatedGroupAdder(bearertoken.New(tokens)),
		may:      &permissions{client: client, known: utilcache.NewLRUExpireCache(knownPermissions)},
		known:    lru.New(knownCredentials),
		friends:  newLane(),
		strange:  newLane(),
		complain: rate.Sometimes{Interval: time.Minute},
	}
}

// protect returns a handler that passes authorized requests on to page.
func (g *guard) protect(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.allow(w, r) {
			page.ServeHTTP(w, r)
		}
	})
}

// allow reports whether a request is authorized. If not, it answers the request.
func (g *guard) allow(w http.ResponseWriter, r *http.Request) bool {
	credentials := r.Header.Get("Authorization")
	if credentials == "" {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return false
	}
	digest := sha256.Sum256([]byte(credentials))
	lane := g.strange
	if _, isKnown := g.known.Get(digest); isKnown {
		lane = g.friends
	}
	code := g.admit(r, lane)
	if code == http.StatusOK {
		g.known.Add(digest, nil)
		return true
	}
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		g.known.Remove(digest)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
		logger := klog.FromContext(r.Context())
		g.complain.Do(func() {
			logger.Info("Refusing requests for metrics: more than can be reviewed", "sender", r.RemoteAddr)
		})
	}
	http.Error(w, refusals[code], code)
	return false
}

// refusals are the bodies of responses to requests that may not pass.
var refusals = map[int]string{
	http.StatusUnauthorized:       "Unauthorized",
	http.StatusForbidden:          "Forbidden",
	http.StatusTooManyRequests:    "Too many requests",
	http.StatusServiceUnavailable: "The API server could not be asked",
}

// admit returns the status code for a request: that of judge, or 429 if its lane is full.
func (g *guard) admit(r *http.Request, lane lane) int {
	if !lane.enter() {
		return http.StatusTooManyRequests
	}
	defer lane.leave()
	return g.judge(r)
}

// judge asks the API server who sent the request and whether they are allowed to, and
// returns the status code that says so.
func (g *guard) judge(r *http.Request) int {
	logger := klog.FromContext(r.Context()).V(4).WithValues("path", r.URL.Path)
	// A review continues after the client has gone away, and counts until it ends.
	ctx := context.WithoutCancel(r.Context())
	sender, ok, err := g.who.AuthenticateRequest(r.WithContext(ctx))
	if !ok || err != nil {
		logger.Info("Unauthenticated", "err", err)
		return http.StatusUnauthorized
	}
	logger = logger.WithValues("user", sender.User.GetName())
	isAllowed, err := g.may.get(ctx, sender.User, r.URL.Path)
	switch {
	case err != nil:
		logger.Info("Unauthorized", "err", err)
		return http.StatusServiceUnavailable
	case !isAllowed:
		logger.Info("Forbidden")
		return http.StatusForbidden
	}
	return http.StatusOK
}

// lane limits how many requests are reviewed at the same time, and per second. Requests
// beyond that do not wait, but are refused.
type lane struct {
	rate     *rate.Limiter
	inFlight chan struct{}
}

func newLane() lane {
	return lane{rate.NewLimiter(requestsPerSecond, requestBurst), make(chan struct{}, requestsInFlight)}
}

// enter reports whether another request may be reviewed now. If so, leave has to follow.
func (l lane) enter() bool {
	select {
	case l.inFlight <- struct{}{}:
	default:
		return false
	}
	if !l.rate.Allow() {
		l.leave()
		return false
	}
	return true
}

func (l lane) leave() { <-l.inFlight }
