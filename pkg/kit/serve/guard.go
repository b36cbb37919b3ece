package serve

import (
	"context"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// How long it is remembered whose token it is, or that it is nobody's.
const (
	knownFor   = time.Minute
	unknownFor = 10 * time.Second
)

// guard lets a request pass if the API server authorizes it. The delegating authenticator
// of k8s.io/apiserver does the same, but adds gRPC, CEL and OpenTelemetry to the program.
type guard struct {
	client        kubernetes.Interface
	authenticator authenticator.Request
}

func newGuard(client kubernetes.Interface) guard {
	g := guard{client: client}
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
			logger.Info("The API server could not be asked", "err", err)
			http.Error(w, "The API server could not be asked", http.StatusServiceUnavailable)
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

// isAllowed asks the API server whether the user can get the path.
func (g guard) isAllowed(ctx context.Context, sender user.Info, path string) (bool, error) {
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
