package apiserver_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

func Example() {
	server := apiserver.New(apiserver.Options{}, apiserver.Secrets())
	secrets := apiserver.Secrets().Resource.GroupResource()
	now := time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "recipe", Namespace: "kitchen"}}
	before, err := server.Create(apiserver.Store{}, now, secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	after, response := server.Answer(before, now.Add(time.Minute), apiserver.Request{
		Method:      "PATCH",
		Path:        "/api/v1/namespaces/kitchen/secrets/recipe",
		ContentType: "application/merge-patch+json",
		Body:        []byte(`{"metadata": {"labels": {"best": "true"}}}`),
	})
	fmt.Println(response.Code)
	watch, err := apiserver.SelectionOf(apiserver.Key{Resource: secrets}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, event := range watch.Events(before, after) {
		fmt.Println(event.Type, event.Object.GetResourceVersion(), event.Object.GetLabels())
	}
	fmt.Println("before:", before.Objects[apiserver.Key{Resource: secrets, Namespace: "kitchen", Name: "recipe"}].GetLabels())
	// Output:
	// 200
	// MODIFIED 2 map[best:true]
	// before: map[]
}
