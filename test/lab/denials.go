package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// waitForPolicies waits until the API server enforces the policies of the program on its account.
// The API server looks for new policies once per second, and sees them in the order of their
// creation. The one that restricts Leases is the last.
func (l *Lab) waitForPolicies(ctx context.Context) error {
	const lease = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: canary}}"
	var err error
	for end := time.Now().Add(Timeout); time.Now().Before(end); time.Sleep(pollEvery) {
		_, err = l.TryKubectl(ctx, lease, "create", "--filename=-", "--dry-run=server",
			"--namespace="+l.program.Namespace, "--as=system:serviceaccount:"+l.program.Namespace+":"+l.program.Account)
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return nil
		}
	}
	return fmt.Errorf("the policies of %v are not in force: creating a Lease of another name returned: %w", l.program.Manifests, err)
}

// expectedDenial is part of the message of a policy that may deny a correct request:
// the API server's view of a namespace may be older than the controller's.
const expectedDenial = "of the namespace asks for them"

// MayBeDenied says that a policy may deny what a controller requests in a namespace: what others
// have added to it takes more power than the controller has.
func (s *Shared) MayBeDenied(namespace string) { s.lab.mayBeDenied.Store(namespace, true) }

// checkDenials returns an error for each request of a controller that a policy of the
// program has denied. It ignores requests that a test has made with a token of the
// controller's service account, those in namespaces where they may be denied, and dry runs, by
// which a program finds out what it must not do.
func (l *Lab) checkDenials() error {
	requests, err := l.AllRequests()
	if err != nil {
		return fmt.Errorf("looking for denied requests: %w", err)
	}
	var errs []error
	for _, e := range requests {
		if _, isExpected := l.mayBeDenied.Load(e.Namespace); isExpected {
			continue
		}
		if strings.Contains(e.RequestURI, "dryRun=") {
			continue
		}
		if e.Denial != "" && strings.HasPrefix(e.UserAgent, agentPrefix) && !strings.Contains(e.Denial, expectedDenial) {
			errs = append(errs, fmt.Errorf("a policy denied %s %s %s/%s by %s: %s", e.Verb, e.Resource, e.Namespace, e.Name, e.UserAgent, e.Denial))
		}
	}
	return errors.Join(errs...)
}
