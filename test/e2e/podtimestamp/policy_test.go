package podtimestamp

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/test/lab"
)

// A stolen token may stamp a Pod that asks for it, and change nothing else of a Pod.
func TestStolenTokenAndPods(t *testing.T) {
	t.Parallel()
	s := suite.NewLab(t, lab.Options{}).NewThief(t)
	s.RequireKept("podtimestamp-controller")
	s.MayDelete("pods")
	n := s.Lab.NewNamespace(t)
	for _, name := range []string{"asks", "silent", "declines"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "payments"}, Annotations: map[string]string{"kept": "x"}, Finalizers: []string{"example.com/stay"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/any:1"}}},
		}
		if value, ok := map[string]string{"asks": "", "declines": "False"}[name]; ok {
			pod.Annotations["addtime"] = value
		}
		if _, err := n.Pods().Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // or the namespace would stay
		for _, name := range []string{"asks", "silent", "declines"} {
			_, _ = n.Pods().Patch(context.WithoutCancel(t.Context()), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	})
	patch := func(client kubernetes.Interface, pod, patch string, o metav1.PatchOptions) error {
		_, err := client.CoreV1().Pods(n.Name).Patch(t.Context(), pod, types.StrategicMergePatchType, []byte(patch), o)
		return err
	}
	const (
		stamp = `{"metadata":{"annotations":{"timestamp":"2026-11-21T11:48:40Z"}}}`
		once  = "may set the timestamp of a Pod once, to a time in UTC, if the annotation addtime asks for one"
		rest  = "may only change the timestamp of a Pod"
	)
	with := func(more string) string { return strings.Replace(stamp, `"timestamp"`, more+`"timestamp"`, 1) }
	beside := func(more string) string { return strings.Replace(stamp, `"annotations"`, more+`"annotations"`, 1) }
	refused := map[string]struct{ pod, patch, words string }{
		"image alone":       {"asks", `{"spec":{"containers":[{"name":"c","image":"registry.example/theirs:1"}]}}`, rest},
		"image":             {"asks", strings.TrimSuffix(stamp, "}") + `,"spec":{"containers":[{"name":"c","image":"registry.example/theirs:1"}]}}`, rest},
		"deadline":          {"asks", strings.TrimSuffix(stamp, "}") + `,"spec":{"activeDeadlineSeconds":1}}`, rest},
		"not asked for":     {"silent", stamp, once},
		"declined":          {"declines", stamp, once},
		"not a time":        {"asks", strings.Replace(stamp, "2026-11-21T11:48:40Z", "now", 1), once},
		"a request":         {"silent", `{"metadata":{"annotations":{"addtime":"true"}}}`, rest},
		"one more":          {"asks", with(`"example.com/seen":"x",`), rest},
		"a network":         {"asks", with(`"k8s.v1.cni.cncf.io/networks":"x",`), rest},
		"changed":           {"asks", with(`"kept":"y",`), rest},
		"removed":           {"asks", with(`"kept":null,`), rest},
		"the request":       {"asks", with(`"addtime":null,`), rest},
		"a label":           {"asks", beside(`"labels":{"app":"theirs"},`), rest},
		"one more label":    {"asks", beside(`"labels":{"role":"admin"},`), rest},
		"one label less":    {"asks", beside(`"labels":{"app":null},`), rest},
		"no finalizer":      {"asks", beside(`"finalizers":null,`), rest},
		"another finalizer": {"asks", beside(`"finalizers":["example.com/stay-longer"],`), rest},
		"an owner":          {"asks", beside(`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}],`), rest},
	}
	for name, attempt := range refused {
		s.RequireRefusedAlone(name, "pods", attempt.words, func(client kubernetes.Interface) error {
			return patch(client, attempt.pod, attempt.patch, lab.TryPatch)
		})
	}
	lab.RequireAllowed(t, patch(s.Kube, "asks", stamp, metav1.PatchOptions{}))
	for _, again := range []string{strings.Replace(stamp, "40Z", "41Z", 1), `{"metadata":{"annotations":{"timestamp":null}}}`} {
		s.RequireRefused("pods", once, func(context.Context) error { return patch(s.Kube, "asks", again, lab.TryPatch) })
	}
}
