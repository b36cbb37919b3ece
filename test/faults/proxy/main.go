// Command proxy puts faults between a client and an API server:
//
//	go -C test run ./faults/proxy -kubeconfig ~/.kube/config -fault 'verb=update,resource=icecreams/status,reset=after,count=3'
//
// It writes a kubeconfig for the client, and then a line for each request that arrives, with
// the faults that are applied to it. See package fault for what a fault is.
//
// Like kubectl proxy, it lends the credentials of its kubeconfig to everyone who can connect
// to its address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, args []string, out io.Writer) error {
	var rules []fault.Rule
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	flags.SetOutput(out)
	kubeconfig := flags.String("kubeconfig", os.Getenv(clientcmd.RecommendedConfigPathEnvVar), "Path of the kubeconfig for the API server.")
	listen := flags.String("listen", "127.0.0.1:0", "Address to serve plain HTTP on.")
	write := flags.String("write-kubeconfig", "faults.kubeconfig", "Path of the kubeconfig to write for the client.")
	flags.Func("fault", "What to do to which requests. May be repeated.", func(text string) error {
		rule, err := fault.Parse(text)
		rules = append(rules, rule)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	apiServer, err := fault.APIServer(config)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	if err := writeKubeconfig(*write, "http://"+listener.Addr().String()); err != nil {
		return errors.Join(err, listener.Close())
	}
	set := &fault.Set{Log: logTo(out)}
	for _, rule := range rules {
		set.Add(rule)
	}
	fmt.Fprintf(out, "KUBECONFIG=%s\n", *write)
	return serve(ctx, listener, set.Handler(apiServer))
}

// serve serves until ctx is done.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // open watches would never end
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// logTo returns a function that writes a line for each request.
func logTo(out io.Writer) func(fault.Request, []*fault.Active) {
	var mu sync.Mutex
	return func(r fault.Request, applied []*fault.Active) {
		effects := []string{"passed on"}
		if len(applied) > 0 {
			effects = nil
		}
		for _, a := range applied {
			effects = append(effects, fmt.Sprintf("%s (%d)", a.Rule.Effect, a.Applied()))
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%s %s: %s\n", time.Now().Format("15:04:05.000"), r, strings.Join(effects, ", "))
	}
}

// writeKubeconfig writes a kubeconfig that connects to the proxy.
func writeKubeconfig(path, address string) error {
	const name = "faults"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: address}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}
