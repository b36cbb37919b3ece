package leader

import (
	"context"
	"net"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"nicoleh.io/k8s-controller/pkg/kit/typed"
)

// Leases is a client for the Leases of a namespace. That of client-go's clientset is one.
type Leases interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Client is a client for the lease.
type Client struct {
	// Leases returns a client for the Leases of a namespace.
	Leases func(namespace string) Leases
	// Reconnect closes the connections to the API server, so that the next request
	// opens a new one. It may be nil.
	Reconnect func()
}

// NewClient returns a client that shares neither connections nor rate limits with others,
// so that other requests cannot delay a renewal.
func NewClient(config *rest.Config) (Client, error) {
	config = rest.AddUserAgent(Separate(config), "leader-election")
	dialer := connrotation.NewDialer(config.Dial)
	config.Dial = dialer.DialContext
	set, err := typed.NewForConfig(config)
	if err != nil {
		return Client{}, err
	}
	leases := typed.ClientsWithoutList[coordinationv1.Lease](set, coordinationv1.SchemeGroupVersion.WithResource("leases"))
	return Client{func(namespace string) Leases { return leases(namespace) }, dialer.CloseAll}, nil
}

// Separate returns a config for clients that share neither connections nor rate limits
// with others, and have no rate limit but the API server's. (In client-go, all clients
// that connect in the same way share a single connection.)
func Separate(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	config.Dial = dialOf(config)
	return config
}

// dialOf returns the function with which clients of the config connect.
func dialOf(config *rest.Config) connrotation.DialFunc {
	if config.Dial != nil {
		return config.Dial
	}
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go's
}
