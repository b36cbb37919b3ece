package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// longLease holds the flags for a lease that outlasts everything that a test does to its
// holder.
var longLease = []string{"-leader-elect", "-leader-elect-lease-duration=60s", "-leader-elect-renew-deadline=50s"}

// The cache of the new leader's API server is behind, as it can be if there are several API
// servers: it shows two Icecreams as they were before the former leader changed the image of
// one and renamed the Deployment of the other. The new leader undoes neither, because it
// reads consistently before it works.
func TestNewLeaderUndoesNothing(t *testing.T) {
	t.Parallel()
	for how, withWatchList := range map[string]bool{"with a streaming list": true, "with a plain list": false} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := NewQuietNamespace(t)
			former := n.StartController(t, longLease...)
			n.Create(t, "float", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1), Image: "registry.example/vanilla:1"})
			n.Create(t, "sundae", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1), DeploymentName: "cone"})
			n.EventuallyReady(t, "float")
			n.EventuallyReady(t, "sundae")
			old := oldIcecreams(t, n)
			patchIcecream(t, n, "float", `{"spec":{"image":"registry.example/chocolate:1"}}`)
			patchIcecream(t, n, "sundae", `{"spec":{"deploymentName":"cup"}}`)
			n.EventuallyReady(t, "float")
			n.EventuallyReady(t, "sundae")
			n.Eventually(t, "the former Deployment is gone", func(context.Context) error {
				if got := names(n.AllDeployments(t)); len(got) != 2 {
					return fmt.Errorf("the Deployments are %q", got)
				}
				return nil
			})

			next := n.StartControllerBehind(t, laggingCache(old, withWatchList), longLease...)
			eventuallyReadyToLead(t, n, next)
			former.Stop(t)
			n.Eventually(t, "the new leader works", func(context.Context) error {
				if !strings.Contains(next.Log(), `"Started" logger="icecream"`) {
					return fmt.Errorf("its log is:\n%s", next.Log())
				}
				return nil
			})
			n.Steadily(t, "the new leader has nothing to do", 3*time.Second, func(context.Context) error {
				if made := n.Requests(t).Where(isFrom(next)).Where(lab.IsWork); len(made) > 0 {
					return fmt.Errorf("it made %s", made)
				}
				return nil
			})
			patchIcecream(t, n, "sundae", `{"spec":{"replicas":2}}`)
			n.EventuallyReady(t, "sundae")
		})
	}
}

// oldIcecreams returns the list of the namespace's Icecreams as it is now.
func oldIcecreams(t *testing.T, n *lab.Namespace) []byte {
	t.Helper()
	client, err := rest.HTTPClientFor(n.Lab.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	code, list, err := lab.GetWith(t.Context(), client, n.Lab.RESTConfig().Host+"/apis/controller.nicoleh.io/v1alpha1/namespaces/"+n.Name+"/icecreams", "")
	if err != nil || code != http.StatusOK {
		t.Fatalf("listing Icecreams: %d %v: %s", code, err, list)
	}
	return []byte(list)
}

// laggingCache answers reads of Icecreams as an API server does whose cache is behind: a read
// that accepts any state gets the old list, and a watch that begins there receives nothing. A
// consistent read does not come from the cache.
func laggingCache(old []byte, withWatchList bool) lab.Interceptor {
	return func(r *http.Request) http.HandlerFunc {
		query := r.URL.Query()
		switch version := query.Get("resourceVersion"); {
		case r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/icecreams"):
			return nil
		case query.Has("sendInitialEvents") && !withWatchList:
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) }
		case version == "0" && !query.Has("watch"):
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Write(old) //nolint:errcheck // the client would notice
			}
		case version == "0", version != "" && strings.Contains(string(old), fmt.Sprintf(`"resourceVersion":%q`, version)):
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		default:
			return nil
		}
	}
}
