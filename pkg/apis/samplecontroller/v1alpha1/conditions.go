package v1alpha1

// The conditions of an Icecream. All three are present from the first status
// on and are read the way kstatus reads them
// (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).
const (
	// ConditionReady is True while every replica asked for is available and
	// made from the current spec, and nothing else is left over.
	ConditionReady = "Ready"
	// ConditionReconciling is True while progress towards Ready is being made.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while nothing will change without somebody
	// acting.
	ConditionStalled = "Stalled"
)

// The reasons in the conditions of an Icecream, and of its events.
const (
	// ReasonAvailable says that every replica is available.
	ReasonAvailable = "Available"
	// ReasonProgressing says that a rollout is under way and nothing is wrong with it.
	ReasonProgressing = "Progressing"
	// ReasonDeploymentTerminating says that a Deployment is being deleted and has
	// to be gone first: the Icecream's own, one of its former name, or somebody
	// else's of its name.
	ReasonDeploymentTerminating = "DeploymentTerminating"

	// ReasonErrResourceExists says that the Deployment of that name belongs to
	// somebody else.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonInvalidSpec says that the API server refuses the Deployment that
	// the spec asks for, or that the spec cannot be decoded.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonDeploymentRefused says that the API server, one of its admission
	// plugins or a quota does not allow the Deployment to be written. The
	// controller keeps trying.
	ReasonDeploymentRefused = "DeploymentRefused"

	// ReasonDeploymentContested says that somebody undoes what the controller
	// writes to the Deployment again and again. The controller keeps repairing
	// it, with growing pauses.
	ReasonDeploymentContested = "DeploymentContested"

	// ReasonUnschedulable says that no node can take a Pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImagePullBackOff says that a node cannot pull the image.
	ReasonImagePullBackOff = "ImagePullBackOff"
	// ReasonCrashLoopBackOff says that a container keeps ending.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	// ReasonContainerError says that a node cannot create or start a container.
	ReasonContainerError = "ContainerError"
	// ReasonReplicaFailure says that Pods or their ReplicaSet could not be created,
	// for example because of a quota.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonDeploymentPaused says that somebody has paused the Deployment in
	// the middle of a rollout (its spec.paused).
	ReasonDeploymentPaused = "DeploymentPaused"
	// ReasonProgressDeadlineExceeded says that a rollout, or a single Pod, has
	// taken longer than the Deployment's spec.progressDeadlineSeconds.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// The reasons of events that are not also reasons of a condition.
const (
	// ReasonSynced is the event for an Icecream that has become Ready.
	ReasonSynced = "Synced"
	// ReasonScheduled is the event for a changed placement.
	ReasonScheduled = "Scheduled"
	// ReasonDeploymentCreated is the event for a Deployment created or created again.
	ReasonDeploymentCreated = "DeploymentCreated"
	// ReasonDeploymentAdopted is the event for an orphan taken back.
	ReasonDeploymentAdopted = "DeploymentAdopted"
	// ReasonDeploymentUpdated is the event for a Deployment set right.
	ReasonDeploymentUpdated = "DeploymentUpdated"
	// ReasonDeploymentAltered is the event for a Deployment that the API server has
	// stored otherwise than it was requested to, by an admission policy or webhook.
	ReasonDeploymentAltered = "DeploymentAltered"
	// ReasonDeploymentRenamed is the event for the end of a rename.
	ReasonDeploymentRenamed = "DeploymentRenamed"
)
