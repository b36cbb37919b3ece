package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// AuditEvent is what the audit log holds of one stage of one request.
type AuditEvent struct {
	ID             string
	Stage          string // ResponseComplete, or ResponseStarted for a watch
	User           string
	Impersonated   string // the user it was done as, if another
	UserAgent      string
	Verb           string
	Resource       string
	Subresource    string
	APIGroup       string
	APIVersion     string
	Namespace      string
	Name           string
	Code           int    // of the response
	Decision       string // of the authorizer: allow or forbid
	Refusal        string // JSON of what ValidatingAdmissionPolicies that audit refused it for
	RequestURI     string
	Received       time.Time       // when the request arrived
	StageTimestamp time.Time       // when the stage was reached
	RequestObject  json.RawMessage // with Options.AuditBodies
	ResponseObject json.RawMessage // with Options.AuditBodies
}

// auditLine is audit.k8s.io/v1 Event as far as it is of use here.
type auditLine struct {
	AuditID                  string            `json:"auditID"`
	Stage                    string            `json:"stage"`
	RequestURI               string            `json:"requestURI"`
	Verb                     string            `json:"verb"`
	User                     auditUser         `json:"user"`
	ImpersonatedUser         auditUser         `json:"impersonatedUser"`
	UserAgent                string            `json:"userAgent"`
	ObjectRef                auditObject       `json:"objectRef"`
	ResponseStatus           auditStatus       `json:"responseStatus"`
	Annotations              map[string]string `json:"annotations"`
	RequestObject            json.RawMessage   `json:"requestObject"`
	ResponseObject           json.RawMessage   `json:"responseObject"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time         `json:"stageTimestamp"`
}

type auditUser struct {
	Username string `json:"username"`
}

type auditObject struct {
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
}

type auditStatus struct {
	Code int `json:"code"`
}

// ReadAudit reads an audit log in the order in which it was written, or, as that
// can be long, only those of its lines that contain all these words. It may be
// read while the cluster runs: an event is written before its request is
// answered, except that a large answer may have begun to arrive. A file that is
// not there yet is an empty one, and a last line without end is left for later.
func ReadAudit(path string, words ...string) ([]*AuditEvent, error) {
	return (&AuditReader{Path: path, Words: words}).Next()
}

// AuditReader reads an audit log as it grows, each event once.
type AuditReader struct {
	Path  string
	Words []string // that a line has to contain to be read

	offset int64 // of what has not been read
}

// Next reads what was written since it last did; see [ReadAudit].
func (r *AuditReader) Next() ([]*AuditEvent, error) {
	file, err := os.Open(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(r.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}

	var events []*AuditEvent
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		r.offset += int64(len(line))
		if slices.ContainsFunc(r.Words, func(word string) bool { return !bytes.Contains(line, []byte(word)) }) {
			continue
		}
		var parsed auditLine
		if err := json.Unmarshal(line, &parsed); err != nil {
			return nil, fmt.Errorf("reading the audit log up to byte %d: %w", r.offset, err)
		}
		events = append(events, parsed.event())
	}
}

func (l auditLine) event() *AuditEvent {
	return &AuditEvent{
		ID:             l.AuditID,
		Stage:          l.Stage,
		User:           l.User.Username,
		Impersonated:   l.ImpersonatedUser.Username,
		UserAgent:      l.UserAgent,
		Verb:           l.Verb,
		Resource:       l.ObjectRef.Resource,
		Subresource:    l.ObjectRef.Subresource,
		APIGroup:       l.ObjectRef.APIGroup,
		APIVersion:     l.ObjectRef.APIVersion,
		Namespace:      l.ObjectRef.Namespace,
		Name:           l.ObjectRef.Name,
		Code:           l.ResponseStatus.Code,
		Decision:       l.Annotations["authorization.k8s.io/decision"],
		Refusal:        l.Annotations["validation.policy.admission.k8s.io/validation_failure"],
		RequestURI:     l.RequestURI,
		Received:       l.RequestReceivedTimestamp,
		StageTimestamp: l.StageTimestamp,
		RequestObject:  l.RequestObject,
		ResponseObject: l.ResponseObject,
	}
}
