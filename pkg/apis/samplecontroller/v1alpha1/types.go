package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Icecream runs a number of identical Pods by way of one Deployment, and
// reports the nodes that they run on, how many are ready, and why when they
// are not.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=icecreams,singular=icecream,shortName=ice,categories=all,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every replica is available and up to date."
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="How many replicas were asked for."
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="How many replicas are available."
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodeCount`,description="How many nodes the Pods run on."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or is not."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Deployment",type=string,priority=1,JSONPath=`.status.deploymentName`,description="The Deployment in use."
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The image asked for."
// +kubebuilder:printcolumn:name="Placement",type=string,priority=1,JSONPath=`.status.placement`,description="The nodes that the Pods run on."
type Icecream struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What should run. Every field has a default, so an Icecream without a
	// spec is a complete one.
	// +optional
	// +kubebuilder:default={}
	Spec IcecreamSpec `json:"spec,omitempty"`

	// What runs, as last observed. Written by the controller only.
	// +optional
	Status IcecreamStatus `json:"status,omitempty"`
}

// IcecreamSpec says what should run.
type IcecreamSpec struct {
	// The name of the Deployment to create and own, a DNS-1123 subdomain of at
	// most 253 characters; the Icecream's own name when left out. When it is
	// changed, the Deployment of the new name is created first, and the old one
	// is deleted once the new one is available. A Deployment of that name that
	// belongs to somebody else is never touched: the Icecream is Stalled until
	// the name becomes free.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="must not be empty: leave deploymentName out to use the Icecream's own name"
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || !format.dns1123Subdomain().validate(self).hasValue()",message="must be a DNS-1123 subdomain: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, such as 'my-icecream'"
	DeploymentName string `json:"deploymentName,omitempty"`

	// How many Pods should run. Zero stops them all and keeps the Deployment.
	// `kubectl scale` and a HorizontalPodAutoscaler set this field.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// The container image to run. The Pods meet the restricted Pod Security
	// Standard, so the image has to run as a user that is not root, given by
	// number.
	// +optional
	// +kubebuilder:default="docker.io/nginxinc/nginx-unprivileged:1.29.3-alpine"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^\\\\S+$')",message="must not be empty or contain spaces: leave image out to use the default image"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^\\\\S+$') || self.matches('^(([a-zA-Z0-9.-]+|\\\\[[a-fA-F0-9:]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([/._]|__|-+)[a-z0-9]+)*(:\\\\w[\\\\w.-]{0,127})?(@[a-z0-9+._-]+:[a-fA-F0-9]{32,})?$')",message="must be an image reference, [registry[:port]/]repository[:tag][@digest], with the repository in lower case, such as 'registry.example.com:5000/team/icecream:1.2'"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@sha256:') || self.matches('@sha256:[a-f0-9]{64}$')",message="must have 64 hexadecimal digits in lower case after '@sha256:'"
	Image string `json:"image,omitempty"`

	// The compute resources of each Pod's container.
	// More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
	// +optional
	Resources IcecreamResources `json:"resources,omitempty"`
}

// IcecreamResources are the compute resources of a container. Its fields are those
// of corev1.ResourceRequirements; its rules are those by which the API server judges
// a container, so that a mistake is refused before a Deployment is made of it.
//
// What a rule may cost limits the number of resources. It is computed as if each
// quantity had the length of the longest request. A quantity with an exponent of more
// than two characters is refused before it is parsed: that of 1e-999999999 would take
// hours.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(name, !(name in self.requests && name in self.limits) || string(self.requests[name]).matches('[eE]...') || string(self.limits[name]).matches('[eE]...') || !quantity(string(self.requests[name])).isGreaterThan(quantity(string(self.limits[name]))))",fieldPath=".requests",message="must not be above the limits"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(name, !(name.startsWith('hugepages-') || name.contains('/')) || (has(self.limits) && name in self.limits && string(self.requests[name]) == string(self.limits[name])))",fieldPath=".requests",message="must be written as in the limits for huge pages and for extended resources such as example.com/gpu, which cannot be overcommitted"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !self.limits.exists(name, name.startsWith('hugepages-')) || ['cpu', 'memory'].exists(name, name in self.limits || (has(self.requests) && name in self.requests))",fieldPath=".limits",message="must come with cpu or memory for huge pages"
type IcecreamResources struct {
	// The most that the container may use of each resource, such as cpu, memory,
	// ephemeral-storage, hugepages-2Mi or example.com/gpu.
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.matches('^hugepages-[1-9][0-9]*[KMG]i$') || (name.contains('/') && !name.startsWith('requests.') && !format.qualifiedName().validate('requests.' + name).hasValue()))",message="must name known resources: cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or extended resources such as example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, type(self[name]) == int ? self[name] >= 0 : !self[name].startsWith('-') && !self[name].matches('[eE]...') && isQuantity(self[name]))",message="must be quantities of zero or more, such as 500m, 0.5 or 1Gi"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.contains('/') || name.contains('kubernetes.io/') || (type(self[name]) == int ? self[name] < 1000000000000000 : self[name].matches('^\\\\d{1,9}[kMi]*$')))",message="must be whole numbers for extended resources such as example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.matches('^hugepages-[1-9][0-9]*[KMG]i$') || (!string(self[name]).matches('[eE]') && quantity(string(self[name])).asInteger() % quantity(name.substring(10)).asInteger() == 0))",message="must be multiples of the page size for huge pages, such as 4Mi for hugepages-2Mi"
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// How much of each resource is reserved for each Pod on its node: as much as the
	// limit where a request is left out, and never more. Requests for huge pages and
	// extended resources need the same limit.
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.matches('^hugepages-[1-9][0-9]*[KMG]i$') || (name.contains('/') && !name.startsWith('requests.') && !format.qualifiedName().validate('requests.' + name).hasValue()))",message="must name known resources: cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or extended resources such as example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, type(self[name]) == int ? self[name] >= 0 : !self[name].startsWith('-') && !self[name].matches('[eE]...') && isQuantity(self[name]))",message="must be quantities of zero or more, such as 500m, 0.5 or 1Gi"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.contains('/') || name.contains('kubernetes.io/') || (type(self[name]) == int ? self[name] < 1000000000000000 : self[name].matches('^\\\\d{1,9}[kMi]*$')))",message="must be whole numbers for extended resources such as example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.matches('^hugepages-[1-9][0-9]*[KMG]i$') || (!string(self[name]).matches('[eE]') && quantity(string(self[name])).asInteger() % quantity(name.substring(10)).asInteger() == 0))",message="must be multiples of the page size for huge pages, such as 4Mi for hugepages-2Mi"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Not supported: an Icecream's Pods have no resource claims.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:XValidation:rule="size(self) == 0",message="must be empty: an Icecream's Pods have no resource claims"
	Claims []corev1.ResourceClaim `json:"claims,omitempty"`
}

// IcecreamStatus says what runs, as last observed.
type IcecreamStatus struct {
	// The metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The Deployment in use. While a rename is under way or impossible, it is
	// the one that still runs.
	// +optional
	DeploymentName string `json:"deploymentName,omitempty"`

	// How many Pods the Deployment runs.
	// +optional
	Replicas int32 `json:"replicas"`

	// How many of them are made from the current spec.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// How many of them are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// How many of them are available: ready for the Deployment's minReadySeconds.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// The label selector of the Pods in its string form, as the scale
	// subresource and a HorizontalPodAutoscaler read it.
	// +optional
	Selector string `json:"selector,omitempty"`

	// The nodes that the Pods run on, sorted by name, at most 100 of them.
	// Pods that are ending or have ended do not count.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Nodes []IcecreamNode `json:"nodes,omitempty"`

	// How many nodes the Pods run on, also when there are more than nodes lists.
	// +optional
	NodeCount int32 `json:"nodeCount"`

	// The nodes in one line for people, such as "node-1 (2), node-3 (1)".
	// +optional
	Placement string `json:"placement,omitempty"`

	// What the controller concludes: Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// IcecreamNode is one node that Pods of an Icecream run on.
type IcecreamNode struct {
	// The name of the node.
	Name string `json:"name"`
	// How many Pods of the Icecream run on it.
	Pods int32 `json:"pods"`
	// How many of them are ready.
	ReadyPods int32 `json:"readyPods"`
}

// IcecreamList is a list of Icecreams.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type IcecreamList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Icecream `json:"items"`
}
