package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/client/clientset/versioned"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/client"
	kyaml "sigs.k8s.io/yaml"
)

// newKwok returns the command that plays the kubelets. It takes the place of kwok's own
// command, which also serves the kubelet's API and manages clusters of its own: this
// one plays the stages of its configuration for all nodes and does nothing else.
func newKwok() *cobra.Command {
	var kubeconfig, stages string
	config := controllers.Config{
		Clock:          clock.RealClock{},
		ManageAllNodes: true,
		// A cluster has one kwok, and a later one need not wait until the Leases of an
		// earlier one have expired.
		ID: "kwok",
		// kwok's own defaults:
		PodPlayStageParallelism:       4,
		NodePlayStageParallelism:      4,
		NodeLeaseParallelism:          4,
		PodsOnNodeSyncParallelism:     1,
		EnablePodsOnNodeSyncListPager: true,
	}
	command := &cobra.Command{
		Use:  "kwok",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return runKwok(command.Context(), kubeconfig, stages, config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.StringVar(&stages, "config", "", "file with the stages of nodes and Pods")
	flags.StringVar(&config.CIDR, "cidr", "", "network of the Pods")
	flags.StringVar(&config.NodeIP, "node-ip", "", "address of nodes that do not have one")
	flags.UintVar(&config.NodeLeaseDurationSeconds, "node-lease-duration-seconds", 40, "duration of the leases of nodes")
	return command
}

func runKwok(ctx context.Context, kubeconfig, stages string, config controllers.Config) error {
	var err error
	if config.LocalStages, err = readStages(stages); err != nil {
		return fmt.Errorf("reading %s: %w", stages, err)
	}
	clients, err := client.NewClientset("", kubeconfig)
	if err != nil {
		return err
	}
	restConfig, err := clients.ToRESTConfig()
	if err != nil {
		return err
	}
	if config.RESTClient, err = rest.RESTClientFor(restConfig); err != nil {
		return err
	}
	if config.TypedClient, err = kubernetes.NewForConfig(restConfig); err != nil {
		return err
	}
	if config.TypedKwokClient, err = versioned.NewForConfig(restConfig); err != nil {
		return err
	}
	if config.DynamicClient, err = clients.ToDynamicClient(); err != nil {
		return err
	}
	if config.RESTMapper, err = clients.ToRESTMapper(); err != nil {
		return err
	}
	config.ImpersonatingDynamicClient = clients.ToImpersonatingDynamicClient()
	config.ImpersonatingTypedClient = clients.ToImpersonatingTypedClient()
	c, err := controllers.NewController(config)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// readStages reads the stages in a file, by the kind of object that they are about.
func readStages(path string) (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	stages := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return stages, nil
		}
		if err != nil {
			return nil, err
		}
		var versioned v1alpha1.Stage
		if err := kyaml.UnmarshalStrict(document, &versioned); err != nil {
			return nil, err
		}
		v1alpha1.SetObjectDefaults_Stage(&versioned)
		stage, err := internalversion.ConvertToInternalStage(&versioned)
		if err != nil {
			return nil, err
		}
		stages[stage.Spec.ResourceRef] = append(stages[stage.Spec.ResourceRef], stage)
	}
}
