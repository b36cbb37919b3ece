package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Request is an HTTP request to the API server.
type Request struct {
	Method, Path string
	Query        url.Values
	ContentType  string
	AsMetadata   bool   // whether the client accepts metadata only (PartialObjectMetadata)
	Body         []byte // JSON or protobuf
}

// ReadRequest reads a request completely.
func ReadRequest(r *http.Request) (Request, error) {
	request := Request{
		Method:      r.Method,
		Path:        r.URL.Path,
		Query:       r.URL.Query(),
		ContentType: r.Header.Get("Content-Type"),
		AsMetadata:  strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"),
	}
	if r.Body == nil {
		return request, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return request, fmt.Errorf("reading the body of a request: %w", err)
	}
	request.Body = body
	return request, r.Body.Close()
}

// Response is the answer to a request.
type Response struct {
	Code       int
	Body       []byte // JSON of an object, a list or a metav1.Status
	RetryAfter int    // in seconds; 0 if the response does not ask for it
	Warning    string // empty if there is none
}

// HTTP returns the response in the form in which a transport returns it.
func (r Response) HTTP(to *http.Request) *http.Response {
	header := http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	if r.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(r.RetryAfter))
	}
	if r.Warning != "" {
		header.Set("Warning", fmt.Sprintf("299 - %q", r.Warning))
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", r.Code, http.StatusText(r.Code)),
		StatusCode:    r.Code,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(r.Body)),
		ContentLength: int64(len(r.Body)),
		Request:       to,
	}
}

// respond returns the response with that body.
func respond(code int, body any) Response {
	encoded, err := json.Marshal(body)
	if err != nil {
		return Refuse(apierrors.NewInternalError(err))
	}
	return Response{Code: code, Body: encoded}
}

// Refuse returns the response to a request that fails with an error. One that is no status of the
// API server is an internal error.
func Refuse(err error) Response {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	status.APIVersion, status.Kind = "v1", "Status"
	response := respond(int(status.Code), status)
	if status.Details != nil {
		response.RetryAfter = int(status.Details.RetryAfterSeconds)
	}
	return response
}

// asMetadata returns the response with the metadata of its object, or of the objects of its list.
func (r Response) asMetadata() Response {
	var content map[string]any
	if r.Code >= http.StatusBadRequest {
		return r
	}
	if err := json.Unmarshal(r.Body, &content); err != nil {
		return Refuse(err)
	}
	items, isList := content["items"].([]any)
	if !isList {
		return respond(r.Code, Metadata(content))
	}
	for i, item := range items {
		items[i] = Metadata(item.(map[string]any))
	}
	content["kind"], content["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	if len(items) == 0 {
		content["items"] = nil
	}
	return respond(r.Code, content)
}

// Metadata returns an object as a client sees it that accepts metadata only.
func Metadata(object map[string]any) map[string]any {
	return map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}
}

// errOf returns the error that a response is for a client, or nil.
func (r Response) errOf() error {
	if r.Code < http.StatusBadRequest {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(r.Body, &status); err != nil {
		return fmt.Errorf("a response with code %d is no Status: %w", r.Code, err)
	}
	return apierrors.FromObject(&status)
}

// target is what a request is about.
type target struct {
	verb        string
	kind        *Kind
	key         Key // without a name for a list and a POST
	subresource string
}

// Parse says what a request is about, for people and tests. The verb is get, list, create,
// update, patch or delete. The name of an object that is to be created is not in the
// path, so Parse reads it from the body. ok is false if the server knows no such request.
func (s *Server) Parse(r Request) (verb string, key Key, subresource string, ok bool) {
	t, err := s.parse(r)
	if err != nil {
		return "", Key{}, "", false
	}
	if t.verb == "create" && t.key.Name == "" {
		if obj, err := t.kind.decode(r.Body); err == nil {
			t.key.Name = obj.GetName()
		}
	}
	return t.verb, t.key, t.subresource, true
}

var paths = &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// parse returns what a request is about, or the error for one that is not covered.
func (s *Server) parse(r Request) (t target, err error) {
	info, err := paths.NewRequestInfo(&http.Request{Method: r.Method, URL: &url.URL{Path: r.Path, RawQuery: r.Query.Encode()}})
	if err != nil {
		return t, apierrors.NewBadRequest(err.Error())
	}
	t.verb, t.subresource = info.Verb, info.Subresource
	t.key = Key{Resource: schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, Namespace: info.Namespace, Name: info.Name}
	t.kind = s.kinds[t.key.Resource.WithVersion(info.APIVersion)]
	if t.kind != nil && t.kind.isNamespace {
		t.key.Namespace = ""
	}
	if t.verb == "list" {
		t.key.Name = "" // which a field selector may have set
	}
	if t.kind == nil || t.kind.Namespaced != (t.key.Namespace != "") && (t.verb != "list" || !t.kind.Namespaced) {
		return t, apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method), t.key.Resource, "", "", 0, false)
	}
	verbs := []string{"get", "list", "create", "update", "patch", "delete"}
	switch {
	case t.subresource == "status" && t.kind.isCustom:
		verbs = []string{"get", "update", "patch"}
	case t.subresource == "eviction" && t.kind.gracePeriod != nil:
		verbs = []string{"create"}
	case t.subresource != "":
		verbs = nil
	}
	if !slices.Contains(verbs, t.verb) {
		return t, apierrors.NewMethodNotSupported(t.key.Resource, strings.ToLower(r.Method))
	}
	for _, option := range []string{"continue", "gracePeriodSeconds", "propagationPolicy"} {
		if r.Query.Has(option) {
			return t, notCovered(option + " in the query")
		}
	}
	if r.Query.Has("dryRun") && t.verb == "delete" {
		return t, notCovered("dry runs of deletions")
	}
	return t, nil
}

// patchType returns the type of a patch, without a charset.
func patchType(r Request) types.PatchType {
	mediaType, _, _ := strings.Cut(r.ContentType, ";")
	return types.PatchType(mediaType)
}

// notCovered returns the error for a request that the model does not understand.
func notCovered(what string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotImplemented, "", schema.GroupResource{}, "", "the model of the API server does not cover "+what, 0, true)
}
