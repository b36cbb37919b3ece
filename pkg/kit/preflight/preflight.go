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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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

// Await returns nil once each of the resources can be listed. It logs what it waits for
// whenever that changes. The error is the cause of ctx, which has ended, or says what is
// wrong with the credentials.
func Await(ctx context.Context, client rest.Interface, clock clock.Clock, resources ...Resource) error {
	logger := klog.FromContext(ctx)
	for _, resource := range resources {
		logged := ""
		for {
			err := list(ctx, client, resource)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			obstacle, remedy, isHopeless := resource.Explain(err)
			if isHopeless {
				return fmt.Errorf("%s: %s (%w)", obstacle, remedy, err)
			}
			if obstacle != logged {
				logger.Info("Waiting", "for", resource.GroupResource(), "namespace", resource.Namespace, "because", obstacle, "remedy", remedy, "err", err)
				logged = obstacle
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-clock.After(Interval):
			}
		}
		if logged != "" {
			logger.Info("Going on", "with", resource.GroupResource())
		}
	}
	return nil
}

// list lists at most one object of the resource.
func list(ctx context.Context, client rest.Interface, r Resource) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"/api", r.Version}
	}
	request := client.Get().AbsPath(path...).Namespace(r.Namespace).Resource(r.Resource).Param("limit", "1")
	if r.Selector != "" {
		request.Param("labelSelector", r.Selector)
	}
	if r.Fields != "" {
		request.Param("fieldSelector", r.Fields)
	}
	return request.Do(ctx).Error()
}

// Explain returns what an error of listing the resource means, what to do about it, and
// whether it is hopeless to wait for that.
func (r Resource) Explain(err error) (obstacle, remedy string, isHopeless bool) {
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
