// Command cluster-schemas prints the path of a directory with a JSON schema for
// every kind that the local cluster serves, the repository's own among them, as
// kubeconform wants them. They are made of the API server's OpenAPI, strictly: a
// field that it does not know is refused.
//
// The first run for a version of Kubernetes starts the local cluster, and thereby
// builds it where that has not been done, which takes minutes. Later runs find the
// directory in the user's cache.
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// own is what the repository's CustomResourceDefinition adds to the API.
const own = "apis/controller.nicoleh.io/v1alpha1"

// holdsKinds matches what of the API is about objects.
var holdsKinds = regexp.MustCompile(`^(api/[^/]+|apis/[^/]+/[^/]+)$`)

// The schemas depend on how they are made.
//
//go:embed main.go
var source []byte

func main() {
	root := flag.String("root", ".", "`directory` of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	dir, err := ensure(ctx, *root)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster-schemas: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

// ensure makes the schemas if they are not in the cache.
func ensure(ctx context.Context, root string) (dir string, err error) {
	crd := filepath.Join(root, "artifacts", "examples", "crd-icecream.yaml")
	hash := sha256.New()
	hash.Write(source)
	for _, file := range []string{crd, filepath.Join(root, "hack", "local-cluster", "parts", "go.mod")} {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		hash.Write(content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "k8s-controller", "cluster-schemas", fmt.Sprintf("%x", hash.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}

	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := fetch(ctx, crd, temp); err != nil {
		return "", err
	}
	if err := os.Rename(temp, dir); err != nil {
		if _, err := os.Stat(dir); err == nil {
			return dir, nil // somebody else was faster
		}
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// fetch starts a cluster, and writes the schemas of what it serves into dir.
func fetch(ctx context.Context, crd, dir string) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{OnlyAPI: true, Log: os.Stderr})
	if err != nil {
		return fmt.Errorf("starting the local cluster: %w", err)
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	apply := exec.CommandContext(ctx, c.Kubectl(), "--kubeconfig="+c.Kubeconfig(), "apply", "-f", crd)
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying %s: %w: %s", crd, err, output)
	}
	client, err := discovery.NewDiscoveryClientForConfig(c.RESTConfig())
	if err != nil {
		return err
	}

	// The server publishes a new kind a moment after it has been told of it.
	var served map[string]openapi.GroupVersion
	for served[own] == nil {
		if served, err = client.OpenAPIV3().Paths(); err != nil {
			return fmt.Errorf("reading what the cluster serves: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster to serve %s: %w", own, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	for path, version := range served {
		if !holdsKinds.MatchString(path) {
			continue
		}
		content, err := version.Schema(runtime.ContentTypeJSON)
		if err != nil {
			return fmt.Errorf("reading the OpenAPI of %s: %w", path, err)
		}
		if err := write(content, dir); err != nil {
			return fmt.Errorf("making schemas of %s: %w", path, err)
		}
	}
	return nil
}

// write writes a schema for each kind of an OpenAPI document: the kind, and all
// definitions of the document for it to refer to.
func write(document []byte, dir string) error {
	var openAPI struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &openAPI); err != nil {
		return err
	}
	for _, schema := range openAPI.Components.Schemas {
		restrict(schema)
	}
	for name, schema := range openAPI.Components.Schemas {
		file := fileName(schema)
		if file == "" {
			continue
		}
		content, err := json.Marshal(map[string]any{
			"$schema":    "https://json-schema.org/draft/2020-12/schema",
			"$ref":       "#/components/schemas/" + name,
			"components": openAPI.Components,
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileName is where kubeconform looks for the schema of a kind. It is empty for
// what is a part of kinds, or common to many groups as DeleteOptions is.
func fileName(schema map[string]any) string {
	kinds, _ := schema["x-kubernetes-group-version-kind"].([]any)
	if len(kinds) != 1 {
		return ""
	}
	kind, _ := kinds[0].(map[string]any)
	name := fmt.Sprint(kind["kind"])
	if group, _, _ := strings.Cut(fmt.Sprint(kind["group"]), "."); group != "" {
		name += "-" + group
	}
	return strings.ToLower(fmt.Sprintf("%s-%s.json", name, kind["version"]))
}

// restrict forbids fields that an object does not have, and leaves out the prose.
func restrict(schema map[string]any) {
	delete(schema, "description")
	properties, _ := schema["properties"].(map[string]any)
	_, open := schema["additionalProperties"]
	if properties != nil && !open && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	parts := slices.Collect(maps.Values(properties))
	parts = append(parts, schema["items"], schema["additionalProperties"])
	for _, of := range []string{"allOf", "anyOf", "oneOf"} {
		some, _ := schema[of].([]any)
		parts = append(parts, some...)
	}
	for _, part := range parts {
		if part, ok := part.(map[string]any); ok {
			restrict(part)
		}
	}
}
