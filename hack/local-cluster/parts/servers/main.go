// Command servers is etcd or kube-apiserver, whichever its first argument names: the two
// programs that are also part of envtest's binaries.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	"nicoleh.io/k8s-controller/hack/local-cluster/parts/parent"
)

func main() {
	os.Args = os.Args[1:] // where Cobra and etcd look for the flags
	parent.Watch()
	switch {
	case len(os.Args) > 0 && os.Args[0] == "etcd":
		etcdmain.Main(os.Args)
	case len(os.Args) > 0 && os.Args[0] == "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "usage: servers etcd|kube-apiserver [flags]")
		os.Exit(2)
	}
}
