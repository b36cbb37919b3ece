package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
)

const (
	fieldManager  = "database-controller"
	labelDatabase = "db.example.com/database"
	containerName = "database"
)

// newStatefulSet returns the StatefulSet that the Database asks for, with our fields and no
// others. What can never change is set here.
func newStatefulSet(db *v1alpha1.Database) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name}}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels(db)}
	s.Spec.ServiceName = db.Name
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(db, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Database"))}
	setStatefulSet(s, db)
	return s
}

// setStatefulSet sets every field that this controller owns, and touches no other.
func setStatefulSet(s *appsv1.StatefulSet, db *v1alpha1.Database) {
	s.Spec.Replicas = ptr.To(ptr.Deref(db.Spec.Replicas, 1))
	setKeys(&s.Labels, labels(db))
	setKeys(&s.Spec.Template.Labels, labels(db))
	pod := &s.Spec.Template.Spec
	setKeys(&pod.NodeSelector, map[string]string{corev1.LabelOSStable: string(corev1.Linux)}) // what follows demands it
	pod.AutomountServiceAccountToken = ptr.To(false)
	pod.TerminationGracePeriodSeconds = ptr.To(int64(ptr.Deref(db.Spec.ShutdownTimeout, metav1.Duration{Duration: 30 * time.Second}).Seconds()))
	security := orNew(&pod.SecurityContext) // The Pods meet the restricted Pod Security Standard.
	security.RunAsNonRoot = ptr.To(true)
	orNew(&security.SeccompProfile).Type = corev1.SeccompProfileTypeRuntimeDefault
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		i = len(pod.Containers)
		pod.Containers = append(pod.Containers, corev1.Container{Name: containerName})
	}
	c := &pod.Containers[i]
	c.Image = fmt.Sprintf("%s:%d", db.Spec.Image, db.Spec.Version)
	container := orNew(&c.SecurityContext)
	container.AllowPrivilegeEscalation = ptr.To(false)
	orNew(&container.Capabilities).Drop = []corev1.Capability{"ALL"}
}

// strip keeps of a StatefulSet in the cache what setStatefulSet sets. Somebody else can write the rest, such
// as a number that takes minutes to compare or to marshal; patches leave it as it is.
func strip(obj any) (any, error) {
	s, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return obj, nil
	}
	s.ManagedFields, s.Spec.VolumeClaimTemplates = nil, nil
	pod := s.Spec.Template.Spec
	s.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector:                  pod.NodeSelector,
		AutomountServiceAccountToken:  pod.AutomountServiceAccountToken,
		TerminationGracePeriodSeconds: pod.TerminationGracePeriodSeconds,
		SecurityContext:               pod.SecurityContext,
	}
	for _, c := range pod.Containers {
		if c.Name == containerName {
			s.Spec.Template.Spec.Containers = []corev1.Container{{Name: c.Name, Image: c.Image, SecurityContext: c.SecurityContext}}
		}
	}
	return s, nil
}

// setKeys sets these keys and leaves others as they are.
func setKeys(of *map[string]string, values map[string]string) {
	if *of == nil {
		*of = map[string]string{}
	}
	maps.Copy(*of, values)
}

// orNew returns what p points to, which it creates if it is nil.
func orNew[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

func labels(db *v1alpha1.Database) map[string]string {
	return map[string]string{labelDatabase: string(db.UID)} // a name can be too long for a label
}
