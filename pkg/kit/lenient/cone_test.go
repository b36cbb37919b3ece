package lenient_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// Cone is a custom resource with fields of every sort that can be flawed.
type Cone struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   ConeSpec   `json:"spec"`
	Status ConeStatus `json:"status"`
}

// ConeSpec is what somebody wants.
type ConeSpec struct {
	Image     string                      `json:"image"`
	Replicas  *int32                      `json:"replicas,omitempty"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// ConeStatus is what there is.
type ConeStatus struct {
	Replicas   int32              `json:"replicas,omitempty"`
	Nodes      []ConeNode         `json:"nodes,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConeNode is a part of a status.
type ConeNode struct {
	Name string `json:"name"`
	Pods int32  `json:"pods"`
}

// ConeList is a list of cones.
type ConeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Cone `json:"items"`
}

// DeepCopy is what a generator would write.
func (c *Cone) DeepCopy() *Cone {
	out := &Cone{TypeMeta: c.TypeMeta, ObjectMeta: *c.ObjectMeta.DeepCopy(), Spec: c.Spec, Status: c.Status}
	if c.Spec.Replicas != nil {
		out.Spec.Replicas = new(*c.Spec.Replicas)
	}
	c.Spec.Resources.DeepCopyInto(&out.Spec.Resources)
	out.Status.Nodes = slices.Clone(c.Status.Nodes)
	out.Status.Conditions = slices.Clone(c.Status.Conditions)
	return out
}

// DeepCopyObject implements runtime.Object.
func (c *Cone) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopy is what a generator would write.
func (l *ConeList) DeepCopy() *ConeList {
	out := &ConeList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: make([]Cone, len(l.Items))}
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *ConeList) DeepCopyObject() runtime.Object { return l.DeepCopy() }

var (
	coneVersion = schema.GroupVersion{Group: "parlor.example", Version: "v1alpha1"}
	coneScheme  = func() *runtime.Scheme {
		scheme := runtime.NewScheme()
		scheme.AddKnownTypes(coneVersion, &Cone{}, &ConeList{})
		metav1.AddToGroupVersion(scheme, coneVersion)
		metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
		return scheme
	}()
	coneCodecs = serializer.NewCodecFactory(coneScheme)
)

// cones is a client such as client-gen makes.
type cones = gentype.ClientWithList[*Cone, *ConeList]

// usualClient returns a client with the usual decoder.
func usualClient(config *rest.Config) (*cones, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &coneVersion
	config.NegotiatedSerializer = coneCodecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return conesOf(client), nil
}

// lenientClient returns a client with the decoder of this package.
func lenientClient(config *rest.Config) (*cones, error) {
	client, err := lenient.RESTClientFor(config, coneVersion, coneCodecs)
	if err != nil {
		return nil, err
	}
	return conesOf(client), nil
}

func conesOf(client rest.Interface) *cones {
	return gentype.NewClientWithList("cones", client, runtime.NewParameterCodec(coneScheme), "parlor",
		func() *Cone { return &Cone{} }, func() *ConeList { return &ConeList{} })
}
