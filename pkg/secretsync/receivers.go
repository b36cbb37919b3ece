package secretsync

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The annotations by which a source restricts which of the namespaces that ask for
// copies may have one. With both, a namespace has to meet both.
const (
	// AnnotationNamespaces has their names, separated by commas or spaces. In each,
	// "*" stands for any characters.
	AnnotationNamespaces = "controller.nicoleh.io/secretsync-namespaces"
	// AnnotationNamespaceSelector selects them by their labels.
	AnnotationNamespaceSelector = "controller.nicoleh.io/secretsync-namespace-selector"
)

// isYes says whether the value of an annotation is clearly a yes. That it is there at
// all is one, too.
func isYes(value string) bool {
	return slices.Contains([]string{"", "true", "yes", "on", "1"}, strings.ToLower(value))
}

// unclear warns of an object whose annotation is neither a yes nor "false".
func (c Config) unclear(obj metav1.Object) Problem {
	value, isThere := obj.GetAnnotations()[c.Annotation]
	if !isThere || isYes(value) || value == "false" {
		return Problem{}
	}
	return Problem{ReasonUnclear, fmt.Sprintf(`annotation %s is %.60q, which is taken as no: for a yes it has to be empty or "true", for a no "false"`, c.Annotation, value)}
}

// mayReceive says whether a source is for a namespace, if that asks for it.
func (c Config) mayReceive(source *corev1.Secret, namespace *corev1.Namespace) bool {
	r, err := c.receiversOf(source)
	return err == nil && r.has(namespace)
}

// receivers are the namespaces that a source is for. The zero receivers are all.
type receivers struct {
	names    []string // patterns; nil for any
	selector labels.Selector
}

// receiversOf are those of a source. An error says why they are none.
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
		return r, fmt.Errorf("it has to say by annotation %s or %s who may have it", AnnotationNamespaces, AnnotationNamespaceSelector)
	}
	return r, nil
}

func (r receivers) has(namespace *corev1.Namespace) bool {
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
		return nil, errors.New(`it names no namespace; "*" is all of them`)
	}
	return names, nil
}

func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err == nil && selector.Empty() {
		err = errors.New("it selects by no label")
	}
	return selector, err
}

// warningOf is what is wrong with the annotations of a source; none if nothing is.
func (c Config) warningOf(source *corev1.Secret) Problem {
	if unclear := c.unclear(source); unclear != (Problem{}) {
		return unclear
	}
	if _, err := c.receiversOf(source); err != nil && c.IsSource(source) {
		return Problem{ReasonNoReceivers, "no namespace gets a copy: " + err.Error()}
	}
	return Problem{}
}

// warningOfNamespace is what is wrong with the annotation of a namespace; none if
// nothing is.
func (c Config) warningOfNamespace(namespace *corev1.Namespace) Problem {
	if c.isReserved(namespace.Name) || namespace.DeletionTimestamp != nil {
		return Problem{}
	}
	return c.unclear(namespace)
}
