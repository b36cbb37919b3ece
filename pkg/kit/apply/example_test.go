package apply_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
)

// A controller keeps a ConfigMap as it wants it: it creates the ConfigMap, repairs its
// own fields, and leaves those of others alone.
func Example() {
	kube := fake.NewClientset()
	if err := keep(context.Background(), kube, map[string]string{"flavor": "vanilla"}); err != nil {
		fmt.Println(err)
	}
	edit(kube, map[string]string{"flavor": "mud", "topping": "sprinkles"})
	if err := keep(context.Background(), kube, map[string]string{"flavor": "vanilla"}); err != nil {
		fmt.Println(err)
	}
	live, _ := kube.CoreV1().ConfigMaps("parlor").Get(context.Background(), "menu", metav1.GetOptions{})
	fmt.Println(live.Data)
	// Output:
	// data.flavor is mud, want vanilla
	// map[flavor:vanilla topping:sprinkles]
}

func keep(ctx context.Context, kube kubernetes.Interface, data map[string]string) error {
	owner := apply.Owner{Manager: "menu-controller", Optional: []fieldpath.Path{fieldpath.MakePathOrDie("data")}}
	child := apply.Child{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Want:     &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "menu", Namespace: "parlor"}, Data: data},
	}
	live, err := kube.CoreV1().ConfigMaps("parlor").Get(ctx, "menu", metav1.GetOptions{}) // or from a cache
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	default:
		child = owner.Compare(child, live)
		for _, d := range child.Drift {
			fmt.Printf("%s is %v, want %v\n", d.Field, d.Live, d.Want)
		}
		if len(child.Drift) == 0 {
			return nil
		}
	}
	_, err = apply.NewWriter(owner.Manager, kube.CoreV1().ConfigMaps).Write(ctx, child)
	return err
}

// edit is somebody's, who also gives the object the UID that the fake clientset does not.
func edit(kube kubernetes.Interface, data map[string]string) {
	menu, _ := kube.CoreV1().ConfigMaps("parlor").Get(context.Background(), "menu", metav1.GetOptions{})
	menu.UID, menu.Data = "uid-of-menu", data
	_, _ = kube.CoreV1().ConfigMaps("parlor").Update(context.Background(), menu, metav1.UpdateOptions{FieldManager: "somebody"})
}
