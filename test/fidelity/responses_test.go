package fidelity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/test/lab"
)

var updateResponses = flag.Bool("update-responses", false, "write what the API server answers to pkg/kit/response/testdata")

const responses = "../../pkg/kit/response/testdata/responses.yaml"

// answer is one of the table that the test of package response reads.
type answer struct {
	Name   string        `json:"name"`
	Means  string        `json:"means"`
	Status metav1.Status `json:"status"`
}

// The table in pkg/kit/response is what a real API server answers to a write of the Deployment "cone".
func TestResponses(t *testing.T) {
	var table []answer
	readYAML(t, responses, &table)
	c := &causes{t: t}
	readYAML(t, "testdata/causes.yaml", c)
	c.realServer = startReal(t)
	c.serveWebhook()
	c.must(c.sendAll("", c.Before))
	all := c.all()
	for i, row := range table {
		if all[row.Name] == nil {
			t.Errorf("nothing makes the API server answer %q", row.Name)
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			c := *c
			c.t = t
			got := normal(t, all[row.Name](&c))
			if diff := cmp.Diff(row.Status, got); diff != "" {
				t.Errorf("the API server answers something else; run with -update-responses (-want +got):\n%s", diff)
			}
			table[i].Status = got
		})
		delete(all, row.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Errorf("the table has no row %q", name)
	}
	if *updateResponses {
		content, err := yaml.Marshal(table)
		c.must(errors.Join(err, os.WriteFile(responses, content, 0o600)))
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(content, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// normal returns the response in an error, without what differs from run to run.
func normal(t *testing.T, err error) metav1.Status {
	t.Helper()
	var response apierrors.APIStatus
	if !errors.As(err, &response) {
		t.Fatalf("it is no response: %v", err)
	}
	raw, err := json.Marshal(response.Status())
	if err != nil {
		t.Fatal(err)
	}
	for pattern, replacement := range map[string]string{
		`causes-[a-z0-9]+`:                          "parlor",
		`127\.0\.0\.1:\d+`:                          "127.0.0.1:443",
		`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`: "00000000-0000-0000-0000-000000000000",
	} {
		raw = regexp.MustCompile(pattern).ReplaceAll(raw, []byte(replacement))
	}
	var status metav1.Status
	if err := json.Unmarshal(raw, &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// causes is testdata/causes.yaml, which says what its fields mean, and where they are tried.
type causes struct {
	Cone    json.RawMessage          `json:"cone"`
	Before  []step                   `json:"before"`
	Denials map[string]metav1.Status `json:"denials"`
	Causes  map[string][]step        `json:"causes"`

	*realServer `json:"-"`
	t           *testing.T
	url, ca     string // of the webhook
}

// step is a request and its body.
type step map[string]json.RawMessage

// all returns what makes the API server refuse the write, by name.
func (c *causes) all() map[string]func(*causes) error {
	all := map[string]func(*causes) error{
		"its definition does not exist": func(c *causes) error {
			return c.clientFor(schema.GroupVersion{Group: "db.example.com", Version: "v1"}, nil).Put().
				Namespace(c.namespace("")).Resource("databases").Name("cone").Body([]byte("{}")).Do(c.t.Context()).Error()
		},
		"etcd refuses to write": func(c *causes) error {
			ns := c.namespace("")
			c.must(c.cluster.FillEtcd(c.t.Context(), true))
			defer func() { c.must(c.cluster.FillEtcd(context.WithoutCancel(c.t.Context()), false)) }()
			return c.request(ns, "POST", []byte("{}")).Do(c.t.Context()).Error()
		},
		"the credentials are wrong": func(c *causes) error {
			client := c.clientFor(appsv1.SchemeGroupVersion, func(config *rest.Config) {
				*config = *rest.AnonymousClientConfig(config)
				config.BearerToken = "invented"
			})
			return client.Post().Namespace(c.namespace("")).Resource("deployments").Body([]byte(c.Cone)).Do(c.t.Context()).Error()
		},
	}
	for name, steps := range c.Causes {
		all[name] = func(c *causes) error { return c.sendAll(c.namespace(""), steps) }
	}
	for name := range c.Denials {
		all["a webhook denies it "+name] = func(c *causes) error { return c.try(c.namespace(labelOf(name))) }
	}
	return all
}

const webhookLabel = "denial"

// labelOf returns the label of namespaces in which the webhook denies like that.
func labelOf(denial string) string { return strings.ReplaceAll(denial, " ", "-") }

func (c *causes) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// namespace creates a namespace, in which the webhook denies what the label says.
func (c *causes) namespace(denial string) string {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "causes-"}}
	if denial != "" {
		ns.Labels = map[string]string{webhookLabel: denial}
	}
	ns, err := c.kube.CoreV1().Namespaces().Create(c.t.Context(), ns, metav1.CreateOptions{})
	c.must(err)
	return ns.Name
}

// clientFor returns a client of a group.
func (c *causes) clientFor(group schema.GroupVersion, change func(*rest.Config)) *rest.RESTClient {
	c.t.Helper()
	config := rest.CopyConfig(c.config)
	if change != nil {
		change(config)
	}
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &group, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	c.must(err)
	return client
}

// sendAll sends requests, and returns what the last one is answered.
func (c *causes) sendAll(ns string, steps []step) error {
	c.t.Helper()
	for i, step := range steps {
		for what, body := range step { // There is one.
			err := c.send(ns, what, body)
			if i == len(steps)-1 {
				return err
			}
			c.must(err)
		}
	}
	return nil
}

func (c *causes) send(ns, what string, body []byte) error {
	switch verb, _, _ := strings.Cut(what, " "); verb {
	case "TRY":
		return c.try(ns)
	case "RACE":
		return c.several(8, func(ctx context.Context, _, _ int) error {
			if err := c.request(ns, "POST as busy", []byte("{}")).Do(ctx).Error(); apierrors.IsTooManyRequests(err) {
				return err
			}
			return nil
		})
	case "CONTEST": // Other writers of the quota's status are faster.
		return c.several(7, func(ctx context.Context, sender, i int) error {
			if sender > 0 {
				body := fmt.Appendf(nil, `{"metadata": {"annotations": {"turn": "%d"}}}`, i)
				_ = c.request(ns, "PATCH /api/v1/namespaces/NS/resourcequotas/few/status", body).Do(ctx).Error()
				return nil
			}
			return c.request(ns, "POST", fmt.Appendf(nil, `{"metadata": {"name": "cone-%d"}}`, i)).Do(ctx).Error()
		})
	default:
		return c.request(ns, what, body).Do(c.t.Context()).Error()
	}
}

// request returns a request of causes.yaml, which client-go does not repeat, as it does at a Retry-After.
func (c *causes) request(ns, what string, body []byte) *rest.Request {
	c.t.Helper()
	text := strings.NewReplacer("NS", ns, "URL", c.url, "CA", c.ca, "MELTED", strings.Repeat("melted", 1<<20))
	what, user, _ := strings.Cut(text.Replace(what), " as ")
	verb, path, _ := strings.Cut(what, " ")
	body = []byte(text.Replace(string(body)))
	contentType := runtime.ContentTypeJSON
	switch verb {
	case "PATCH":
		contentType = string(types.MergePatchType)
	case "APPLY":
		verb, contentType = http.MethodPatch, string(types.ApplyYAMLPatchType)
	}
	r := c.clientFor(appsv1.SchemeGroupVersion, func(config *rest.Config) { config.Impersonate.UserName = user }).Verb(verb).MaxRetries(0)
	if contentType == string(types.ApplyYAMLPatchType) {
		r.Param("fieldManager", "parlor").Param("force", "true")
	}
	if strings.HasPrefix(path, "/") {
		r.AbsPath(path)
	} else {
		r.Namespace(ns).Resource("deployments")
		if path != "" {
			r.Name(path)
		}
		if contentType != string(types.MergePatchType) {
			var err error
			body, err = strategicpatch.StrategicMergePatch(c.Cone, body, appsv1.Deployment{})
			c.must(err)
		}
	}
	return r.SetHeader("Content-Type", contentType).Body(body)
}

// try tries to create the Deployment until that is refused.
func (c *causes) try(ns string) (last error) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, lab.Timeout, true, func(context.Context) (bool, error) {
		last = c.request(ns, "POST", []byte("{}")).Param("dryRun", "All").Do(c.t.Context()).Error()
		return last != nil, nil
	})
	if err != nil {
		c.t.Fatalf("%v: the last error is %v", err, last)
	}
	return last
}

// several has so many senders send requests again and again, until one of these fails.
func (c *causes) several(senders int, send func(ctx context.Context, sender, i int) error) error {
	ctx, stop := context.WithTimeoutCause(c.t.Context(), lab.Timeout, errors.New("nothing was refused"))
	failed, fail := context.WithCancelCause(ctx)
	defer stop()
	defer fail(nil)
	var sending sync.WaitGroup
	for sender := range senders {
		sending.Go(func() {
			for i := 0; failed.Err() == nil; i++ {
				if err := send(failed, sender, i); err != nil {
					fail(err) // The first one counts.
				}
			}
		})
	}
	sending.Wait()
	return context.Cause(failed)
}

// serveWebhook serves a webhook that denies what the label of the namespace says.
func (c *causes) serveWebhook() {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil {
			c.t.Error(err)
			return
		}
		if in.URL.Path == "/sleep" {
			<-in.Context().Done()
			return
		}
		ns, err := c.kube.CoreV1().Namespaces().Get(in.Context(), review.Request.Namespace, metav1.GetOptions{})
		if err != nil {
			c.t.Error(err)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID}
		for name, denial := range c.Denials {
			if ns.Labels[webhookLabel] == labelOf(name) {
				response.Result = &denial
			}
		}
		review.Request, review.Response = nil, response
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review) // the API server may have given up waiting
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	c.t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.url, c.ca = server.URL, base64.StdEncoding.EncodeToString(certificate)
}
