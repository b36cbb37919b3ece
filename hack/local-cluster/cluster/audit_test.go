package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const patch = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete",` +
	`"requestURI":"/apis/apps/v1/namespaces/default/deployments/web/scale","verb":"patch",` +
	`"user":{"username":"alice","groups":["g"]},"impersonatedUser":{"username":"bob"},"userAgent":"test/1",` +
	`"objectRef":{"resource":"deployments","subresource":"scale","namespace":"default","name":"web","apiGroup":"apps","apiVersion":"v1"},` +
	`"responseStatus":{"metadata":{},"code":200},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""},` +
	`"requestReceivedTimestamp":"2026-11-21T07:00:00.000001Z","stageTimestamp":"2026-11-21T07:00:01.000001Z"}` + "\n"

// The reader reads each event once, and a line only when it is complete.
func TestAuditReader(t *testing.T) {
	received := time.Date(2026, 11, 21, 7, 0, 0, 1000, time.UTC)
	wantPatch := &AuditEvent{
		Stage: "ResponseComplete", Verb: "patch", UserAgent: "test/1", RequestURI: "/apis/apps/v1/namespaces/default/deployments/web/scale",
		Received: received, StageTimestamp: received.Add(time.Second),
		AuditUser:        AuditUser{User: "alice"},
		AuditObject:      AuditObject{Resource: "deployments", Subresource: "scale", APIGroup: "apps", Namespace: "default", Name: "web"},
		AuditResponse:    AuditResponse{Code: 200},
		AuditAnnotations: AuditAnnotations{Decision: "allow"},
	}
	version := &AuditEvent{RequestURI: "/version"}
	path := filepath.Join(t.TempDir(), "audit.log")
	reader := AuditReader{Path: path}
	if got, err := reader.Next(); got != nil || err != nil {
		t.Errorf("a log that is not there yet: %v, %v; want nothing", got, err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, step := range []struct {
		written string
		want    []*AuditEvent
	}{
		{"", nil},
		{patch, []*AuditEvent{wantPatch}},
		{"", nil},
		{`{"requestURI":"/version"}` + "\n" + `{"request`, []*AuditEvent{version}},
		{`URI":"/version"}` + "\n" + patch, []*AuditEvent{version, wantPatch}},
	} {
		if _, err := file.WriteString(step.written); err != nil {
			t.Fatal(err)
		}
		got, err := reader.Next()
		if diff := cmp.Diff(step.want, got); err != nil || diff != "" {
			t.Errorf("after %q: %v (-want +got):\n%s", step.written, err, diff)
		}
	}
	if _, err := file.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := reader.Next(); err == nil {
		t.Errorf("a line that is no event is read as %v", got)
	}
}
