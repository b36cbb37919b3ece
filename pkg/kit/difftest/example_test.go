package difftest_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// The difference of two Secrets does not show what is in them.
func Example() {
	want := corev1.Secret{Data: map[string][]byte{"password": []byte("hunter2")}}
	got := corev1.Secret{Data: map[string][]byte{"password": []byte("hunter3")}}
	diff := difftest.Diff(want, got)
	fmt.Println(strings.Contains(diff, "7 bytes with digest"), strings.Contains(diff, "hunter"))
	// Output: true false
}
