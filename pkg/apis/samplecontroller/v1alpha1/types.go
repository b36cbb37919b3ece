package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// All validation rules are attached to Icecream itself; the fieldPath of each one names
// the field that it checks. Every rule has this form, in CEL:
//
//	the field is absent || the field is valid || the status changes || the field does not change
//
// The last two alternatives have these reasons:
//
//   - The status changes: the API server evaluates all rules on writes of the status, too,
//     although such a write cannot change the spec. An Icecream that was stored under
//     another schema may have a spec that does not fit this one, such as a number for an
//     image. A rule that reads this number fails with an error, and the API server would
//     reject the new status. In CEL, however, "error || true" is true. A rule that is
//     attached to the field itself cannot see the status.
//   - The field does not change: an invalid value that was stored before its rule existed
//     must not prevent changes to other fields. The API server itself tolerates unchanged
//     values, but only in rules that do not use oldSelf.
//
// Rules compare self and oldSelf as optionals. Up to Kubernetes 1.36, the fields of oldSelf
// are plain JSON, in which a time is a string and therefore differs from the time in self;
// the fields of optional.of(self) are plain JSON as well. The expression "x in [y]" means
// "x == y", except that it is false, rather than an error, if the two values cannot be
// compared. The API server also estimates its cost as low.
//
// The estimated cost is why the number of resources is limited: the API server assumes
// that every quantity is as long as the largest request that it accepts. A quantity whose
// exponent has more than two characters is rejected before it is parsed, because parsing
// 1e-999999999 would take hours. The rules for the names and quantities of huge pages and
// extended resources check the limits only, because their requests must equal the limits.

// +kubebuilder:validation:XValidation:fieldPath=".spec.deploymentName",optionalOldSelf=true,rule=`!has(self.spec.deploymentName) || !format.dns1123Subdomain().validate(self.spec.deploymentName).hasValue() || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?deploymentName in [oldSelf.?spec.?deploymentName]`,message="must be a DNS-1123 subdomain",messageExpression=`strings.quote(self.spec.deploymentName) + (self.spec.deploymentName == '' ? ": must not be empty: leave deploymentName out to use the Icecream's own name" : ": must be a DNS-1123 subdomain: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, such as 'my-icecream'")`
// +kubebuilder:validation:XValidation:fieldPath=".spec.image",optionalOldSelf=true,rule=`!has(self.spec.image) || self.spec.image.matches('^(([a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*(\\.[a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*)*|\\[[a-fA-F0-9:]+\\])(:[0-9]+)?/)?[a-z0-9]+(([/._]|__|-+)[a-z0-9]+)*(:\\w[\\w.-]{0,127})?(@sha(256:[a-f0-9]{64}|384:[a-f0-9]{96}|512:[a-f0-9]{128}))?$') && self.spec.image.matches('^(([^/]*[.:A-Z][^/]*|localhost)/)?[^:@]{1,255}(:[^/@]*)?(@|$)') && !self.spec.image.matches('^[a-f0-9]{64}$') || !(optional.of(self).?status in [oldSelf.?status]) || optional.of(self).?spec.?image in [oldSelf.?spec.?image]`,message="must be an image reference",messageExpression=`strings.quote(self.spec.image) + (!self.spec.image.matches('^\\S+$') ? ': must not be empty or contain spaces: leave image out to use the default image' : self.spec.image.contains('@') && !self.spec.image.matches('@sha(256:[a-f0-9]{64}|384:[a-f0-9]{96}|512:[a-f0-9]{128})$') ? ": must have 64 hexadecimal digits in lower case after '@sha256:', 96 after '@sha384:' or 128 after '@sha512:'" : ": must be an image reference, [registry[:port]/]repository[:tag][@digest], with a repository in lower case, of at most 255 characters, such as 'registry.example.com:5000/team/icecream:1.2'")`
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

