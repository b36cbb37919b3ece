package typed_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/pkg/kit/typed"
)

// A program that reads Jobs names their group, their types and their resource.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "churn"}, "status": {"succeeded": 3}}`)
	}))
	defer server.Close()

	kube, err := typed.NewForConfig(&rest.Config{Host: server.URL}, batchv1.AddToScheme)
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs := typed.Clients[batchv1.Job, batchv1.JobList](kube, batchv1.SchemeGroupVersion.WithResource("jobs"))
	job, err := jobs("parlor").Get(context.Background(), "churn", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Name, "succeeded", job.Status.Succeeded, "times")
	// Output:
	// GET /apis/batch/v1/namespaces/parlor/jobs/churn
	// churn succeeded 3 times
}
