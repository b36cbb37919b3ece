// What users ask for, in IcecreamSpec, and what the controller reports, in IcecreamStatus.
// Read the comments of the fields. Skip the lines with +genclient, +k8s and +kubebuilder,
// which are for the generators. controller.go comes next.

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Icecream runs identical Pods through one Deployment. Its status reports the nodes
// that the Pods run on, how many Pods are ready, and what is wrong if some are not.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=icecreams,singular=icecream,shortName=ice,categories=all,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="(has(self.spec.deploymentName) ? self.spec.deploymentName : self.metadata.name) == (has(oldSelf.spec.deploymentName) ? oldSelf.spec.deploymentName : self.metadata.name)",fieldPath=".spec.deploymentName",message="cannot be changed, because a Deployment cannot be renamed: create another Icecream with this deploymentName, and delete this one"
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every replica is available and up to date."
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="The desired number of replicas."
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="The number of available replicas."
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodeCount`,description="The number of nodes that the Pods run on."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Icecream is ready or not ready."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The container image."
// +kubebuilder:printcolumn:name="Placement",type=string,priority=1,JSONPath=`.status.placement`,description="The nodes that the Pods run on."
type Icecream struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the Icecream. Every field is optional, so an Icecream
	// without a spec is valid: it runs one Pod of the default image.
	// +optional
	// +kubebuilder:default={}
	Spec IcecreamSpec `json:"spec,omitempty"`

	// status is the most recently observed state of the Icecream. Only the controller
	// writes it.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status IcecreamStatus `json:"status,omitempty"`
}

// IcecreamSpec is the desired state of an Icecream.
type IcecreamSpec struct {
	// deploymentName is the name of the Deployment that the controller creates and owns:
	// a DNS-1123 subdomain of at most 253 characters. It defaults to the name of the
	// Icecream and cannot be changed. The controller never changes a Deployment with that
	// name that belongs to someone else: the Icecream is not Ready until the name becomes
	// free.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	DeploymentName string `json:"deploymentName,omitempty"`

	// replicas is the desired number of Pods. It must not be negative and defaults to 1.
	// Zero stops all Pods and keeps the Deployment. `kubectl scale` and a
	// HorizontalPodAutoscaler set this field.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// image is the container image to run, in the form
	// `[registry[:port]/]repository[:tag][@digest]`, of at most 1024 characters. It defaults
	// to docker.io/nginxinc/nginx-unprivileged:1.29.3-alpine, also if it is removed later. The
	// default is stored in the Icecream, so a later release with another one does not change
	// it. Unless the template says otherwise, the Pods meet the restricted Pod Security
	// Standard, so the image must run as a user other than root, and must name that user by
	// its numeric ID. A reference that a node cannot parse is reported like a missing image:
	// the Icecream is not Ready, with the reason ImagePullBackOff.
	// +optional
	// +kubebuilder:default="docker.io/nginxinc/nginx-unprivileged:1.29.3-alpine"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[\w./:@\[\]-]+$`
	Image string `json:"image,omitempty"`

	// resources are the compute resources of the container in each Pod. If the field is
	// absent, the container has no limits and no requests, other than those that a
	// LimitRange of the namespace sets.
	// More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
	// +optional
	Resources IcecreamResources `json:"resources,omitempty"`

	// template is a part of a Pod template, of at most 65536 bytes: what the Pods need
	// besides the other fields. The controller merges it over its own template: maps key by
	// key, and the container icecream over its own container. Other containers are added,
	// and any other list replaces the controller's. Nulls, empty lists and empty maps change
	// nothing. The template cannot set the image and the resources of the container
	// icecream, which are spec.image and spec.resources. Of the metadata it can have labels
	// and annotations, and the controller's own labels keep their values. The API server
	// does not check it when it stores the Icecream. If it is not valid, the Icecream is
	// Stalled with the reason InvalidSpec, the message names the wrong field, and
	// until it is corrected the Deployment is only scaled, and not from zero.
	// More info: https://kubernetes.io/docs/concepts/workloads/pods/#pod-templates
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// IcecreamResources are the compute resources of a container, with the rules of
// corev1.ResourceRequirements. The API server applies these rules when the controller
// writes the Deployment. If it rejects the resources, the Icecream is Stalled with the
// reason InvalidSpec and the API server's message, and the Deployment keeps those it has.
type IcecreamResources struct {
	// limits are the maximum amounts of compute resources that the container can use, by
	// resource name: cpu, memory, ephemeral-storage, huge pages such as
	// hugepages-2Mi, or extended resources such as example.com/gpu. A resource that is
	// absent is not limited, unless a LimitRange of the namespace limits it. Limits on
	// huge pages must be multiples of the page size, and the container then also needs a
	// limit or a request for cpu or memory. Limits on extended resources must be whole
	// numbers. A quantity has at most 20 digits before the point, 12 after it and 2 in its
	// exponent.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317)",message="the name of a resource has at most 317 characters"
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// requests are the amounts of compute resources that are reserved for the container
	// on its node, by resource name. If a resource is absent, its request defaults to its
	// limit, if it has one. A request must not exceed the limit of the
	// same resource. A request for huge pages or for an extended resource must equal the
	// limit. A quantity has at most 20 digits before the point, 12 after it and 2 in its
	// exponent.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317)",message="the name of a resource has at most 317 characters"
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// IcecreamStatus is the most recently observed state of an Icecream.
type IcecreamStatus struct {
	// observedGeneration is the metadata.generation of the Icecream that this status
	// describes. If it is -1 or absent, the controller has not reported a status yet.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of Pods of the Deployment.
	// +optional
	Replicas int32 `json:"replicas"`

	// updatedReplicas is the number of Pods that were created from the Deployment's present
	// Pod template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// readyReplicas is the number of ready Pods of the Deployment.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// availableReplicas is the number of available Pods of the Deployment: Pods that have
	// been ready for at least the Deployment's spec.minReadySeconds.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// selector is the label selector of the Pods in its string form. Every status has it.
	// The scale subresource reports it, and a HorizontalPodAutoscaler finds the Pods by it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`

	// nodes are the nodes that the Pods run on, sorted by name. If there are more than
	// 100, only the first 100 are listed. Pods that are terminating or have finished do
	// not count.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Nodes []IcecreamNode `json:"nodes,omitempty"`

	// nodeCount is the number of nodes that the Pods run on. It includes nodes that are
	// missing from nodes because there are too many to list.
	// +optional
	NodeCount int32 `json:"nodeCount"`

	// placement is a short summary of nodes for people, with the number of Pods on each
	// node: "node-1 (2), node-3 (1)". If there are too many nodes for one line, it ends
	// with the number of nodes that are left out: "node-1 (2), node-3 (1), 7 more".
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Placement string `json:"placement,omitempty"`

	// conditions are the controller's conclusions about the Icecream. Their types are
	// Ready, Reconciling and Stalled. Every status that the controller writes has these
	// three and no others, and exactly one of them is True. They follow the conventions of
	// kstatus.
	// More info: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// IcecreamNode counts the Pods of an Icecream on one node.
type IcecreamNode struct {
	// name is the name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// pods is the number of the Icecream's Pods on the node.
	Pods int32 `json:"pods"`
	// readyPods is the number of these Pods that are ready.
	ReadyPods int32 `json:"readyPods"`
}

// IcecreamList is a list of Icecreams.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type IcecreamList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Icecreams.
	Items []Icecream `json:"items"`
}
