package informer_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

func TestOrNil(t *testing.T) {
	pod, failed := &corev1.Pod{}, errors.New("failed")
	if got, err := informer.OrNil(pod, nil); got != pod || err != nil {
		t.Errorf("a Pod that was found: %v, %v", got, err)
	}
	if got, err := informer.OrNil(pod, apierrors.NewNotFound(corev1.Resource("pods"), "sundae")); got != nil || err != nil {
		t.Errorf("a Pod that was not found: %v, %v", got, err)
	}
	if got, err := informer.OrNil(pod, failed); got != nil || !errors.Is(err, failed) {
		t.Errorf("a request that failed: %v, %v", got, err)
	}
}

func TestNamed(t *testing.T) {
	var names []cache.ObjectName
	handle := informer.Named(func(name cache.ObjectName) { names = append(names, name) })
	handle(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "sundae"}})
	handle(cache.DeletedFinalStateUnknown{Key: "parlor/cone"})
	if len(names) != 2 || names[0].Name != "sundae" || names[1] != cache.NewObjectName("parlor", "cone") {
		t.Errorf("got %v", names)
	}
}
