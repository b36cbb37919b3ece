package preflight_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

var (
	gadgets = preflight.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1alpha1", Resource: "gadgets"},
		Namespace:            "shop",
		Selector:             "flavor=vanilla",
		Fields:               "metadata.name=cone",
		Define:               "kubectl apply -f crd.yaml",
		Permit:               "kubectl apply -f rbac.yaml",
	}

	errNamespace = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
	errMissing   = apierrors.NewNotFound(gadgets.GroupResource(), "")
	errForbidden = apierrors.NewForbidden(gadgets.GroupResource(), "", errors.New("no"))
	errDown      = errors.New("connection refused")
)

// cluster is a fake one in which listing fails with err, if that is not nil.
type cluster struct {
	err  error
	asks func(ctx context.Context) // is called by each request
	log  []string
}

// await waits for the gadgets.
func (c *cluster) await(ctx context.Context) error {
	client := metadatafake.NewSimpleMetadataClient(runtime.NewScheme())
	client.PrependReactor("list", "gadgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if c.asks != nil {
			c.asks(ctx)
		}
		if c.err != nil {
			return true, nil, c.err
		}
		return true, nil, nil
	})
	logger := funcr.New(func(_, line string) {
		c.log = append(c.log, regexp.MustCompile(`"level"=0 | "err"=.*`).ReplaceAllString(line, ""))
	}, funcr.Options{})
	return preflight.Await(klog.NewContext(ctx, logger), client, gadgets, func() bool { return false })
}

// A cluster has one obstacle after another, and then none. What lasts is said once a minute, as a log is rotated.
func TestObstaclesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begin := &cluster{}, time.Now()
		c.asks = func(context.Context) {
			obstacles := []error{errDown, errDown, errMissing, errNamespace, errForbidden, nil}
			c.err = obstacles[min(int(time.Since(begin)/(50*time.Second)), len(obstacles)-1)]
		}
		if err := c.await(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 251*time.Second {
			t.Errorf("it went on after %s", took)
		}
		const waiting = `"msg"="Waiting" "for"="gadgets.example.com" "namespace"="shop" `
		want := []string{
			waiting + `"because"="the API server is unreachable or its response is unexpected" "remedy"="check that it runs, and its address in the kubeconfig"`,
			waiting + `"because"="the API server is unreachable or its response is unexpected" "remedy"="check that it runs, and its address in the kubeconfig"`,
			waiting + `"because"="the cluster does not know this resource" "remedy"="kubectl apply -f crd.yaml"`,
			waiting + `"because"="the namespace does not exist" "remedy"="kubectl create namespace shop, or name another"`,
			waiting + `"because"="permission is missing" "remedy"="kubectl apply -f rbac.yaml"`,
			`"msg"="Resource available" "for"="gadgets.example.com"`,
		}
		if diff := cmp.Diff(want, c.log); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestStopping(t *testing.T) {
	for name, c := range map[string]*cluster{
		"while it waits": {err: errMissing},
		"while it asks":  {err: context.Canceled, asks: func(ctx context.Context) { <-ctx.Done() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errMelted := errors.New("melted")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(errMelted) })
				if err := c.await(ctx); !errors.Is(err, errMelted) {
					t.Errorf("Await returned %v, want the reason to stop", err)
				}
			})
		})
	}
}

// Real answers of a server: what is asked, and what cannot be waited for.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name      string
		code      int
		isTrusted bool
		want      string // of the error
		wantAsked string
	}{
		{name: "a list", code: http.StatusOK, isTrusted: true, wantAsked: "/apis/example.com/v1alpha1/namespaces/shop/gadgets?fieldSelector=metadata.name%3Dcone&labelSelector=flavor%3Dvanilla&limit=1"},
		{name: "credentials that are not accepted", code: http.StatusUnauthorized, isTrusted: true, want: "the API server does not accept the credentials: renew them"},
		{name: "a certificate that is not trusted", code: http.StatusOK, want: "the API server's certificate is not trusted: pass the -kubeconfig of this cluster, which contains its CA certificate ("},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := ""
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.code)
				w.Write([]byte(`{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList"}`)) //nolint:errcheck // a test
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			if tt.isTrusted {
				config.Insecure = true
			}
			client, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			err = preflight.Await(t.Context(), client, gadgets, func() bool { return false })
			if isRight := err == nil && tt.want == "" || err != nil && tt.want != "" && strings.HasPrefix(err.Error(), tt.want); !isRight {
				t.Errorf("Await returned %v, want %q", err, tt.want)
			}
			if tt.wantAsked != "" && asked != tt.wantAsked {
				t.Errorf("it asked for %s, want %s", asked, tt.wantAsked)
			}
		})
	}
}
