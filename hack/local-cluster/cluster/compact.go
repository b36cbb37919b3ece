package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// CompactEtcd removes all but the latest revision of each object from etcd, as the API server
// does every five minutes. Watches can then not be resumed from before, except from what the
// API server remembers.
func (c *Cluster) CompactEtcd(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	const anyKey = "Lw==" // in base64
	if err := c.callEtcd(ctx, "range", map[string]any{"key": anyKey, "count_only": true}, &now); err != nil {
		return err
	}
	return c.callEtcd(ctx, "compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, &struct{}{})
}

// callEtcd calls a method of etcd's key-value API through its JSON gateway.
func (c *Cluster) callEtcd(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, c.plane.Etcd.URL.JoinPath("v3", "kv", method).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(call)
	if err != nil {
		return fmt.Errorf("calling etcd: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("reading etcd's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s by etcd failed with %s: %s", method, answer.Status, text)
	}
	return json.Unmarshal(text, response)
}
