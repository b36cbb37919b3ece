package explore

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// checkSent returns what is wrong with a request that a program sends.
func (w *walker) checkSent(parts []situation, request text) (string, error) {
	r, err := parseRequest(w.render(request))
	if err != nil {
		return "", err
	}
	sent := Sent{Syncing: snapshot.Name(w.get(parts[0].key).raw), IsBehind: parts[0].arg != 0, Body: r.Body}
	sent.Verb, sent.Key, sent.Subresource, _ = w.server.Parse(r)
	if isWrite := sent.Verb != "get" && sent.Verb != "list"; isWrite && parts[len(parts)-1].phase != leading {
		return "a process whose term has ended sends a write", nil
	}
	if w.setup.Checks.Sent == nil {
		return "", nil
	}
	for _, c := range parts[0].caches {
		for _, o := range c.objects {
			object, err := w.unstructured(o.text)
			if err != nil {
				return "", err
			}
			sent.Caches = append(sent.Caches, object)
		}
	}
	for _, part := range parts[1:] {
		var answer wire
		if err := json.Unmarshal([]byte(w.render(part.extra)), &answer); err != nil {
			return "", err
		}
		object := &unstructured.Unstructured{}
		if answer.Body != nil && object.UnmarshalJSON(answer.Body) == nil {
			sent.Answers = append(sent.Answers, object)
		}
	}
	return message(w.setup.Checks.Sent(sent)), nil
}

// knowledge is the URLs that a sync has read since its last write: the API server has answered
// with what is there, or that there is nothing.
type knowledge []string

// add adds a request of the sync and the response to it.
func (k *knowledge) add(request *http.Request, answer received) {
	switch {
	case request.Method != http.MethodGet:
		*k = nil
	case answer.err == nil && (answer.response.StatusCode < http.StatusMultipleChoices || answer.response.StatusCode == http.StatusNotFound):
		*k = append(*k, request.URL.String())
	}
}

// checkRead returns what is wrong with the next request of the sync if it reads what is known.
func (k *knowledge) checkRead(server *apiserver.Server, request *http.Request, r apiserver.Request) (wrong string) {
	if request.Method != http.MethodGet || !slices.Contains(*k, request.URL.String()) {
		return ""
	}
	verb, key, _, _ := server.Parse(r)
	return fmt.Sprintf("it sends %s %s %s again, but has had a response to that, and has written nothing since", verb, key.Resource.Resource, key.Name)
}
