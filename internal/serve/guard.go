package serve

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// knownFor and unknownFor are how long the owner of a token is cached, or that it has none.
	knownFor   = time.Minute
	unknownFor = 10 * time.Second
	// decidedFor is how long an authorization is cached.
	decidedFor = 10 * time.Second
	// reviewTimeout is how long one review can take. It includes the wait for the client's rate
	// limit: a request that would wait longer is answered at once. A scrape needs two reviews and
	// gives up after ten seconds.
	reviewTimeout = 4 * time.Second
)

// guard lets a request pass if the API server authorizes it. The delegating authenticator
// of k8s.io/apiserver does the same, but adds gRPC, CEL and OpenTelemetry to the program.
type guard struct {
	client        kubernetes.Interface
	authenticator authenticator.Request
	decisions     *utilcache.Expiring // whether a user can get a path
	deciding      *singleflight.Group
}

func newGuard(client kubernetes.Interface) guard {
	g := guard{client: client, decisions: utilcache.NewExpiring(), deciding: &singleflight.Group{}}
	tokens := cache.New(authenticator.TokenFunc(g.identify), false, knownFor, unknownFor)
	g.authenticator = group.NewAuthenticatedGroupAdder(bearertoken.New(tokens))
	return g
}

// protect returns a handler that passes authorized requests on to page.
func (g guard) protect(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		logger := klog.Background().V(4).WithValues("path", r.URL.Path)
		sender, ok, err := g.authenticator.AuthenticateRequest(r)
		if !ok || err != nil {
			logger.Info("Unauthenticated", "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		logger = logger.WithValues("user", sender.User.GetName())
		isAllowed, err := g.isAllowed(r.Context(), sender.User, r.URL.Path)
		switch {
		case err != nil:
			logger.Info("Authorization check failed", "err", err)
			http.Error(w, "Authorization check failed", http.StatusServiceUnavailable)
		case !isAllowed:
			logger.Info("Forbidden")
			http.Error(w, "Forbidden", http.StatusForbidden)
		default:
			page.ServeHTTP(w, r)
		}
	})
}

// identify asks the API server whose token it is. It implements authenticator.TokenFunc.
func (g guard) identify(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		return nil, false, err
	}
	found := review.Status.User
	extra := map[string][]string{}
	for key, values := range found.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: found.Username, UID: found.UID, Groups: found.Groups, Extra: extra}}, true, nil
}

// isAllowed reports whether the user can get the path. Concurrent requests share one review.
func (g guard) isAllowed(ctx context.Context, sender user.Info, path string) (bool, error) {
	key := fmt.Sprintf("%q %q %q %q %q", sender.GetName(), sender.GetUID(), sender.GetGroups(), sender.GetExtra(), path)
	if decision, ok := g.decisions.Get(key); ok {
		return decision.(bool), nil
	}
	decision, err, _ := g.deciding.Do(key, func() (any, error) {
		if decision, ok := g.decisions.Get(key); ok { // by a review that has ended since
			return decision, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout) // others wait for it, too
		defer cancel()
		isAllowed, err := g.review(ctx, sender, path)
		if err == nil {
			g.decisions.Set(key, isAllowed, decidedFor)
		}
		return isAllowed, err
	})
	return decision.(bool), err
}

// review asks the API server whether the user can get the path.
func (g guard) review(ctx context.Context, sender user.Info, path string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range sender.GetExtra() {
		extra[key] = values
	}
	review, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  sender.GetName(),
			UID:                   sender.GetUID(),
			Groups:                sender.GetGroups(),
			Extra:                 extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
