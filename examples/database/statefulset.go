package main

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

const (
	fieldManager  = "database-controller"
	labelDatabase = "db.example.com/database"
	labelVersion  = "app.kubernetes.io/version"
)

// newStatefulSet returns the StatefulSet that the Database asks for: every field that this controller sets. The Pods
// meet the restricted Pod Security Standard.
func newStatefulSet(db *v1alpha1.Database) *appsv1ac.StatefulSetApplyConfiguration {
	timeout := ptr.Deref(db.Spec.ShutdownTimeout, metav1.Duration{Duration: 30 * time.Second})
	return appsv1ac.StatefulSet(db.Name, db.Namespace).
		WithLabels(labelsOf(db)).
		WithLabels(map[string]string{labelVersion: strconv.Itoa(int(db.Spec.Version))}).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(schema.GroupVersion(v1alpha1.GroupVersion).String()).
			WithKind("Database").
			WithName(db.Name).
			WithUID(db.UID).
			WithController(true).
			WithBlockOwnerDeletion(true)).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(replicasOf(db)).
			WithServiceName(db.Name).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labelsOf(db))).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labelsOf(db)).WithSpec(corev1ac.PodSpec().
				WithNodeSelector(map[string]string{corev1.LabelOSStable: string(corev1.Linux)}). // for the security contexts
				WithAutomountServiceAccountToken(false).
				WithTerminationGracePeriodSeconds(int64(timeout.Seconds())).
				WithSecurityContext(corev1ac.PodSecurityContext().
					WithRunAsNonRoot(true).
					WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
				WithContainers(corev1ac.Container().
					WithName("database").
					WithImage(fmt.Sprintf("%s:%d", db.Spec.Image, db.Spec.Version)).
					WithSecurityContext(corev1ac.SecurityContext().
						WithAllowPrivilegeEscalation(false).
						WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")))))))
}

func replicasOf(db *v1alpha1.Database) int32 { return ptr.Deref(db.Spec.Replicas, 1) }

// versionOf returns the version that a StatefulSet was last asked to run; 0 if that is unknown.
func versionOf(s *appsv1.StatefulSet) int32 {
	version, _ := strconv.ParseInt(s.Labels[labelVersion], 10, 32)
	return int32(version)
}

func labelsOf(db *v1alpha1.Database) map[string]string {
	return map[string]string{labelDatabase: string(db.UID)} // a name can be too long for a label
}

// strip drops from a StatefulSet in the cache what Decide and Status do not read and others can make large.
func strip(obj any) (any, error) {
	if s, ok := obj.(*appsv1.StatefulSet); ok {
		s.ManagedFields = patch.OwnEntries(fieldManager, s.ManagedFields)
		s.Spec.VolumeClaimTemplates, s.Spec.Template = nil, corev1.PodTemplateSpec{}
	}
	return obj, nil
}
