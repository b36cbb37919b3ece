package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

func databaseYAML(name string, fields ...string) string {
	return fmt.Sprintf("apiVersion: db.example.com/v1alpha1\nkind: Database\nmetadata: {name: %s}\nspec: {image: registry.example/database, %s}\n", name, strings.Join(fields, ", "))
}

// The example does what it says, with no other permissions than it asks for.
func TestExampleDatabase(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	startDatabaseController(t, n)

	n.Apply(t, databaseYAML("orders", "version: 9", "replicas: 2"))
	eventuallyRunsDatabase(t, n, "orders", "registry.example/database:9", 2)
	n.Apply(t, databaseYAML("orders", "version: 10", "replicas: 3"))
	eventuallyRunsDatabase(t, n, "orders", "registry.example/database:10", 3)
	if words := n.Refused(t, databaseYAML("orders", "version: 9")); !strings.Contains(words, "must not go down") {
		t.Errorf("the API server says %q", words)
	}
	n.Kubectl(t, "delete", "statefulset", "orders", "--wait")
	eventuallyRunsDatabase(t, n, "orders", "registry.example/database:10", 3)
}

// startDatabaseController runs the example in a namespace, under a service account that may do
// what the ClusterRole in install.yaml says.
func startDatabaseController(t *testing.T, n *lab.Namespace) {
	t.Helper()
	const artifacts = "../../examples/database/artifacts/"
	n.Kubectl(t, "apply", "-f", artifacts+"crd-database.yaml")
	manifest, err := os.ReadFile(artifacts + "install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			n.Apply(t, document)
		}
	}
	n.Kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "crd/databases.db.example.com")
	n.Kubectl(t, "create", "rolebinding", "database", "--clusterrole=database-controller", "--serviceaccount="+n.Name+":database")
	n.Kubectl(t, "create", "role", "database-lease", "--verb=get,create,update", "--resource=leases.coordination.k8s.io")
	n.Kubectl(t, "create", "rolebinding", "database-lease", "--role=database-lease", "--serviceaccount="+n.Name+":database")
	n.Kubectl(t, "create", "serviceaccount", "database")
	kubeconfig, err := n.Lab.ServiceAccountKubeconfig(t.Context(), n.Name, "database")
	if err != nil {
		t.Fatal(err)
	}
	controller := n.Lab.NewProgram(suite.Path(t, "./examples/database"),
		"-kubeconfig="+kubeconfig, "-bind-address=", "-namespace="+n.Name, "-leader-elect-resource-namespace="+n.Name)
	controller.StartForTest(t)
}

// eventuallyRunsDatabase waits until the Database is Ready with Pods of that image.
func eventuallyRunsDatabase(t *testing.T, n *lab.Namespace, name, image string, replicas int) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("%d Pods run %s", replicas, image), func(ctx context.Context) error {
		if err := requireReason(ctx, n, name, "Available"); err != nil {
			return err
		}
		pods := n.LivePods(t)
		for _, pod := range pods {
			if got := pod.Spec.Containers[0].Image; got != image {
				return fmt.Errorf("Pod %s runs %s", pod.Name, got)
			}
		}
		if len(pods) != replicas {
			return fmt.Errorf("there are %d Pods", len(pods))
		}
		return nil
	})
}

// requireReason returns an error unless the status is about the present spec of the Database,
// and its condition Ready has that reason.
func requireReason(ctx context.Context, n *lab.Namespace, name, reason string) error {
	out, err := n.TryKubectl(ctx, "", "get", "database", name, `-ojsonpath={.metadata.generation} {.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].reason}`)
	if err != nil {
		return err
	}
	if said := strings.Fields(out); len(said) != 3 || said[0] != said[1] || said[2] != reason {
		return fmt.Errorf("generation, observed generation and reason are %q", said)
	}
	return nil
}
