package secretsync

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The annotations by which a source restricts which of the marked namespaces may have a
// copy. If there are both, a namespace must meet both.
const (
	// AnnotationNamespaces lists names of namespaces, separated by commas or spaces. In
	// each, "*" stands for any characters.
	AnnotationNamespaces = "controller.nicoleh.io/secretsync-namespaces"
	// AnnotationNamespaceSelector selects namespaces by their labels.
	AnnotationNamespaceSelector = "controller.nicoleh.io/secretsync-namespace-selector"
)

// isYes reports whether the value of an annotation clearly means yes. An annotation
// without a value does.
func isYes(value string) bool {
	return slices.Contains([]string{"", "true", "yes", "on", "1"}, strings.ToLower(value))
}

// mayReceive reports whether a marked namespace may have a copy of a source.
func (c Config) mayReceive(source *corev1.Secret, namespace *corev1.Namespace) bool {
	r, err := c.receiversOf(source)
	return err == nil && r.include(namespace)
}

// receivers are the namespaces that may have a copy of a source. The zero value includes
// all.
type receivers struct {
	names    []string // patterns; nil for any name
	selector labels.Selector
}

// receiversOf returns the receivers of a source. An error says why there are none.
func (c Config) receiversOf(source *corev1.Secret) (r receivers, err error) {
	names, hasNames := source.Annotations[AnnotationNamespaces]
	if hasNames {
		if r.names, err = parseNames(names); err != nil {
			return r, fmt.Errorf("annotation %s: %w", AnnotationNamespaces, err)
		}
	}
	selector, hasSelector := source.Annotations[AnnotationNamespaceSelector]
	if hasSelector {
		if r.selector, err = parseSelector(selector); err != nil {
			return r, fmt.Errorf("annotation %s: %w", AnnotationNamespaceSelector, err)
		}
	}
	if c.RequireReceivers && !hasNames && !hasSelector {
		return r, fmt.Errorf("annotation %s or %s must say which namespaces may have one", AnnotationNamespaces, AnnotationNamespaceSelector)
	}
	return r, nil
}

// include reports whether the namespace is one of the receivers.
func (r receivers) include(namespace *corev1.Namespace) bool {
	isNamed := r.names == nil || slices.ContainsFunc(r.names, func(pattern string) bool {
		isMatch, err := path.Match(pattern, namespace.Name)
		return isMatch && err == nil
	})
	return isNamed && (r.selector == nil || r.selector.Matches(labels.Set(namespace.Labels)))
}

func parseNames(text string) ([]string, error) {
	names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	for _, name := range names {
		if len(validation.IsDNS1123Label(strings.ReplaceAll(name, "*", "x"))) > 0 {
			return nil, fmt.Errorf(`%.60q is neither the name of a namespace nor a pattern such as "team-*"`, name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New(`it names no namespace; use "*" for all`)
	}
	return names, nil
}

func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err == nil && selector.Empty() {
		err = errors.New("the selector is empty")
	}
	return selector, err
}
