package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CompactEtcd removes all but the latest revision of each object from etcd, as the API server
// does every five minutes. Watches can then not be resumed from before, except from what the
// API server remembers.
func (c *Cluster) CompactEtcd(ctx context.Context) error {
	namespaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// The resourceVersion of a list is a revision of etcd.
	return c.askEtcd(ctx, "v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, namespaces.ResourceVersion))
}

// FillEtcd makes etcd refuse writes as if its quota was used up, or ends that.
func (c *Cluster) FillEtcd(ctx context.Context, isFull bool) error {
	action := "DEACTIVATE"
	if isFull {
		action = "ACTIVATE"
	}
	return c.askEtcd(ctx, "v3/maintenance/alarm", fmt.Sprintf(`{"action": %q, "alarm": "NOSPACE"}`, action))
}

// askEtcd sends a request to etcd's gateway.
func (c *Cluster) askEtcd(ctx context.Context, path, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.plane.Etcd.URL.JoinPath(path).String(), strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body) // it only adds to the error
		return fmt.Errorf("%s of etcd: %s: %s", path, response.Status, text)
	}
	return nil
}
