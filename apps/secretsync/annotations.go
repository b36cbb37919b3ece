package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/internal/text"
)

// domain is what all keys begin with that mean something to a controller of this project.
const domain = "controller.nicoleh.io/"

// DefaultAnnotation is the usual mark.
const DefaultAnnotation = domain + Name

// The annotations by which a source restricts which of the marked namespaces can have a
// copy. A source can have one of them.
const (
	// AnnotationNamespaces lists names of namespaces, separated by commas or spaces. In
	// each, "*" stands for any characters.
	AnnotationNamespaces = domain + Name + "-namespaces"
	// AnnotationNamespaceSelector selects namespaces by their labels.
	AnnotationNamespaceSelector = domain + Name + "-namespace-selector"
)

// The types of Secrets that are not copied: the first two are bound to their namespace, and a
// Helm release is obeyed where it is.
var uncopied = []corev1.SecretType{corev1.SecretTypeServiceAccountToken, "bootstrap.kubernetes.io/token", "helm.sh/release.v1"}

// answer is what the mark of an object says.
type answer int

const (
	silent answer = iota // there is no mark
	yes
	no
	unclear
)

// answerOf returns what the mark of a source or a namespace says.
func (c Config) answerOf(obj metav1.Object) answer {
	value, ok := obj.GetAnnotations()[c.Annotation]
	isYes, isClear := text.Answer(value)
	switch {
	case !ok:
		return silent
	case !isClear:
		return unclear
	case isYes:
		return yes
	}
	return no
}

// isReserved reports whether copies are never written to a namespace, or deleted from it.
func (c Config) isReserved(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic || namespace == c.SourceNamespace
}

// isTarget reports whether a namespace asks for copies.
func (c Config) isTarget(namespace *corev1.Namespace) bool {
	return !c.isReserved(namespace.Name) && namespace.DeletionTimestamp == nil && c.answerOf(namespace) == yes
}

// restriction says which of the marked namespaces can have a copy of a source. The zero
// value allows all.
type restriction struct {
	names    []string // patterns; nil for any name
	selector labels.Selector
}

// restrictionOf returns the restriction of a source. An error says why it is unclear.
func (c Config) restrictionOf(source *corev1.Secret) (r restriction, err error) {
	names, hasNames := source.Annotations[AnnotationNamespaces]
	selector, hasSelector := source.Annotations[AnnotationNamespaceSelector]
	switch {
	case hasNames && hasSelector:
		return r, fmt.Errorf("it has both annotations, %s and %s: keep one", AnnotationNamespaces, AnnotationNamespaceSelector)
	case hasNames:
		if r.names, err = parseNames(names); err != nil {
			err = fmt.Errorf("annotation %s: %w", AnnotationNamespaces, err)
		}
	case hasSelector:
		if r.selector, err = parseSelector(selector); err != nil {
			err = fmt.Errorf("annotation %s: %w", AnnotationNamespaceSelector, err)
		}
	case c.RequireReceivers:
		err = fmt.Errorf("annotation %s or %s must say which namespaces can have it", AnnotationNamespaces, AnnotationNamespaceSelector)
	}
	return r, err
}

// allows reports whether a namespace can have a copy.
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

// whyUnclear returns why it is unclear which namespaces should have a copy of a Secret in the
// source namespace; empty if it is clear. A key that is nearly right was probably meant to
// narrow the circle.
func (c Config) whyUnclear(source *corev1.Secret) string {
	if c.answerOf(source) == unclear {
		return c.howToMark(source)
	}
	if unknown := c.unknownKeys(source); len(unknown) > 0 {
		return strings.Join(unknown, "; ")
	}
	if slices.Contains(uncopied, source.Type) {
		return fmt.Sprintf("Secrets of type %s are not copied", source.Type)
	}
	if _, err := c.restrictionOf(source); err != nil {
		return err.Error()
	}
	return ""
}

// unknownKeys names the annotations and labels of a source that look like this controller's and
// mean nothing, each with the closest annotation that does.
func (c Config) unknownKeys(source *corev1.Secret) (all []string) {
	known := []string{AnnotationNamespaces, AnnotationNamespaceSelector, c.Annotation, DefaultAnnotation}
	others := []string{AnnotationSourceName, AnnotationMadeFor, AnnotationSourceNamespaceUID} // if it was restored from a copy
	for _, key := range slices.Sorted(maps.Keys(source.Annotations)) {
		if isOurKey(key) && !slices.Contains(known, key) && !slices.Contains(others, key) {
			all = append(all, fmt.Sprintf("annotation %s is unknown; the closest known one is %s", key, closest(key, known[:3])))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(source.Labels)) {
		if isOurKey(key) && key != LabelSourceNamespace {
			all = append(all, fmt.Sprintf("label %s means nothing; the closest known annotation is %s", key, closest(key, known[:3])))
		}
	}
	return all
}

func isOurKey(key string) bool { return strings.HasPrefix(strings.ToLower(key), domain) }

// closest returns the word to which the fewest letters have to change.
func closest(to string, words []string) string {
	return slices.MinFunc(words, func(a, b string) int { return distance(to, a) - distance(to, b) })
}

// distance returns the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// warningAboutSource returns what is wrong with the annotations of a Secret in the source
// namespace; the zero Problem if nothing is.
func (c Config) warningAboutSource(source *corev1.Secret) Problem {
	if answer := c.answerOf(source); answer == silent || answer == no {
		return Problem{}
	}
	why := c.whyUnclear(source)
	if why == "" {
		return Problem{}
	}
	return Problem{ReasonUnclear, "No copy is created, changed or deleted until it is clear what is meant: " + why}
}

// warningAboutNamespace returns what is wrong with the annotation of a namespace; the zero
// Problem if nothing is.
func (c Config) warningAboutNamespace(namespace *corev1.Namespace) Problem {
	if c.isReserved(namespace.Name) || namespace.DeletionTimestamp != nil || c.answerOf(namespace) != unclear {
		return Problem{}
	}
	return Problem{ReasonUnclear, "No copy here is created, changed or deleted until it is clear what is meant, unless its source says no: " + c.howToMark(namespace)}
}

func (c Config) howToMark(obj metav1.Object) string {
	return fmt.Sprintf(`annotation %s is %.60q: for yes, it must be empty or "true"; for no, "false"`, c.Annotation, obj.GetAnnotations()[c.Annotation])
}
