package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// roundTripper is a function that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respond returns the response of an API server.
func respond(code int, body any) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // to memory
	return w.Result()
}

// dependencies returns what a controller gets whose process has that config.
func dependencies(t *testing.T, config *rest.Config) (d *Dependencies) {
	t.Helper()
	events := &recorder{record.NewBroadcaster(), kubescheme.Scheme, nil}
	defer events.Shutdown()
	_, err := Descriptor{New: func(given *Dependencies) (Controller, error) {
		d = given
		return nil, nil
	}}.assemble(options{}, config, events)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// All clients of a controller share a rate limit, and no other controller's do.
func TestRateLimitOfAController(t *testing.T) {
	config := &rest.Config{QPS: 10, Burst: 21}
	one, other := dependencies(t, config), dependencies(t, config)
	limit := one.Config.RateLimiter
	if limit == nil || limit != one.Kube.CoreV1().RESTClient().GetRateLimiter() || limit == other.Config.RateLimiter {
		t.Errorf("the rate limits are %v and %v", limit, other.Config.RateLimiter)
	}
}

// A webhook denies eight objects, as many as there are workers, with 429 or 503 and a
// Retry-After, or a proxy does not let them be read. They do not delay another object, and are
// retried as the response asks.
func TestRefusedObjectsDelayNoOther(t *testing.T) {
	for _, tt := range []struct {
		refused          string // the request of a refused object; another one sends the other
		code, retryAfter int
	}{
		{"patch secrets", http.StatusTooManyRequests, 60},
		{"patch secrets", http.StatusTooManyRequests, 1},
		{"patch secrets", http.StatusServiceUnavailable, 60},
		{"get secrets", http.StatusServiceUnavailable, 60},
	} {
		t.Run(fmt.Sprintf("%s with %d for %d s", tt.refused, tt.code, tt.retryAfter), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handlers := utilruntime.ErrorHandlers
				defer func() { utilruntime.ErrorHandlers = handlers }()
				utilruntime.ErrorHandlers = nil // the default ones sleep, by a clock that is not the bubble's.
				const workers = 8
				c := script.New(t, apiserver.Secrets())
				c.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "healthy"}})
				c.Refuse(func(request string) error {
					if request != tt.refused {
						return nil
					}
					denial := apierrors.NewTooManyRequests("a webhook says no", tt.retryAfter)
					denial.ErrStatus.Code = int32(tt.code)
					return denial
				})
				kube := dependencies(t, c.Config()).Kube
				var added time.Time
				synced := 0
				loop := worker.New("fake", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
					secrets, isHealthy := kube.CoreV1().Secrets(name.Namespace), name.Name == "healthy"
					var err error
					if isHealthy == (tt.refused == "get secrets") {
						_, err = secrets.Patch(ctx, name.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
					} else {
						_, err = secrets.Get(ctx, name.Name, metav1.GetOptions{})
					}
					if isHealthy {
						synced++
						if waited := time.Since(added); waited > 0 || err != nil {
							t.Errorf("a healthy object waited for %s: %v", waited, err)
						}
					}
					return 0, err
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- loop.Run(ctx, workers) }()
				for i := range workers {
					loop.Add(cache.NewObjectName("shop", fmt.Sprint("refused-", i)))
				}
				for range 20 {
					time.Sleep(30 * time.Second)
					synctest.Wait()
					added = time.Now()
					loop.Add(cache.NewObjectName("shop", "healthy"))
				}
				synctest.Wait()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if synced != 20 {
					t.Errorf("a healthy object was synced %d times, want 20", synced)
				}
				refusals := c.Requests(tt.refused)
				if most := workers * (1 + int(10*time.Minute/time.Second)/tt.retryAfter); refusals > most || refusals < 2*workers {
					t.Errorf("the refused objects were sent %d times in 10 minutes, want at most %d", refusals, most)
				}
			})
		})
	}
}

// An event that is refused for now is sent again by the client: the recorder would drop it.
func TestEventIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		begin := time.Now()
		config := &rest.Config{QPS: -1, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if sent = append(sent, time.Since(begin)); len(sent) == 1 {
				return apiserver.Refuse(apierrors.NewTooManyRequests("a webhook says no", 3)).HTTP(r), nil
			}
			return respond(http.StatusCreated, corev1.Event{}), nil
		})}
		events, err := newRecorder(config, kubescheme.Scheme)
		if err != nil {
			t.Fatal(err)
		}
		stop := events.start()
		events.recorderFor("fake").Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"}}, corev1.EventTypeNormal, "Greeted", "hello")
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if diff := cmp.Diff([]time.Duration{0, 3 * time.Second}, sent); diff != "" {
			t.Errorf("times of requests (-want +got):\n%s", diff)
		}
	})
}

// An informer needs no care of its own: its first list is consistent, and its next ones come
// from the API server's cache. The API server is one without WatchList.
func TestListsOfAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var asked []string
		d := dependencies(t, &rest.Config{QPS: -1, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			query := r.URL.Query()
			if query.Has("watch") {
				err := apierrors.NewResourceExpired("too old")
				if query.Has("sendInitialEvents") {
					err = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "", nil)
				}
				return apiserver.Refuse(err).HTTP(r), nil
			}
			asked = append(asked, r.URL.RawQuery)
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			if query.Has("limit") && !query.Has("continue") {
				list.Continue = "more"
			}
			if len(asked) == 3 {
				cancel()
			}
			return respond(http.StatusOK, list), nil
		})})
		informers := kubeinformers.NewSharedInformerFactory(d.Kube, 0)
		informers.Core().V1().Pods().Informer()
		informers.StartWithContext(ctx)
		informers.Shutdown()
		want := []string{"limit=500", "continue=more&limit=500", "resourceVersion=7"}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("lists (-want +got):\n%s", diff)
		}
	})
}
