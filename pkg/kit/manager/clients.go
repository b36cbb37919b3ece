package manager

import (
	"cmp"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
)

// clientConfig returns the config for clients of the cluster.
func clientConfig(o options) (*rest.Config, error) {
	config, err := flags.ClusterConfig(o.kubeconfig, o.master)
	if err == nil && o.qps > 0 {
		config.QPS, config.Burst = float32(o.qps), cmp.Or(o.burst, int(2*o.qps)+1)
	}
	return config, err
}

// configFor returns the config for the clients of one controller, which have its name and
// share its rate limit.
func configFor(controller string, config *rest.Config) *rest.Config {
	config = rest.AddUserAgent(rest.CopyConfig(config), controller)
	if config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	return config
}

// podNamespace returns the namespace of the Pod that this process runs in, or "" if it
// does not run in one.
func podNamespace(o options) string {
	if o.kubeconfig != "" || o.master != "" {
		return ""
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(namespace))
}

// Protobuf returns the config for clients of built-in types, which are smaller in protobuf
// than in JSON, and faster to decode.
func Protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}
