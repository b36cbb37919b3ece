// Command verify-manifests reads the YAML files that are given as arguments, and reports
// documents that kubectl cannot apply: those that are not valid YAML, have duplicate keys,
// or lack an apiVersion, a kind or a name.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func main() {
	broken := 0
	for _, file := range os.Args[1:] {
		content, err := os.ReadFile(file)
		if err == nil {
			err = check(content)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			broken++
		}
	}
	if broken > 0 {
		os.Exit(1)
	}
}

// check returns one error for each document that is not a valid object, joined together.
func check(content []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var errs []error
	objects := 0
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		found, err := checkDocument(document)
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", number, err))
		}
		if found {
			objects++
		}
	}
	if objects == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no object"))
	}
	return errors.Join(errs...)
}

// checkDocument returns an error if a document is not a valid object. found reports whether
// the document contains anything but comments.
func checkDocument(document []byte) (found bool, err error) {
	var fields map[string]any
	if err := yaml.UnmarshalStrict(document, &fields); err != nil {
		return true, err
	}
	if len(fields) == 0 {
		return false, nil
	}
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(document, &object); err != nil {
		return true, err
	}
	switch {
	case object.APIVersion == "":
		return true, errors.New("no apiVersion")
	case object.Kind == "":
		return true, errors.New("no kind")
	case object.Name == "" && object.GenerateName == "" && fields["items"] == nil:
		return true, errors.New("no metadata.name")
	}
	return true, nil
}
