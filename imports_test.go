package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The program has nothing that is large and that it hardly uses. Each of these has at least
// some megabytes, and is easily imported by accident, by way of another package.
func TestImports(t *testing.T) {
	large := map[string]string{
		"k8s.io/client-go/kubernetes":                        "it has all kinds of the API: pkg/kit/typed makes clients of some",
		"k8s.io/client-go/applyconfigurations":               "it imports client-go/kubernetes/scheme: pkg/kit/apply takes ordinary objects",
		"k8s.io/client-go/discovery":                         "it imports client-go/kubernetes/scheme",
		"k8s.io/client-go/informers":                         "pkg/kit/informer makes informers of some kinds",
		"k8s.io/client-go/testing":                           "client-go/gentype imports it for its fakes: pkg/kit/typed has clients of its own",
		"k8s.io/client-go/tools/leaderelection/resourcelock": "it imports client-go/kubernetes: pkg/kit/leader does without",
		"github.com/google/cel-go":                           "pkg/kit/serve makes its two reviews by itself",
		"go.opentelemetry.io/otel/sdk":                       "pkg/kit/serve makes its two reviews by itself",
		"google.golang.org/grpc":                             "pkg/kit/serve makes its two reviews by itself",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for imported := range strings.FieldsSeq(string(out)) {
		for of, why := range large {
			if imported == of || strings.HasPrefix(imported, of+"/") {
				t.Errorf("imports %s: %s", imported, why)
			}
		}
	}
}
