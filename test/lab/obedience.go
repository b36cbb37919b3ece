package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// waitForPolicies waits until the API server enforces the policies of artifacts/ on the
// controller's service account. The API server looks for new policies once per second.
func (l *Lab) waitForPolicies(ctx context.Context) error {
	var err error
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(pollEvery) {
		_, err = l.TryKubectl(ctx, "", "create", "deployment", "canary", "--image=registry.example/canary:1", "--dry-run=server",
			"--as=system:serviceaccount:"+SystemNamespace+":"+ServiceAccount)
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return nil
		}
	}
	return fmt.Errorf("the policies of artifacts/ are not in force: creating a Deployment without an owner returned: %w", err)
}

// expectedRejection is part of the message of a policy that may reject a correct request:
// the API server's view of a namespace may be older than the controller's.
const expectedRejection = "of the namespace asks for them"

// MayBeRefused says that a policy may refuse what a controller requests in the namespace:
// what others have added to it takes more power than the controller has.
func (n *Namespace) MayBeRefused() { n.Lab.refused.Store(n.Name, true) }

// MayBeRefused is [Namespace.MayBeRefused] for a namespace of that name.
func (s *Shared) MayBeRefused(namespace string) { s.lab.refused.Store(namespace, true) }

// checkRejections returns an error for each request of a controller that a policy of
// artifacts/ has rejected. It ignores requests that a test has made with a token of the
// controller's service account, those in namespaces where they may be refused, and dry runs, by
// which a program finds out what it must not do.
func (l *Lab) checkRejections() error {
	requests, err := l.AllRequests()
	if err != nil {
		return fmt.Errorf("looking for rejected requests: %w", err)
	}
	var errs []error
	for _, e := range requests {
		if _, mayBe := l.refused.Load(e.Namespace); mayBe {
			continue
		}
		if strings.Contains(e.RequestURI, "dryRun=") {
			continue
		}
		if e.Refusal != "" && strings.HasPrefix(e.UserAgent, agentPrefix) && !strings.Contains(e.Refusal, expectedRejection) {
			errs = append(errs, fmt.Errorf("a policy rejected %s %s %s/%s by %s: %s", e.Verb, e.Resource, e.Namespace, e.Name, e.UserAgent, e.Refusal))
		}
	}
	return errors.Join(errs...)
}
