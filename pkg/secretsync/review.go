package secretsync

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// review records a warning about the annotations of a source or a namespace, if they are
// not as they should be and that is news.
func (c *Controller) review(name cache.ObjectName) error {
	var regarding runtime.Object
	var problem Problem
	if name.Namespace == metav1.NamespaceNone {
		if namespace := c.namespaces.Get("", name.Name); namespace != nil {
			regarding, problem = namespace, c.warningAboutNamespace(namespace)
		}
	} else if source := c.sources.Get(name.Namespace, name.Name); source != nil {
		regarding, problem = source, c.config.warningAboutSource(source)
	}
	if problem == c.memories.get(name).Problem {
		return nil
	}
	c.memories.set(name, Memory{Problem: problem})
	if problem == (Problem{}) {
		return nil
	}
	c.recorder.Eventf(regarding, nil, corev1.EventTypeWarning, problem.Reason, "Copy", "%s", capitalize(problem.Message))
	return worker.Terminal(errors.New(problem.Message))
}

// capitalize returns s with its first letter in upper case. s must not be empty.
func capitalize(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// warningAboutSource returns what is wrong with the annotations of a source; the zero
// Problem if nothing is.
func (c Config) warningAboutSource(source *corev1.Secret) Problem {
	if unclear := c.unclear(source); unclear != (Problem{}) {
		return unclear
	}
	if _, err := c.receiversOf(source); err != nil && c.IsSource(source) {
		return Problem{ReasonNoReceivers, "no namespace gets a copy: " + err.Error()}
	}
	return Problem{}
}

// warningAboutNamespace returns what is wrong with the annotations of a namespace now;
// the zero Problem if nothing is.
func (c *Controller) warningAboutNamespace(namespace *corev1.Namespace) Problem {
	if namespace.Name == c.config.SourceNamespace {
		return warningAboutConfirmation(namespace, c.clock.Now())
	}
	return c.config.warningAboutTarget(namespace)
}

// warningAboutTarget returns what is wrong with the mark of a namespace; the zero Problem
// if nothing is.
func (c Config) warningAboutTarget(namespace *corev1.Namespace) Problem {
	if c.isReserved(namespace.Name) || namespace.DeletionTimestamp != nil {
		return Problem{}
	}
	return c.unclear(namespace)
}

// unclear returns a problem if the object's mark is neither a yes nor "false".
func (c Config) unclear(obj metav1.Object) Problem {
	value, isMarked := obj.GetAnnotations()[c.Annotation]
	if !isMarked || isYes(value) || value == "false" {
		return Problem{}
	}
	return Problem{ReasonUnclear, fmt.Sprintf(`annotation %s is %.60q, which counts as no: for yes, it must be empty or "true"; for no, "false"`, c.Annotation, value)}
}
