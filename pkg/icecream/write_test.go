package icecream

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLastWriter(t *testing.T) {
	entry := func(manager, subresource string, age time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: ptr.To(metav1.NewTime(now.Add(-age)))}
	}
	for want, entries := range map[string][]metav1.ManagedFieldsEntry{
		"":                      {entry(FieldManager, "", 0), entry("kube-controller-manager", "status", 0)},
		`field manager "helm"`:  {entry("kubectl", "", 2), entry("helm", "", 1), entry(FieldManager, "", 0), entry("kube-controller-manager", "status", 0)},
		`field manager "argo"`:  {{Manager: "old"}, entry("argo", "", 1)},
		`field manager "first"`: {{Manager: "first"}},
	} {
		if got := LastWriter(&metav1.ObjectMeta{ManagedFields: entries}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