// Icecream runs a number of identical Pods by means of one Deployment. Its status
// reports the nodes that the Pods run on, how many Pods are ready, and what is wrong
// if some are not.
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
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="The desired number of replicas."
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="The number of available replicas."
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodeCount`,description="The number of nodes that the Pods run on."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Icecream is ready or not ready."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Deployment",type=string,priority=1,JSONPath=`.status.deploymentName`,description="The Deployment in use."
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
	// a DNS-1123 subdomain of at most 253 characters. If it is absent, the Deployment has
	// the name of the Icecream. If it changes, the controller first creates a Deployment
	// of the new name, and deletes the old Deployment as soon as the new one is
	// available. The controller never changes a Deployment of that name that belongs to
	// someone else: the Icecream is Stalled until the name becomes free.
	// +optional
	// +kubebuilder:validation:MaxLength=253
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
	// to docker.io/nginxinc/nginx-unprivileged:1.29.3-alpine. The Pods meet the restricted
	// Pod Security Standard, so the image must run as a user other than root, and must
	// name that user by its numeric ID.
	// +optional
	// +kubebuilder:default="docker.io/nginxinc/nginx-unprivileged:1.29.3-alpine"
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources are the compute resources of the container in each Pod. If the field is
	// absent, the container has no limits and no requests, other than those that a
	// LimitRange of the namespace sets.
	// More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
	// +optional
	Resources IcecreamResources `json:"resources,omitempty"`
}

// IcecreamResources are the compute resources of a container. Its fields are those of
// corev1.ResourceRequirements. Its validation rules, which are attached to Icecream, are
// those that the API server applies to a container, so that the API server rejects an
// invalid Icecream before the controller derives a Deployment from it.
type IcecreamResources struct {
	// limits are the maximum amounts of compute resources that the container may use, by
	// the name of the resource: cpu, memory, ephemeral-storage, huge pages such as
	// hugepages-2Mi, or extended resources such as example.com/gpu. At most 7 resources can
	// be listed. A resource that is absent is not limited, unless a LimitRange of the
	// namespace limits it. Limits on huge pages must be multiples of the page size, and
	// the container then also needs a limit or a request for cpu or memory. Limits on
	// extended resources must be whole numbers.
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// requests are the amounts of compute resources that are reserved for the container
	// on its node, by the name of the resource. At most 7 resources can be listed. If a
	// resource is absent, its request defaults to its limit, if it has one. A request must
	// not exceed the limit of the same resource. A request for huge pages or for an
	// extended resource must equal the limit and be written in the same way.
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// claims must be empty: an Icecream's Pods have no resource claims.
	// +optional
	// +listType=map
	// +listMapKey=name
	Claims []corev1.ResourceClaim `json:"claims,omitempty"`
}

// IcecreamStatus is the most recently observed state of an Icecream.
type IcecreamStatus struct {
	// observedGeneration is the metadata.generation of the Icecream that this status
	// describes. If it is -1 or absent, the controller has not reported a status yet.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// deploymentName is the name of the Deployment that runs the Pods. While a rename is in
	// progress or is impossible, it is still the name of the old Deployment. It is absent
	// while there is no Deployment.
	// +optional
	DeploymentName string `json:"deploymentName,omitempty"`

	// replicas is the number of Pods of the Deployment in deploymentName.
	// +optional
	Replicas int32 `json:"replicas"`

	// updatedReplicas is the number of Pods that were created from the current spec.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// readyReplicas is the number of ready Pods of the Deployment in deploymentName.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// availableReplicas is the number of available Pods of the Deployment in
	// deploymentName: Pods that have been ready for at least the Deployment's
	// spec.minReadySeconds.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// selector is the label selector of the Pods in its string form. It is what the scale
	// subresource reports, and what a HorizontalPodAutoscaler uses to find the Pods.
	// +optional
	Selector string `json:"selector,omitempty"`

	// nodes are the nodes that the Pods run on, sorted by name. If there are more than
	// 100, only the first 100 are listed. Pods that are terminating or have finished do
	// not count; during a rename, the Pods of both Deployments do.
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
	Placement string `json:"placement,omitempty"`

	// conditions are the controller's conclusions about the Icecream. Their types are
	// Ready, Reconciling and Stalled. Every status that the controller writes has all
	// three, and exactly one of them is True. They follow the conventions of kstatus.
	// More info: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// IcecreamNode counts the Pods of an Icecream on one node.
type IcecreamNode struct {
	// name is the name of the node.
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
