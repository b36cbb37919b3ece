package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestAuditPolicy(t *testing.T) {
	for _, test := range []struct {
		name   string
		users  []string
		bodies bool
		want   string
	}{
		{
			name:  "some users",
			users: []string{"alice", "bob"},
			want: `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [alice, bob]
- level: None
`,
		},
		{
			name:   "everybody, with bodies",
			users:  []string{"alice", AllUsers},
			bodies: true,
			want: `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
- level: None
`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			encoded, err := yaml.Marshal(auditPolicy(test.users, test.bodies))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := yaml.Unmarshal(encoded, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadAudit(t *testing.T) {
	const patch = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1","stage":"ResponseComplete",` +
		`"requestURI":"/apis/apps/v1/namespaces/default/deployments/web/scale","verb":"patch",` +
		`"user":{"username":"alice","groups":["g"]},"impersonatedUser":{"username":"bob"},"userAgent":"test/1",` +
		`"objectRef":{"resource":"deployments","subresource":"scale","namespace":"default","name":"web","apiGroup":"apps","apiVersion":"v1"},` +
		`"responseStatus":{"metadata":{},"code":200},"requestObject":{"spec":{"replicas":2}},` +
		`"requestReceivedTimestamp":"2026-11-21T07:00:00.000001Z","stageTimestamp":"2026-11-21T07:00:01.000001Z"}` + "\n"
	const version = `{"stage":"ResponseComplete","verb":"get","requestURI":"/version","user":{"username":"alice"}}` + "\n"
	received := time.Date(2026, 11, 21, 7, 0, 0, 1000, time.UTC)
	wantPatch := &AuditEvent{
		ID: "1", Stage: "ResponseComplete", User: "alice", Impersonated: "bob", UserAgent: "test/1",
		Verb: "patch", Resource: "deployments", Subresource: "scale", APIGroup: "apps", APIVersion: "v1",
		Namespace: "default", Name: "web", Code: 200,
		RequestURI: "/apis/apps/v1/namespaces/default/deployments/web/scale",
		Received:   received, StageTimestamp: received.Add(time.Second),
		RequestObject: []byte(`{"spec":{"replicas":2}}`),
	}
	wantVersion := &AuditEvent{Stage: "ResponseComplete", User: "alice", Verb: "get", RequestURI: "/version"}

	for _, test := range []struct {
		name, content string
		words         []string
		want          []*AuditEvent
		wantErr       bool
	}{
		{name: "an empty log"},
		{name: "events in order", content: patch + version, want: []*AuditEvent{wantPatch, wantVersion}},
		{name: "only lines with all the words", content: patch + version, words: []string{"alice", "/version"}, want: []*AuditEvent{wantVersion}},
		{name: "a line that is still being written", content: version + patch[:40], want: []*AuditEvent{wantVersion}},
		{name: "no audit log", content: "hello\n", wantErr: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ReadAudit(path, test.words...)
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %v", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	if got, err := ReadAudit(filepath.Join(t.TempDir(), "absent")); got != nil || err != nil {
		t.Errorf("a log that is not there yet: %v, %v; want nothing", got, err)
	}
}

func TestAuditReaderReadsEachEventOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := AuditReader{Path: path}
	for _, step := range []struct {
		written string
		want    []string // users
	}{
		{"", nil},
		{`{"user":{"username":"alice"}}` + "\n", []string{"alice"}},
		{"", nil},
		{`{"user":{"username":"bob"}}` + "\n" + `{"user":{"user`, []string{"bob"}},
		{`name":"carol"}}` + "\n", []string{"carol"}},
	} {
		if _, err := file.WriteString(step.written); err != nil {
			t.Fatal(err)
		}
		events, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			got = append(got, e.User)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", step.written, diff)
		}
	}
}
