package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"

	"nicoleh.io/k8s-controller/test/lab"
)

// TestScripts runs testdata/script/*.txtar, each in a namespace of its own. A script is what a
// user would type. Beside kubectl and the commands of testscript it has
//
//	eventually REGEXP COMMAND ARGS...
//
// which repeats a command until it succeeds and prints something that matches, and
//
//	may-be-denied
//
// after which the controller's own policies can refuse what the controller requests.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setUpScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl":    runKubectl,
			"eventually": eventuallyPrints,
			"may-be-denied": func(ts *testscript.TestScript, _ bool, _ []string) {
				withController.MayBeDenied(ts.Getenv("NAMESPACE"))
			},
		},
	})
}

// setUpScript gives a script its namespace, with kubectl in its PATH.
func setUpScript(env *testscript.Env) error {
	t := env.T().(testing.TB)
	n := withController.NewNamespace(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(lab.Clip(n.Describe()))
		}
	})
	config, err := clientcmd.LoadFromFile(n.Lab.Kubeconfig())
	if err != nil {
		return err
	}
	for _, context := range config.Contexts {
		context.Namespace = n.Name
	}
	kubeconfig := filepath.Join(env.WorkDir, "kubeconfig")
	env.Setenv("PATH", filepath.Dir(n.Lab.Kubectl())+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("KUBECONFIG", kubeconfig)
	env.Setenv("KUBECACHEDIR", filepath.Join(n.Lab.Dir(), "kubectl-cache"))
	env.Setenv("NAMESPACE", n.Name)
	env.Setenv("REPOSITORY", n.Lab.Path("."))
	return clientcmd.WriteToFile(*config, kubeconfig)
}

func runKubectl(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("kubectl", args...)
	switch {
	case err != nil && !neg:
		ts.Fatalf("kubectl: %v", err)
	case err == nil && neg:
		ts.Fatalf("kubectl succeeded")
	}
}

func eventuallyPrints(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP COMMAND ARGS...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var output []byte
	for end := time.Now().Add(lab.Timeout); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		command := exec.Command("env", args[1:]...) // which looks for it in the script's PATH
		command.Dir = ts.MkAbs(".")
		for _, name := range []string{"PATH", "HOME", "KUBECONFIG", "KUBECACHEDIR"} {
			command.Env = append(command.Env, name+"="+ts.Getenv(name))
		}
		if output, err = command.Output(); err == nil && want.Match(output) {
			return
		}
	}
	ts.Fatalf("no match for %q within %s: %v\n%s", args[0], lab.Timeout, err, output)
}
