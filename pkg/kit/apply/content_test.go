package apply

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// An object has the fields that are set in it, and no others.
func TestContentOf(t *testing.T) {
	named := metav1.ObjectMeta{Name: "db"}
	for name, test := range map[string]struct {
		object metav1.Object
		want   string
	}{
		"a name alone": {&corev1.Pod{ObjectMeta: named}, `{"metadata":{"name":"db"}}`},
		"its kind":     {&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: named}, `{"metadata":{"name":"db"}}`},
		"structs of zeros, and lists that are nil": {
			&appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db"}}}}}},
			`{"metadata":{"name":"db"},"spec":{"template":{"spec":{"containers":[{"name":"db"}]}}}}`,
		},
		"maps and lists that are empty": {
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: map[string]string{}}, Spec: corev1.PodSpec{Containers: []corev1.Container{}, NodeSelector: map[string]string{}}},
			`{"metadata":{"name":"db"}}`,
		},
		"pointers to zeros": {
			&appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Volumes:                      []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				AutomountServiceAccountToken: ptr.To(false),
			}}}},
			`{"metadata":{"name":"db"},"spec":{"replicas":0,"selector":{},"template":{"spec":{"automountServiceAccountToken":false,"volumes":[{"emptyDir":{},"name":"tmp"}]}}}}`,
		},
		"elements of lists and maps, and structs that are required": {
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{"a": ""}}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}},
			`{"metadata":{"annotations":{"a":""},"name":"db"},"spec":{"ingress":[{}],"podSelector":{}}}`,
		},
		"zeros that are required": {
			&corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{}}}},
			`{"metadata":{"name":"db"},"spec":{"ports":[{"port":0}]}}`,
		},
		"values with JSON of their own": {
			&corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("web")}, {Port: 81, TargetPort: intstr.FromInt32(8081)}}}},
			`{"metadata":{"name":"db"},"spec":{"ports":[{"port":80,"targetPort":"web"},{"port":81,"targetPort":8081}]}}`,
		},
		"pointers to them": {
			&policyv1.PodDisruptionBudget{ObjectMeta: named, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0))}},
			`{"metadata":{"name":"db"},"spec":{"maxUnavailable":0}}`,
		},
		"quantities": {
			&corev1.ResourceQuota{ObjectMeta: named, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0"), "cpu": resource.MustParse("1500m")}}},
			`{"metadata":{"name":"db"},"spec":{"hard":{"cpu":"1500m","pods":"0"}}}`,
		},
		"bytes":     {&corev1.Secret{ObjectMeta: named, Data: map[string][]byte{"a": []byte("b"), "empty": {}}}, `{"data":{"a":"Yg==","empty":""},"metadata":{"name":"db"}}`},
		"any value": {&appsv1.ControllerRevision{ObjectMeta: named, Data: runtime.RawExtension{Raw: []byte(`{"a":{},"b":null}`)}}, `{"data":{"a":{},"b":null},"metadata":{"name":"db"},"revision":0}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := contentOf(test.object)
			if err != nil {
				t.Fatal(err)
			}
			difftest.Equal(t, "content", test.want, string(asJSON(t, got)))
		})
	}
}

// What an object has makes an object that has the same, whatever is set in it.
func TestContentIsAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		object, again := &appsv1.StatefulSet{}, &appsv1.StatefulSet{}
		changeIn(t, random, statefulSet("cpu", "memory"), object)
		content, err := contentOf(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(asJSON(t, content), again); err != nil {
			t.Fatal(err)
		}
		if drift := owner.Compare(Child{Want: object}, again).Drift; len(drift) > 0 {
			t.Fatalf("%s lacks %+v", asJSON(t, content), drift)
		}
		contentAgain, err := contentOf(again)
		if err != nil {
			t.Fatal(err)
		}
		difftest.Equal(t, "content", content, contentAgain)
	}
}
