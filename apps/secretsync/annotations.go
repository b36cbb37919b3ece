package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/internal/text"
)

// Annotation says, on a source, which namespaces get a copy, and on a namespace whether it wants copies.
const Annotation = "controller.nicoleh.io/secretsync"

// The types of Secrets that are not copied: the first two are bound to their namespace, and Helm
// acts on a release wherever it is.
var uncopied = []corev1.SecretType{corev1.SecretTypeServiceAccountToken, "bootstrap.kubernetes.io/token", "helm.sh/release.v1"}

// answer is what one side says about a copy.
type answer int

const (
	silent   answer = iota // there is no annotation
	unclear                // its value has no clear meaning
	yes                    // the namespace wants copies, or the source's list contains the namespace
	no                     // the value is false
	unlisted               // the source's list does not contain the namespace
)

// answerOf returns what a namespace says.
func answerOf(namespace *corev1.Namespace) answer {
	value, ok := namespace.Annotations[Annotation]
	isYes, _ := text.Answer(value)
	switch {
	case !ok:
		return silent
	case isFalse(value):
		return no
	case isYes:
		return yes
	}
	return unclear
}

// answerTo returns what a source says about a namespace.
func answerTo(namespace string, source *corev1.Secret) answer {
	value, ok := source.Annotations[Annotation]
	isMatch := func(pattern string) bool {
		is, err := path.Match(pattern, namespace)
		return is && err == nil
	}
	switch {
	case !ok:
		return silent
	case isFalse(value):
		return no
	case whyUnclear(source) != "":
		return unclear
	case slices.ContainsFunc(listed(value), isMatch):
		return yes
	}
	return unlisted
}

// isFalse accepts YAML's spellings.
func isFalse(value string) bool { return slices.Contains([]string{"false", "False", "FALSE"}, value) }

// listed returns the names and patterns in a list.
func listed(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// whyUnclear returns why it is unclear which namespaces should get a source; empty if it is clear.
func whyUnclear(source *corev1.Secret) string {
	value, ok := source.Annotations[Annotation]
	if !ok || isFalse(value) {
		return ""
	}
	if slices.Contains(uncopied, source.Type) {
		return fmt.Sprintf("Secrets of type %s are not copied", source.Type)
	}
	isName := func(name string) bool {
		_, isWord := text.Answer(name)
		return !isWord && len(validation.IsDNS1123Label(strings.ReplaceAll(name, "*", "x"))) == 0
	}
	names := listed(value)
	wrong := slices.IndexFunc(names, func(name string) bool { return !isName(name) })
	switch {
	case len(names) == 0:
		return `its value must list namespaces, such as "team-a, web-*", or be "*" for all or "false" for none`
	case wrong >= 0:
		return fmt.Sprintf(`%.60q in its value is neither the name of a namespace nor a pattern such as "web-*", nor is all of it "false"`, names[wrong])
	}
	return ""
}
