package source

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	clientsetscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
)

// all is the scheme of everything that the source serves.
var all = newScheme()

var codecs = serializer.NewCodecFactory(all)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, clientsetscheme.AddToScheme, metav1.AddMetaToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")
