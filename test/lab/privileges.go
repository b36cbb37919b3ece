package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// privileges compares what roles grant to accounts with what processes under these accounts make
// use of, over several Labs. It is safe for concurrent use.
type privileges struct {
	mu        sync.Mutex
	granted   map[string]bool
	used      map[string]bool
	forbidden map[string]bool
}

// unused returns the permissions that nobody made use of, such as "account: update
// apps/deployments".
func (p *privileges) unused() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	unused := maps.Clone(p.granted)
	maps.DeleteFunc(unused, func(permission string, _ bool) bool { return p.used[permission] })
	return slices.Sorted(maps.Keys(unused))
}

// forbiddenRequests returns the requests that were refused for want of a permission.
func (p *privileges) forbiddenRequests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.forbidden))
}

// read adds what the Lab's roles grant to a service account of that name, in whichever namespace,
// and what the audit log has of processes under it. Requests that tests make with its token do not
// count.
func (p *privileges) read(ctx context.Context, l *Lab, account string) error {
	rules, rulesErr := l.boundRules(ctx, account)
	requests, auditErr := l.AllRequests()
	if err := errors.Join(rulesErr, auditErr); err != nil {
		return fmt.Errorf("comparing permissions: %w", err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.granted == nil {
		p.granted, p.used, p.forbidden = map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
	for _, rule := range rules {
		for _, permission := range permissions(rule) {
			p.granted[account+": "+permission] = true
		}
	}
	for _, e := range requests {
		if !strings.HasPrefix(e.User, "system:serviceaccount:") || !strings.HasSuffix(e.User, ":"+account) ||
			!strings.HasPrefix(e.UserAgent, agentPrefix) || e.Resource == "" {
			continue
		}
		for _, permission := range permissionsFor(e) {
			permission = account + ": " + permission
			switch {
			case e.Decision == "allow":
				p.used[permission] = true
			case !l.hasRestarted.Load():
				p.forbidden[fmt.Sprintf("%s (%s in %q)", permission, e.Name, e.Namespace)] = true
			}
		}
	}
	return nil
}

// permissionsFor returns the permissions that a request requires. A patch that creates its object, such as a
// server-side apply, requires two, and the audit log names one of them.
func permissionsFor(e *cluster.AuditEvent) []string {
	verbs := []string{e.Verb}
	if e.Verb == "patch" && e.Code == http.StatusCreated {
		verbs = append(verbs, "create")
	}
	var found []string
	for _, verb := range verbs {
		found = append(found, fmt.Sprintf("%s %s/%s", verb, e.APIGroup, resourceOf(e)))
	}
	return found
}

// boundRules returns the rules of all roles that are bound to a service account of that name, in
// whichever namespace.
func (l *Lab) boundRules(ctx context.Context, account string) (rules []rbacv1.PolicyRule, err error) {
	isAccount := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == account
	}
	rbac := l.Kube.RbacV1()
	everywhere, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, binding := range everywhere.Items {
		if slices.ContainsFunc(binding.Subjects, isAccount) {
			role, err := rbac.ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue // a test may have uninstalled it
			}
			if err != nil {
				return nil, err
			}
			rules = append(rules, role.Rules...)
		}
	}
	somewhere, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, binding := range somewhere.Items {
		if binding.RoleRef.Kind == "Role" && slices.ContainsFunc(binding.Subjects, isAccount) {
			role, err := rbac.Roles(binding.Namespace).Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue // of a namespace that is ending
			}
			if err != nil {
				return nil, err
			}
			rules = append(rules, role.Rules...)
		}
	}
	return rules, nil
}

func permissions(rule rbacv1.PolicyRule) []string {
	var found []string
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				found = append(found, fmt.Sprintf("%s %s/%s", verb, group, resource))
			}
		}
	}
	return found
}
