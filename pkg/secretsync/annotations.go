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

	"nicoleh.io/k8s-controller/pkg/kit/text"
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

// marks returns the annotations of an object that matter here.
func (c Config) marks(obj metav1.Object) map[string]string {
	marks := map[string]string{}
	for _, key := range []string{c.Annotation, AnnotationNamespaces, AnnotationNamespaceSelector, AnnotationConfirm} {
		if value, ok := obj.GetAnnotations()[key]; ok {
			marks[key] = value
		}
	}
	return marks
}

// IsMarked reports whether the annotation marks an object.
func (c Config) IsMarked(obj metav1.Object) bool {
	isYes, _ := c.mark(obj)
	return isYes
}

// mark returns what the annotation of an object means, and whether that is clear.
func (c Config) mark(obj metav1.Object) (isYes, isClear bool) {
	value, ok := obj.GetAnnotations()[c.Annotation]
	if !ok {
		return false, true
	}
	return text.Answer(value)
}

// IsSource reports whether a Secret should be copied.
func (c Config) IsSource(secret *corev1.Secret) bool {
	return secret.Namespace == c.SourceNamespace && secret.DeletionTimestamp == nil && c.IsMarked(secret)
}

// IsTarget reports whether a namespace asks for copies.
func (c Config) IsTarget(namespace *corev1.Namespace) bool {
	return !c.isReserved(namespace.Name) && namespace.DeletionTimestamp == nil && c.IsMarked(namespace)
}

// isReserved reports whether copies are never written to a namespace, or deleted from it.
func (c Config) isReserved(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic || namespace == c.SourceNamespace
}

// restriction says which of the marked namespaces may have a copy of a source. The zero
// value allows all.
type restriction struct {
	names    []string // patterns; nil for any name
	selector labels.Selector
}

// errNoReceivers means that a source must say which namespaces may have a copy, and does not.
var errNoReceivers = fmt.Errorf("annotation %s or %s must say which namespaces may have one", AnnotationNamespaces, AnnotationNamespaceSelector)

// restrictionOf returns the restriction of a source. An error says why no namespace gets a
// new copy; unless it is errNoReceivers, the restriction cannot be parsed.
func (c Config) restrictionOf(source *corev1.Secret) (r restriction, err error) {
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
		return r, errNoReceivers
	}
	return r, nil
}

// allows reports whether a namespace may have a copy.
func (r restriction) allows(namespace *corev1.Namespace) bool {
	isNamed := r.names == nil || slices.ContainsFunc(r.names, func(pattern string) bool {
		isMatch, err := path.Match(pattern, namespace.Name)
		return isMatch && err == nil
	})
	return isNamed && (r.selector == nil || r.selector.Matches(labels.Set(namespace.Labels)))
}

func parseNames(list string) ([]string, error) {
	names := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
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

// warningAboutSource returns what is wrong with the annotations of a Secret in the source
// namespace; the zero Problem if nothing is.
func (c Config) warningAboutSource(source *corev1.Secret) Problem {
	if unclear := c.unclear(source); unclear != (Problem{}) {
		return unclear
	}
	switch _, err := c.restrictionOf(source); {
	case err == nil || !c.IsSource(source):
		return Problem{}
	case errors.Is(err, errNoReceivers):
		return Problem{ReasonNoReceivers, "No namespace gets a copy: " + err.Error()}
	default:
		return Problem{ReasonNoReceivers, "No namespace gets a new copy, and existing copies stay as they are: " + err.Error()}
	}
}

// warningAboutNamespace returns what is wrong with the annotations of a namespace; the zero
// Problem if nothing is.
func (c Config) warningAboutNamespace(namespace *corev1.Namespace) Problem {
	switch {
	case namespace.Name == c.SourceNamespace:
		return warningAboutConfirmation(namespace)
	case c.isReserved(namespace.Name) || namespace.DeletionTimestamp != nil:
		return Problem{}
	}
	return c.unclear(namespace)
}

// unclear returns a problem if the object's mark means neither yes nor no.
func (c Config) unclear(obj metav1.Object) Problem {
	if _, isClear := c.mark(obj); isClear {
		return Problem{}
	}
	return Problem{ReasonUnclear, fmt.Sprintf(`Annotation %s is %.60q, so existing copies stay as they are and no new ones are made: for yes, it must be empty or "true"; for no, "false"`, c.Annotation, obj.GetAnnotations()[c.Annotation])}
}
