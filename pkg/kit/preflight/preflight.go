// Package preflight finds out, before anything is started, whether the API server
// will let it work, and says in one line what is in the way.
//
// What somebody can mend in the cluster is waited for: an API server that does not
// answer, a custom resource that is not defined yet, a permission that is missing.
// What only a new start can mend is an error: credentials that are not accepted, a
// certificate that is not trusted.
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

// Interval is how long it takes at most until it is noticed that what was in the
// way is gone; the request itself comes on top.
const Interval = time.Second

// patience is how long the API server may take to answer.
const patience = 10 * time.Second

// Resource is something that has to be listed.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // all of them if empty
	Selector  string // by labels
	Fields    string // selector by fields
	Define    string // what to do if the API server does not know the resource
	Permit    string // what to do if it may not be listed
}

// Await returns once each of the resources can be listed, and logs what it waits
// for whenever that is something new. The error is that of ctx, or says what is
// wrong with the credentials.
func Await(ctx context.Context, client rest.Interface, clock clock.Clock, resources ...Resource) error {
	logger := klog.FromContext(ctx)
	for _, resource := range resources {
		said := ""
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
			if obstacle != said {
				logger.Info("Waiting", "for", resource.GroupResource(), "namespace", resource.Namespace, "because", obstacle, "remedy", remedy, "err", err)
				said = obstacle
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-clock.After(Interval):
			}
		}
		if said != "" {
			logger.Info("Going on", "with", resource.GroupResource())
		}
	}
	return nil
}

// list asks for one object of the resource.
func list(ctx context.Context, client rest.Interface, r Resource) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// Explain says what the error of listing the resource means and what to do about it.
// It is hopeless if waiting cannot help.
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
