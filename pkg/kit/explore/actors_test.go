package explore

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// What a watch delivers of an object has the UID that the object is stored with.
func TestUIDOfANewObject(t *testing.T) {
	w := World{Server: apiserver.New(apiserver.Options{}, apiserver.Secrets()), Now: time.Date(2222, 2, 22, 12, 0, 0, 0, time.UTC)}
	recipe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kitchen", Name: "recipe"}}
	w = w.Create(Object{Manager: "cook", Object: recipe, UID: "uid-of-the-recipe"})
	w = w.Delete(corev1.Resource("secrets"), "kitchen", "recipe", metav1.DeleteOptions{})
	w = w.Create(Object{Manager: "cook", Object: recipe, UID: "uid-of-the-next"})
	if stored := w.Object(corev1.Resource("secrets"), "kitchen", "recipe").GetUID(); stored != "uid-of-the-next" {
		t.Errorf("%s is stored", stored)
	}
	var delivered []string
	for _, e := range w.events {
		delivered = append(delivered, string(e.Type)+" "+string(e.Object.GetUID()))
	}
	if len(delivered) != 3 || delivered[0] != "ADDED uid-of-the-recipe" || delivered[2] != "ADDED uid-of-the-next" {
		t.Errorf("the watch delivers %q", delivered)
	}
}
