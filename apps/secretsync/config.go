package main

import (
	"flag"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Config is what an operator can choose.
type Config struct {
	// SourceNamespace is the namespace of the Secrets to copy.
	SourceNamespace string
	// Annotation marks the Secrets to copy and the namespaces to copy them to. Only a true
	// value counts, such as "true", or no value.
	Annotation string
	// RequireReceivers restricts copying to Secrets that say which namespaces may have
	// them.
	RequireReceivers bool
}

// addFlags adds the controller's flags and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	flags.StringVar(&c.SourceNamespace, "source-namespace", "secretsync", "The namespace whose Secrets secretsync copies.")
	flags.StringVar(&c.Annotation, "annotation", DefaultAnnotation, "The annotation that selects the Secrets to copy and the namespaces to copy them to. No value, \"true\", \"yes\", \"on\" and \"1\" mean yes.")
	flags.BoolVar(&c.RequireReceivers, "require-receivers", false, "Copy only Secrets whose annotation "+AnnotationNamespaces+" or "+AnnotationNamespaceSelector+" selects their target namespaces.")
}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error {
	switch {
	case len(validation.IsDNS1123Label(c.SourceNamespace)) > 0:
		return fmt.Errorf("-source-namespace=%q is not the name of a namespace", c.SourceNamespace)
	case len(validation.IsQualifiedName(strings.ToLower(c.Annotation))) > 0: // as the API server checks it
		return fmt.Errorf("-annotation=%q is not the key of an annotation, such as example.com/secretsync", c.Annotation)
	}
	return nil
}
