package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The limits of one review, and for how long and how many results are remembered.
const (
	// reviewTimeout includes all attempts.
	reviewTimeout    = 10 * time.Second
	identifiedFor    = time.Minute
	allowedFor       = time.Minute
	forbiddenFor     = 10 * time.Second
	knownTokens      = 1024
	knownPermissions = 1024
)

// Reviewer sends reviews to the API server.
type Reviewer struct {
	Tokens Creator[*authenticationv1.TokenReview]
	Access Creator[*authorizationv1.SubjectAccessReview]
}

// Creator is what a Reviewer needs of a typed client.
type Creator[T any] interface {
	Create(ctx context.Context, review T, opts metav1.CreateOptions) (T, error)
}

// identities are whose tokens are, as far as the API server has been asked.
type identities struct {
	client Reviewer
	known  *utilcache.LRUExpireCache // the authenticator.Response, or nil for nobody, by the token's SHA-256 digest
}

// AuthenticateToken implements authenticator.Token.
func (i *identities) AuthenticateToken(ctx context.Context, token string) (sender *authenticator.Response, ok bool, err error) {
	digest := sha256.Sum256([]byte(token))
	if known, ok := i.known.Get(digest); ok {
		sender = known.(*authenticator.Response)
		return sender, sender != nil, nil
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if review, err = attempt(ctx, i.client.Tokens.Create, review); err != nil {
		return nil, false, err
	}
	if review.Status.Authenticated {
		found := review.Status.User
		extra := make(map[string][]string, len(found.Extra))
		for key, values := range found.Extra {
			extra[key] = values
		}
		sender = &authenticator.Response{User: &user.DefaultInfo{Name: found.Username, UID: found.UID, Groups: found.Groups, Extra: extra}}
	}
	i.known.Add(digest, sender, identifiedFor)
	return sender, sender != nil, nil
}

// permissions are who may get which path, as far as the API server has been asked.
type permissions struct {
	client Reviewer
	known  *utilcache.LRUExpireCache // whether it is allowed, by what was asked
}

// get reports whether the user may get the path.
func (p *permissions) get(ctx context.Context, sender user.Info, path string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:                  sender.GetName(),
		UID:                   sender.GetUID(),
		Groups:                sender.GetGroups(),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	for key, values := range sender.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	asked := spec.String()
	if isAllowed, ok := p.known.Get(asked); ok {
		return isAllowed.(bool), nil
	}
	review, err := attempt(ctx, p.client.Access.Create, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return false, err
	}
	validFor := forbiddenFor
	if review.Status.Allowed {
		validFor = allowedFor
	}
	p.known.Add(asked, review.Status.Allowed, validFor)
	return review.Status.Allowed, nil
}

// attempt sends a review until it has a response, up to three times.
func attempt[T any](ctx context.Context, create func(context.Context, T, metav1.CreateOptions) (T, error), review T) (reviewed T, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	patience := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
	gaveUp := wait.ExponentialBackoffWithContext(ctx, patience, func(ctx context.Context) (done bool, _ error) {
		reviewed, err = create(ctx, review, metav1.CreateOptions{})
		return !isTransient(err), nil
	})
	return reviewed, cmp.Or(err, gaveUp)
}

// isTransient reports whether the same request may soon succeed.
func isTransient(err error) bool {
	_, isAsked := apierrors.SuggestsClientDelay(err)
	return isAsked || apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}
