// Package preflight waits, before anything else starts, until the API server lets this
// process list the resources that it needs, and logs in one line what is in the way.
//
// It waits for what someone can fix in the cluster: an API server that does not answer, a
// custom resource that is not defined, a permission that is missing. It returns an error
// for what only a restart can fix: credentials that are not accepted, a certificate that
// is not trusted.
package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
)

// Interval is the time between two attempts to list a resource.
const Interval = time.Second

// requestTimeout is how long the API server may take to answer.
const requestTimeout = 10 * time.Second

// Resource is a resource that this process has to be able to list.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // all namespaces if empty
	Selector  string // label selector
	Fields    string // field selector
	Define    string // what the user can do if the API server does not know the resource
	Permit    string // what the user can do if the permission to list it is missing
}

// Await returns nil once the resource can be listed. It logs what it waits for whenever that
// changes. The error is the cause of ctx, which has ended, or says what is wrong with the
// credentials.
func Await(ctx context.Context, client metadata.Interface, r Resource) error {
	logger, logged := klog.FromContext(ctx), ""
	err := wait.PollUntilContextCancel(ctx, Interval, true, func(ctx context.Context) (done bool, _ error) {
		err := r.list(ctx, client)
		if err == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		obstacle, remedy, isHopeless := r.explain(err)
		if isHopeless {
			return false, fmt.Errorf("%s: %s (%w)", obstacle, remedy, err)
		}
		if obstacle != logged {
			logger.Info("Waiting", "for", r.GroupResource(), "namespace", r.Namespace, "because", obstacle, "remedy", remedy, "err", err)
			logged = obstacle
		}
		return false, nil
	})
	if err == nil && logged != "" {
		logger.Info("Going on", "with", r.GroupResource())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// list lists at most one object of the resource.
func (r Resource) list(ctx context.Context, client metadata.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := client.Resource(r.GroupVersionResource).Namespace(r.Namespace).
		List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: r.Selector, FieldSelector: r.Fields})
	return err
}

// explain returns what an error of listing the resource means, what to do about it, and
// whether it is hopeless to wait for that.
func (r Resource) explain(err error) (obstacle, remedy string, isHopeless bool) {
	untrusted := &tls.CertificateVerificationError{}
	switch {
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials", "get new ones, or give the -kubeconfig of this cluster", true
	case errors.As(err, &untrusted):
		return "the API server's certificate is not to be trusted", "give the -kubeconfig of this cluster, with its certificate authority", true
	case apierrors.IsNotFound(err):
		return "the cluster does not know this resource", r.Define, false
	case apierrors.IsForbidden(err):
		return "permission is missing", r.Permit, false
	default:
		return "the API server does not answer as it should", "check whether it runs, and its address in the kubeconfig", false
	}
}
