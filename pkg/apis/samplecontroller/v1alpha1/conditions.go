package v1alpha1

// The types of an Icecream's conditions. Every status that the controller writes has all
// three, and exactly one of them is True. They follow the conventions of kstatus
// (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).
const (
	// ConditionReady is True while all replicas are available and were created from the
	// current spec, and no other Pods are left. As in a Deployment's status, Pods that are
	// terminating do not count.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the Icecream is neither Ready nor Stalled.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True if only an edit can help (InvalidSpec), if the Deployment's
	// own Progressing condition has the reason ProgressDeadlineExceeded, or if Ready has
	// been False for ten minutes, for whatever reasons, and the reason is now one that only
	// somebody else can end: DeploymentRefused (for a minute at least), ErrResourceExists,
	// DeploymentContested, DeploymentTerminating.
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
	// Icecream needs, and that it belongs to someone else. Or there is none, and an older
	// Icecream asks for it.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonInvalidSpec means that the spec cannot be decoded, that one of its numbers is
	// too large, that spec.template is not a part of a Pod template, or that the API server
	// rejects the Deployment derived from it as invalid.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonDeploymentRefused means that the API server, an admission plugin or a quota
	// does not allow the controller to write the Deployment, or that such writes have
	// failed otherwise for ten seconds. The controller keeps retrying.
	ReasonDeploymentRefused = "DeploymentRefused"

	// ReasonDeploymentContested means that someone else keeps reverting what the controller
	// writes to the Deployment. The controller keeps repairing it, at increasing intervals.
	// It ends when a repair has stayed for a minute.
	ReasonDeploymentContested = "DeploymentContested"

	// ReasonUnschedulable means that the scheduler finds no node for a Pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImagePullBackOff means that a node cannot pull the image, from the first failed
	// attempt on.
	ReasonImagePullBackOff = "ImagePullBackOff"
	// ReasonCrashLoopBackOff means that a container keeps exiting, or has run for less than
	// a minute since it failed.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	// ReasonContainerError means that a node cannot create or start a container.
	ReasonContainerError = "ContainerError"
	// ReasonReplicaFailure means that Pods or their ReplicaSet cannot be created, for
	// example because of a quota.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonPodFailed means that a Pod has failed for good within the last minute, for
	// example because its node has rejected or evicted it, and that the other Pods
	// are not enough for Ready.
	ReasonPodFailed = "PodFailed"
	// ReasonPodNotReady means that nothing has failed in a Pod, but that it has not been
	// ready for a minute, or does not end after its grace period. The message says what the
	// Pod waits for.
	ReasonPodNotReady = "PodNotReady"
	// ReasonDeploymentPaused means that someone has paused the Deployment, by its
	// spec.paused, before its rollout was complete.
	ReasonDeploymentPaused = "DeploymentPaused"
	// ReasonProgressDeadlineExceeded means that the Deployment's rollout has made no progress
	// for longer than its spec.progressDeadlineSeconds, and that nothing shows why.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// The other reasons of an Icecream's events. DeploymentAltered is also one of its conditions.
const (
	// ReasonSynced is the reason of the event for an Icecream that has become Ready,
	// or is Ready after an edit.
	ReasonSynced = "Synced"
	// ReasonScheduled is the reason of the event for Pods that run on other nodes than
	// before, or are gone from one. There is none while Progressing.
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
	// ReasonDeploymentAltered is the reason of the event for a Deployment whose image or
	// replicas an admission policy or webhook has changed. With fewer replicas than the
	// Icecream asks for, it is also the reason why the Icecream is not Ready.
	ReasonDeploymentAltered = "DeploymentAltered"
)
