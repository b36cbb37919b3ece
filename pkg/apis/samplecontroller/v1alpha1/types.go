package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The rules of the schema are those of an Icecream as a whole, and each names the
// field that it is about. A rule holds if that field is absent or right. It also holds
//
//   - if the status changes. The API server evaluates all rules on writes of the
//     status, too, though these cannot change the spec. An Icecream that was stored
//     under another schema may have a spec that does not fit this one, such as a number
//     for an image. Whatever reads that number is an error, and a write of the status
//     would be refused, but "error || true" is true. A rule of the field itself cannot
//     see the status.
//   - if the field does not change, so that a mistake that was stored before there was
//     a rule stops nobody from changing something else. The API server sees to that
//     only for rules that do not read oldSelf.
//
// Both objects are compared as optionals. Up to Kubernetes 1.36, oldSelf gives its
// fields as plain JSON, in which a time is a string and differs from the time that self
// has; optional.of(self) does the same. "x in [y]" is "x == y", but is false, not an
// error, if the two cannot be compared, and costs little by the API server's estimate.
//
// That estimate limits the number of resources: a rule is taken to cost as much as if
// each quantity had the length of the longest request. A quantity with an exponent of
// more than two characters is refused before it is parsed, as that of 1e-999999999 would
// take hours. Requests for huge pages and extended resources have to be the same as the
// limits, so it is enough that these have the right names and quantities.

