// Package preflight waits, before a controller starts, until the API server lets this
// process list the resources that it needs, and logs in one line what is in the way.
//
// It waits for what someone can fix in the cluster: an API server that does not answer, a
// custom resource that is not defined, a permission that is missing. It returns an error
// for what only a restart can fix: credentials that are not accepted, a certificate that
// is not trusted. A process that has worked waits for these, too: the API server rejects good
// credentials for moments after its own start (kubernetes#65785).
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

// interval is the time between two attempts to list a resource.
const interval = time.Second

// repeatAfter is the time after which a process that still waits says so again: a log is
// rotated.
const repeatAfter = time.Minute

// requestTimeout is how long the API server may take to answer.
const requestTimeout = 10 * time.Second

// Resource is a resource that this process needs, usually to list it.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // all namespaces if empty
	Selector  string // label selector
	Fields    string // field selector
	Define    string // what the user can do if the API server does not know the resource
	Permit    string // what the user can do if a permission is missing
}

// Await returns nil once the resource can be listed, and logs what it waits for until then.
// The error is the cause of ctx, which has ended, or says what is wrong with the credentials.
// hasWorked reports whether these credentials have been accepted before.
func Await(ctx context.Context, client metadata.Interface, r Resource, hasWorked func() bool) error {
	waiting := Waiting{Resource: r, hasWorked: hasWorked}
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (done bool, _ error) {
		err := r.list(ctx, client)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return err == nil, waiting.Note(ctx, err)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Waiting logs what is in the way of a resource: when that changes, and once a minute while it
// lasts.
type Waiting struct {
	Resource
	hasWorked func() bool
	obstacle  string
	logged    time.Time
}

// Note takes the result of an attempt. It returns an error if it is hopeless to try again.
func (w *Waiting) Note(ctx context.Context, err error) error {
	logger := klog.FromContext(ctx)
	if err == nil {
		if w.obstacle != "" {
			logger.Info("Resource available", "for", w.GroupResource())
			w.obstacle = ""
		}
		return nil
	}
	obstacle, remedy, isHopeless := w.explain(err)
	if isHopeless && !w.hasWorked() {
		return fmt.Errorf("%s: %s (%w)", obstacle, remedy, err)
	}
	if obstacle != w.obstacle || time.Since(w.logged) >= repeatAfter {
		logger.Info("Waiting", "for", w.GroupResource(), "namespace", w.Namespace, "because", obstacle, "remedy", remedy, "err", err)
		w.obstacle, w.logged = obstacle, time.Now()
	}
	return nil
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
		return "the API server does not accept the credentials", "renew them, or pass the -kubeconfig of this cluster", true
	case errors.As(err, &untrusted):
		return "the API server's certificate is not trusted", "pass the -kubeconfig of this cluster, which contains its CA certificate", true
	case apierrors.IsNotFound(err) && isAboutNamespace(err):
		return "the namespace does not exist", "kubectl create namespace " + r.Namespace + ", or name another", false
	case apierrors.IsNotFound(err):
		return "the cluster does not know this resource", r.Define, false
	case apierrors.IsForbidden(err):
		return "permission is missing", r.Permit, false
	default:
		return "the API server is unreachable or its response is unexpected", "check that it runs, and its address in the kubeconfig", false
	}
}

// isAboutNamespace reports whether the API server's response is that a namespace is missing.
func isAboutNamespace(err error) bool {
	var response apierrors.APIStatus
	return errors.As(err, &response) && response.Status().Details != nil && response.Status().Details.Kind == "namespaces"
}
