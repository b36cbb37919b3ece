package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Database runs identical Pods through one StatefulSet of the same name.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=databases,singular=database,shortName=db,categories=all,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Version",type=integer,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Database struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the Database.
	Spec DatabaseSpec `json:"spec"`

	// status is the most recently observed state of the Database. Only the controller
	// writes it.
	// +optional
	Status DatabaseStatus `json:"status,omitempty"`
}

// DatabaseSpec is the desired state of a Database.
type DatabaseSpec struct {
	// version is the major version of the database, and the tag of the image. It can go
	// up, but not down.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="must not go down: no database reads the files of a later version"
	Version int32 `json:"version"`

	// image is the container image to run, without a tag. It must run as a user other than
	// root, and must name that user by its numeric ID.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+([._:/-]+[a-z0-9]+)*$`
	Image string `json:"image"`

	// replicas is the desired number of Pods.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// shutdownTimeout is how long a Pod can take to shut down. Without the pattern, the schema
	// would admit every text, such as "tomorrow", which is no duration.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`
	ShutdownTimeout *metav1.Duration `json:"shutdownTimeout,omitempty"`
}

// DatabaseStatus is the most recently observed state of a Database.
type DatabaseStatus struct {
	// observedGeneration is the generation of the Database that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// availableReplicas is the number of Pods that are available.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`

	// conditions are Ready, Reconciling and Stalled. Exactly one of them is True.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DatabaseList is a list of Databases.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

// Reasons of the condition Ready.
const (
	ReasonAvailable         = "Available"         // all Pods are, and run the version asked for
	ReasonContested         = "Contested"         // somebody else keeps changing the StatefulSet
	ReasonErrResourceExists = "ErrResourceExists" // the StatefulSet of the name belongs to someone else
	ReasonInvalidSpec       = "InvalidSpec"       // the API server's validation, or this controller, refuses what is asked for
	ReasonRefused           = "Refused"           // a policy, a webhook or a quota refuses the StatefulSet
	ReasonTerminating       = "Terminating"       // the StatefulSet is being deleted
)
