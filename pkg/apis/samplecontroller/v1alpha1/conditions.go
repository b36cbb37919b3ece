package v1alpha1

// The types of an Icecream's conditions. Every status that the controller writes has all
// three, and exactly one of them is True. They follow the conventions of kstatus
// (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).
const (
	// ConditionReady is True while all desired replicas are available and were created
	// from the current spec, and no Pods of an earlier spec are left.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the Icecream is not Ready but may still become so
	// without an edit.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True if only an edit can help, or when there has been no progress
	// for longer than the Deployment's spec.progressDeadlineSeconds (600 if there is no
	// Deployment).
	ConditionStalled = "Stalled"
)

// The reasons of an Icecream's conditions, most of which are also reasons of its events.
const (
	// ReasonAvailable means that all replicas are available.
	ReasonAvailable = "Available"
	// ReasonProgressing means that a rollout is in progress, without a known problem.
	ReasonProgressing = "Progressing"
	// ReasonDeploymentTerminating means that a Deployment is being deleted, and that the
	// controller waits until it is gone: the Icecream's own, or someone else's of the name
	// that the Icecream needs. Or that the namespace is being deleted.
	ReasonDeploymentTerminating = "DeploymentTerminating"

	// ReasonErrResourceExists means that there is a Deployment of the name that the
	// Icecream needs, and that it belongs to someone else.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonInvalidSpec means that the spec cannot be decoded, or that the API server
	// rejects the Deployment derived from it as invalid.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonDeploymentRefused means that the API server, an admission plugin or a quota
	// does not allow the controller to write the Deployment. The controller keeps
	// retrying.
	ReasonDeploymentRefused = "DeploymentRefused"

	// ReasonDeploymentContested means that someone else repeatedly reverts what the
	// controller writes to the Deployment. The controller keeps repairing the Deployment,
	// at increasing intervals.
	ReasonDeploymentContested = "DeploymentContested"

	// ReasonUnschedulable means that the scheduler finds no node for a Pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImagePullBackOff means that a node cannot pull the image.
	ReasonImagePullBackOff = "ImagePullBackOff"
	// ReasonCrashLoopBackOff means that a container exits again and again.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	// ReasonContainerError means that a node cannot create or start a container.
	ReasonContainerError = "ContainerError"
	// ReasonReplicaFailure means that Pods or their ReplicaSet cannot be created, for
	// example because of a quota.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonPodFailed means that Pods have failed for good and were replaced, for example
	// because a node has rejected or evicted them.
	ReasonPodFailed = "PodFailed"
	// ReasonPodNotReady means that nothing is known to be wrong with a Pod, but that there
	// has been no progress for a minute. The message says what the Pod waits for.
	ReasonPodNotReady = "PodNotReady"
	// ReasonDeploymentPaused means that someone has paused the Deployment, by its
	// spec.paused, before its rollout was complete.
	ReasonDeploymentPaused = "DeploymentPaused"
	// ReasonProgressDeadlineExceeded means that there has been no progress for longer than
	// the Deployment's spec.progressDeadlineSeconds, and that no Pod shows why.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// The reasons of an Icecream's events that are not reasons of a condition.
const (
	// ReasonSynced is the reason of the event for an Icecream that has become Ready.
	ReasonSynced = "Synced"
	// ReasonScheduled is the reason of the event for Pods that run on other nodes than
	// before.
	ReasonScheduled = "Scheduled"
	// ReasonDeploymentCreated is the reason of the event for a Deployment that the
	// controller has created or re-created.
	ReasonDeploymentCreated = "DeploymentCreated"
	// ReasonDeploymentAdopted is the reason of the event for an orphaned Deployment that
	// the controller has adopted.
	ReasonDeploymentAdopted = "DeploymentAdopted"
	// ReasonDeploymentUpdated is the reason of the event for a Deployment that the
	// controller has updated to match the spec.
	ReasonDeploymentUpdated = "DeploymentUpdated"
	// ReasonDeploymentAltered is the reason of the event for a Deployment that the API
	// server has not stored as requested, because an admission policy or webhook has
	// changed it.
	ReasonDeploymentAltered = "DeploymentAltered"
)
