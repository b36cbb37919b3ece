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
	"time"
)

// AuditEvent is what is of use here of an audit.k8s.io/v1 Event: one stage of one request.
type AuditEvent struct {
	Stage          string // ResponseComplete, or ResponseStarted for a watch
	Verb           string
	UserAgent      string
	RequestURI     string
	Received       time.Time `json:"requestReceivedTimestamp"`
	StageTimestamp time.Time // when the stage was reached

	AuditUser        `json:"user"`
	AuditObject      `json:"objectRef"`
	AuditResponse    `json:"responseStatus"`
	AuditAnnotations `json:"annotations"`
}

// AuditUser is who made a request.
type AuditUser struct {
	User string `json:"username"`
}

// AuditObject is the object of a request.
type AuditObject struct{ Resource, Subresource, APIGroup, Namespace, Name string }

// AuditResponse is the answer to a request.
type AuditResponse struct{ Code int }

// AuditAnnotations are what the API server says about a request.
type AuditAnnotations struct {
	// Decision of the authorizer: allow or forbid.
	Decision string `json:"authorization.k8s.io/decision"`
	// Denial is JSON of what ValidatingAdmissionPolicies that audit refused it for.
	Denial string `json:"validation.policy.admission.k8s.io/validation_failure"`
}

// AuditLog returns the path of the audit log.
func (c *Cluster) AuditLog() string { return c.file("audit.log") }

// AuditReader reads an audit log as it grows, each event once.
type AuditReader struct {
	Path   string
	offset int64 // of what has not been read
}

// Next reads what was written since it last did, in the order in which it was written. An
// event is written before its request is answered, except that a large answer may have begun
// to arrive. A file that is not there yet is an empty one, and a last line without end is
// left for later.
func (r *AuditReader) Next() ([]*AuditEvent, error) {
	file, err := os.Open(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(r.offset, io.SeekStart); err != nil {
		return nil, err
	}
	var events []*AuditEvent
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		r.offset += int64(len(line))
		event, err := eventOf(line)
		if err != nil {
			return nil, fmt.Errorf("reading %s up to byte %d: %w", r.Path, r.offset, err)
		}
		events = append(events, event)
	}
}

// eventOf returns the event in a line. An API server that is killed leaves the beginning of one, which the next one
// continues with its first event.
func eventOf(line []byte) (*AuditEvent, error) {
	event := &AuditEvent{}
	err := json.Unmarshal(line, event)
	if begins := bytes.LastIndex(line, []byte(`{"kind":"Event",`)); err != nil && begins > 0 {
		event = &AuditEvent{}
		err = json.Unmarshal(line[begins:], event)
	}
	return event, err
}
