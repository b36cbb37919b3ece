package lab

// Program is what a Lab needs to know of a program of this repository.
type Program struct {
	// Main is the directory of its main package.
	Main string
	// Manifests install its permissions and its policies. The policy of its Lease is in the last
	// one, behind all others; see waitForPolicies.
	Manifests []string
	// Namespace is the namespace that the manifests install it in.
	Namespace string
	// Account is the name of its service account, and of its ClusterRole and its Lease.
	Account string
}

// Names in artifacts/service-account.yaml and artifacts/rbac-icecream.yaml. The ClusterRole
// and its binding have the name of the account.
const (
	SystemNamespace = "k8s-controller-system"
	ServiceAccount  = "k8s-controller"
)

// Icecream is the program at the root of this repository. It has no Deployment in a Lab, so that
// tests can install that.
var Icecream = Program{
	Main:      ".",
	Manifests: []string{"artifacts/rbac-icecream.yaml", "artifacts/service-account.yaml"},
	Namespace: SystemNamespace,
	Account:   ServiceAccount,
}

// App is the program in the directory apps/NAME. Its Pods do nothing in a Lab, except if a test
// calls [Lab.RunPods].
func App(name string) Program {
	return Program{
		Main:      "./apps/" + name,
		Manifests: []string{"apps/" + name + "/install.yaml"},
		Namespace: name + "-system",
		Account:   name,
	}
}

// hasIcecreams reports whether the program needs the CustomResourceDefinition of Icecreams.
func (p Program) hasIcecreams() bool { return p.Main == Icecream.Main }