// +kubebuilder:validation:XValidation:fieldPath=".spec.deploymentName",optionalOldSelf=true,rule=`!has(self.spec.deploymentName) || !format.dns1123Subdomain().validate(self.spec.deploymentName).hasValue() || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?deploymentName in [oldSelf.?spec.?deploymentName]`,message="must be a DNS-1123 subdomain",messageExpression=`strings.quote(self.spec.deploymentName) + (self.spec.deploymentName == '' ? ": must not be empty: leave deploymentName out to use the Icecream's own name" : ": must be a DNS-1123 subdomain: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, such as 'my-icecream'")`
// +kubebuilder:validation:XValidation:fieldPath=".spec.image",optionalOldSelf=true,rule=`!has(self.spec.image) || self.spec.image.matches('^(([a-zA-Z0-9.-]+|\\[[a-fA-F0-9:]+\\])(:[0-9]+)?/)?[a-z0-9]+(([/._]|__|-+)[a-z0-9]+)*(:\\w[\\w.-]{0,127})?(@[a-z0-9+._-]+:[a-fA-F0-9]{32,})?$') && (!self.spec.image.contains('@sha256:') || self.spec.image.matches('@sha256:[a-f0-9]{64}$')) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?image in [oldSelf.?spec.?image]`,message="must be an image reference",messageExpression=`strings.quote(self.spec.image) + (!self.spec.image.matches('^\\S+$') ? ': must not be empty or contain spaces: leave image out to use the default image' : (!self.spec.image.contains('@sha256:') || self.spec.image.matches('@sha256:[a-f0-9]{64}$')) ? ": must be an image reference, [registry[:port]/]repository[:tag][@digest], with the repository in lower case, such as 'registry.example.com:5000/team/icecream:1.2'" : ": must have 64 hexadecimal digits in lower case after '@sha256:'")`
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.limits",optionalOldSelf=true,rule=`!has(self.spec.?resources.limits) || self.spec.resources.limits.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.matches('^hugepages-[1-9][0-9]*[KMG]i$') || name.contains('/') && !name.startsWith('requests.') && !format.qualifiedName().validate('requests.' + name).hasValue()) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?limits in [oldSelf.?spec.?resources.?limits]`,message="must name known resources: cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or extended resources such as example.com/gpu"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.limits",optionalOldSelf=true,rule=`!has(self.spec.?resources.limits) || self.spec.resources.limits.all(name, type(self.spec.resources.limits[name]) == int ? self.spec.resources.limits[name] >= 0 : !self.spec.resources.limits[name].startsWith('-') && !self.spec.resources.limits[name].matches('[eE]...') && isQuantity(self.spec.resources.limits[name])) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?limits in [oldSelf.?spec.?resources.?limits]`,message="must be quantities of zero or more, such as 500m, 0.5 or 1Gi"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.limits",optionalOldSelf=true,rule=`!has(self.spec.?resources.limits) || self.spec.resources.limits.all(name, !name.contains('/') || name.contains('kubernetes.io/') || (type(self.spec.resources.limits[name]) == int ? self.spec.resources.limits[name] < 1000000000000000 : self.spec.resources.limits[name].matches('^\\d{1,9}[kMi]*$'))) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?limits in [oldSelf.?spec.?resources.?limits]`,message="must be whole numbers for extended resources such as example.com/gpu"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.limits",optionalOldSelf=true,rule=`!has(self.spec.?resources.limits) || self.spec.resources.limits.all(name, !name.matches('^hugepages-[1-9][0-9]*[KMG]i$') || !string(self.spec.resources.limits[name]).matches('[eE]') && quantity(string(self.spec.resources.limits[name])).asInteger() % quantity(name.substring(10)).asInteger() == 0) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?limits in [oldSelf.?spec.?resources.?limits]`,message="must be multiples of the page size for huge pages, such as 4Mi for hugepages-2Mi"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.limits",optionalOldSelf=true,rule=`!has(self.spec.?resources.limits) || !self.spec.resources.limits.exists(name, name.startsWith('hugepages-')) || ['cpu', 'memory'].exists(name, name in self.spec.resources.limits || has(self.spec.resources.requests) && name in self.spec.resources.requests) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources in [oldSelf.?spec.?resources]`,message="must come with cpu or memory for huge pages"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.requests",optionalOldSelf=true,rule=`!has(self.spec.?resources.requests) || self.spec.resources.requests.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/')) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?requests in [oldSelf.?spec.?resources.?requests]`,message="must name known resources: cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or extended resources such as example.com/gpu"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.requests",optionalOldSelf=true,rule=`!has(self.spec.?resources.requests) || self.spec.resources.requests.all(name, type(self.spec.resources.requests[name]) == int ? self.spec.resources.requests[name] >= 0 : !self.spec.resources.requests[name].startsWith('-') && !self.spec.resources.requests[name].matches('[eE]...') && isQuantity(self.spec.resources.requests[name])) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?requests in [oldSelf.?spec.?resources.?requests]`,message="must be quantities of zero or more, such as 500m, 0.5 or 1Gi"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.requests",optionalOldSelf=true,rule=`!has(self.spec.?resources.requests) || !has(self.spec.resources.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(name, !(name in self.spec.resources.requests && name in self.spec.resources.limits) || string(self.spec.resources.requests[name]).matches('[eE]...') || string(self.spec.resources.limits[name]).matches('[eE]...') || !quantity(string(self.spec.resources.requests[name])).isGreaterThan(quantity(string(self.spec.resources.limits[name])))) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources in [oldSelf.?spec.?resources]`,message="must not be above the limits"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.requests",optionalOldSelf=true,rule=`!has(self.spec.?resources.requests) || self.spec.resources.requests.all(name, !(name.startsWith('hugepages-') || name.contains('/')) || has(self.spec.resources.limits) && name in self.spec.resources.limits && string(self.spec.resources.requests[name]) == string(self.spec.resources.limits[name])) || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources in [oldSelf.?spec.?resources]`,message="must be written as in the limits for huge pages and for extended resources such as example.com/gpu, which cannot be overcommitted"
// +kubebuilder:validation:XValidation:fieldPath=".spec.resources.claims",optionalOldSelf=true,rule=`!has(self.spec.?resources.claims) || size(self.spec.resources.claims) == 0 || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?resources.?claims in [oldSelf.?spec.?resources.?claims]`,message="must be empty: an Icecream's Pods have no resource claims"

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
	Image string `json:"image,omitempty"`

	// The compute resources of each Pod's container.
	// More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
	// +optional
	Resources IcecreamResources `json:"resources,omitempty"`
}

// IcecreamResources are the compute resources of a container. Its fields are those
// of corev1.ResourceRequirements; its rules, at Icecream, are those by which the API
// server judges a container, so that a mistake is refused before a Deployment is made
// of it.
type IcecreamResources struct {
	// The most that the container may use of each resource, such as cpu, memory,
	// ephemeral-storage, hugepages-2Mi or example.com/gpu.
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// How much of each resource is reserved for each Pod on its node: as much as the
	// limit where a request is left out, and never more. Requests for huge pages and
	// extended resources need the same limit.
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Not supported: an Icecream's Pods have no resource claims.
	// +optional
	// +listType=map
	// +listMapKey=name
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
