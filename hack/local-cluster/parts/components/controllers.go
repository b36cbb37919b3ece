package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	accounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/generated/openapi"
	quota "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/pkg/serviceaccount"
	resourcemetrics "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"

	"nicoleh.io/k8s-controller/hack/local-cluster/parts/podgc"
)

// managerOptions are the flags of kube-controller-manager that a cluster sets.
type managerOptions struct {
	kubeconfig             string
	rootCA                 string
	serviceAccountKey      string
	nodeMonitorGracePeriod time.Duration
	qps                    float32
	burst                  int
}

// newControllerManager returns the command that runs the controllers listed in
// constructors. It takes the place of kube-controller-manager's own command, which
// imports every controller of Kubernetes, and with them the volume plugins, half of
// the kubelet and cAdvisor. The controllers themselves are the same, with the settings
// that kube-controller-manager gives them by default.
func newControllerManager() *cobra.Command {
	var options managerOptions
	command := &cobra.Command{
		Use:  "kube-controller-manager",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runControllers(command.Context(), options) },
	}
	flags := command.Flags()
	flags.StringVar(&options.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.StringVar(&options.rootCA, "root-ca-file", "", "certificates of the authority that signed the API server's certificate")
	flags.StringVar(&options.serviceAccountKey, "service-account-private-key-file", "", "key that signs tokens of service accounts")
	flags.DurationVar(&options.nodeMonitorGracePeriod, "node-monitor-grace-period", 50*time.Second, "how long a node may be silent before it counts as lost")
	flags.Float32Var(&options.qps, "kube-api-qps", 20, "requests per second of each client")
	flags.IntVar(&options.burst, "kube-api-burst", 30, "requests that each client may make at once")
	utilfeature.DefaultMutableFeatureGate.AddFlag(flags)
	return command
}

// manager holds what controllers are made from.
type manager struct {
	options  managerOptions
	root     clientbuilder.ControllerClientBuilder // with the manager's own rights
	accounts clientbuilder.ControllerClientBuilder // with those of each controller's service account

	informers        informers.SharedInformerFactory
	metadata         metadata.Interface
	allInformers     informerfactory.InformerFactory
	mapper           *restmapper.DeferredDiscoveryRESTMapper
	informersStarted chan struct{}
}

// runControllers starts all controllers. It returns only if one cannot be started.
func runControllers(ctx context.Context, options managerOptions) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	m, err := newManager(ctx, options)
	if err != nil {
		return err
	}
	var runs []func(context.Context)
	for _, c := range constructors() {
		identity, err := m.identity(c.account)
		if err != nil {
			return fmt.Errorf("creating clients for %s: %w", c.account, err)
		}
		run, err := c.create(ctx, identity)
		if err != nil {
			return fmt.Errorf("creating a controller for %s: %w", c.account, err)
		}
		runs = append(runs, run)
	}
	m.informers.Start(ctx.Done())
	m.allInformers.Start(ctx.Done())
	close(m.informersStarted)
	for _, run := range runs {
		go run(ctx)
	}
	<-ctx.Done()
	return nil
}

func newManager(ctx context.Context, options managerOptions) (*manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", options.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = options.qps, options.burst
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	root := clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
	client, err := root.Client("shared-informers")
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(root.ConfigOrDie("metadata-informers"))
	if err != nil {
		return nil, err
	}
	discoveryClient, err := root.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, err
	}
	trim := func(object any) (any, error) {
		if accessor, err := meta.Accessor(object); err == nil {
			accessor.SetManagedFields(nil)
		}
		return object, nil
	}
	shared := informers.NewSharedInformerFactoryWithOptions(client, resync(), informers.WithTransform(trim))
	m := &manager{
		options: options,
		root:    root,
		accounts: clientbuilder.NewDynamicClientBuilder(
			rest.AnonymousClientConfig(config), client.CoreV1(), metav1.NamespaceSystem),
		informers: shared,
		metadata:  metadataClient,
		allInformers: informerfactory.NewInformerFactory(shared,
			metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync(), metadatainformer.WithTransform(trim))),
		mapper:           restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient)),
		informersStarted: make(chan struct{}),
	}
	go wait.Until(m.mapper.Reset, 30*time.Second, ctx.Done())
	return m, nil
}

func resync() time.Duration {
	return time.Duration(float64(12*time.Hour) * (1 + rand.Float64()))
}

// A constructor creates a controller that acts with the rights of a service account.
type constructor struct {
	account string
	create  func(context.Context, *identity) (run func(context.Context), err error)
}

// constructors returns those of all controllers: those that own Pods or find them, those
// that clean up, and those that fill a new namespace.
func constructors() []constructor {
	return []constructor{
		{"clusterrole-aggregation-controller", newClusterRoleAggregation},
		{"daemon-set-controller", newDaemonSet},
		{"deployment-controller", newDeployment},
		{"disruption-controller", newDisruption},
		{"endpointslice-controller", newEndpointSlice},
		{"generic-garbage-collector", newGarbageCollector},
		{"horizontal-pod-autoscaler", newHorizontalPodAutoscaler},
		{"namespace-controller", newNamespace},
		{"node-controller", newNodeLifecycle},
		{"pod-garbage-collector", newPodGC},
		{"replicaset-controller", newReplicaSet},
		{"resourcequota-controller", newResourceQuota},
		{"root-ca-cert-publisher", newRootCAPublisher},
		{"service-account-controller", newServiceAccount},
		{"statefulset-controller", newStatefulSet},
		{tokensAccount, newServiceAccountToken},
		{"node-controller", newTaintEviction},
		{"validatingadmissionpolicy-status-controller", newPolicyStatus}, // checks the types of expressions
	}
}

// tokensAccount stands for the manager's own rights: without that controller, no
// service account has a token.
const tokensAccount = "tokens-controller"

// identity is what a controller is created from: what all of them share, and the rights
// of its service account.
type identity struct {
	*manager
	config *rest.Config
	client kubernetes.Interface
}

func (m *manager) identity(account string) (*identity, error) {
	builder := m.accounts
	if account == tokensAccount {
		builder = m.root
	}
	config, err := builder.Config(account)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	return &identity{manager: m, config: config, client: client}, err
}

// discovery returns a client that makes many requests, but seldom.
func (id *identity) discovery() (discovery.DiscoveryInterface, error) {
	config := rest.CopyConfig(id.config)
	config.QPS, config.Burst = 20, 200
	return discovery.NewDiscoveryClientForConfig(config)
}

// workers returns a function that runs a controller with a number of workers.
func workers(run func(context.Context, int), n int) func(context.Context) {
	return func(ctx context.Context) { run(ctx, n) }
}

func newClusterRoleAggregation(_ context.Context, id *identity) (func(context.Context), error) {
	return workers(clusterroleaggregation.NewClusterRoleAggregation(id.informers.Rbac().V1().ClusterRoles(), id.client.RbacV1()).Run, 5), nil
}

func newDaemonSet(ctx context.Context, id *identity) (func(context.Context), error) {
	c, err := daemon.NewDaemonSetsController(ctx,
		id.informers.Apps().V1().DaemonSets(), id.informers.Apps().V1().ControllerRevisions(),
		id.informers.Core().V1().Pods(), id.informers.Core().V1().Nodes(),
		id.client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return nil, err
	}
	return workers(c.Run, 2), nil
}

func newDeployment(ctx context.Context, id *identity) (func(context.Context), error) {
	c, err := deployment.NewDeploymentController(ctx,
		id.informers.Apps().V1().Deployments(), id.informers.Apps().V1().ReplicaSets(), id.informers.Core().V1().Pods(), id.client)
	if err != nil {
		return nil, err
	}
	return workers(c.Run, 5), nil
}

// scales returns a client of scale subresources.
func (id *identity) scales() (scale.ScalesGetter, error) {
	return scale.NewForConfig(id.config, id.mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(id.client.Discovery()))
}

func newDisruption(ctx context.Context, id *identity) (func(context.Context), error) {
	scales, err := id.scales()
	if err != nil {
		return nil, err
	}
	return disruption.NewDisruptionController(ctx,
		id.informers.Core().V1().Pods(), id.informers.Policy().V1().PodDisruptionBudgets(),
		id.informers.Core().V1().ReplicationControllers(), id.informers.Apps().V1().ReplicaSets(),
		id.informers.Apps().V1().Deployments(), id.informers.Apps().V1().StatefulSets(),
		id.client, id.mapper, scales, id.client.Discovery()).Run, nil
}

func newEndpointSlice(ctx context.Context, id *identity) (func(context.Context), error) {
	const perSlice, atOnce = 100, 0
	c := endpointslice.NewController(ctx,
		id.informers.Core().V1().Pods(), id.informers.Core().V1().Services(), id.informers.Core().V1().Nodes(),
		id.informers.Discovery().V1().EndpointSlices(), perSlice, id.client, atOnce)
	return workers(c.Run, 5), nil
}

func newGarbageCollector(ctx context.Context, id *identity) (func(context.Context), error) {
	const syncPeriod = 30 * time.Second
	discoveryClient, err := id.discovery()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(id.config)
	config.QPS *= 2 // every deletion is two requests
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ignored := map[schema.GroupResource]struct{}{}
	for resource := range garbagecollector.DefaultIgnoredResources() {
		ignored[resource] = struct{}{}
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, id.metadata, id.mapper, ignored, id.allInformers, id.informersStarted)
	c, err := garbagecollector.NewComposedGarbageCollector(ctx, id.client, metadataClient, id.mapper, graph)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go c.Sync(ctx, discoveryClient, syncPeriod)
		c.Run(ctx, 20, syncPeriod)
	}, nil
}

func newHorizontalPodAutoscaler(ctx context.Context, id *identity) (func(context.Context), error) {
	const syncPeriod = 15 * time.Second
	scales, err := id.scales()
	if err != nil {
		return nil, err
	}
	resources, err := resourcemetrics.NewForConfig(id.config)
	if err != nil {
		return nil, err
	}
	external, err := external_metrics.NewForConfig(id.config)
	if err != nil {
		return nil, err
	}
	versions := custom_metrics.NewAvailableAPIsGetter(id.client.Discovery())
	c := podautoscaler.NewHorizontalController(ctx,
		id.client.CoreV1(), scales, id.client.AutoscalingV2(), id.mapper,
		metrics.NewRESTMetricsClient(resources, custom_metrics.NewForConfig(id.config, id.mapper, versions), external),
		id.informers.Autoscaling().V2().HorizontalPodAutoscalers(), id.informers.Core().V1().Pods(),
		syncPeriod, 5*time.Minute, 0.1, 5*time.Minute, 30*time.Second)
	return func(ctx context.Context) {
		go custom_metrics.PeriodicallyInvalidate(versions, syncPeriod, ctx.Done())
		c.Run(ctx, 5)
	}, nil
}

func newNamespace(ctx context.Context, id *identity) (func(context.Context), error) {
	config := rest.CopyConfig(id.config)
	config.QPS *= 20 // it deletes objects one by one
	config.Burst *= 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := namespace.NewNamespaceController(ctx, client, metadataClient, client.Discovery().ServerPreferredNamespacedResources,
		id.informers.Core().V1().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	return workers(c.Run, 10), nil
}

func newNodeLifecycle(ctx context.Context, id *identity) (func(context.Context), error) {
	c, err := nodelifecycle.NewNodeLifecycleController(ctx,
		id.informers.Coordination().V1().Leases(), id.informers.Core().V1().Pods(), id.informers.Core().V1().Nodes(),
		id.informers.Apps().V1().DaemonSets(), id.client,
		5*time.Second, time.Minute, id.options.nodeMonitorGracePeriod, 0.1, 0.01, 50, 0.55)
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func newPodGC(_ context.Context, id *identity) (func(context.Context), error) {
	return podgc.New(id.client, id.informers.Core().V1().Pods(), id.informers.Core().V1().Nodes()).Run, nil
}

func newReplicaSet(ctx context.Context, id *identity) (func(context.Context), error) {
	c := replicaset.NewReplicaSetController(ctx,
		id.informers.Apps().V1().ReplicaSets(), id.informers.Core().V1().Pods(), id.client, replicaset.BurstReplicas)
	return workers(c.Run, 5), nil
}

func newResourceQuota(ctx context.Context, id *identity) (func(context.Context), error) {
	discoveryClient, err := id.discovery()
	if err != nil {
		return nil, err
	}
	configuration, err := quota.NewQuotaConfigurationForControllers(
		generic.ListerFuncForResourceFunc(id.informers.ForResource), id.informers)
	if err != nil {
		return nil, err
	}
	discover := discoveryClient.ServerPreferredNamespacedResources
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               id.client.CoreV1(),
		ResourceQuotaInformer:     id.informers.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(5 * time.Minute),
		InformerFactory:           id.allInformers,
		ReplenishmentResyncPeriod: resync,
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      configuration.IgnoredResources,
		InformersStarted:          id.informersStarted,
		Registry:                  generic.NewRegistry(configuration.Evaluators()),
		UpdateFilter:              quota.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go c.Sync(ctx, discover, 30*time.Second)
		c.Run(ctx, 5)
	}, nil
}

func newRootCAPublisher(_ context.Context, id *identity) (func(context.Context), error) {
	rootCA, err := os.ReadFile(id.options.rootCA)
	if err != nil {
		return nil, err
	}
	c, err := rootcacertpublisher.NewPublisher(id.informers.Core().V1().ConfigMaps(), id.informers.Core().V1().Namespaces(), id.client, rootCA)
	if err != nil {
		return nil, err
	}
	return workers(c.Run, 1), nil
}

func newServiceAccount(ctx context.Context, id *identity) (func(context.Context), error) {
	c, err := accounts.NewServiceAccountsController(klog.FromContext(ctx),
		id.informers.Core().V1().ServiceAccounts(), id.informers.Core().V1().Namespaces(), id.client,
		accounts.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	return workers(c.Run, 1), nil
}

func newServiceAccountToken(ctx context.Context, id *identity) (func(context.Context), error) {
	rootCA, err := os.ReadFile(id.options.rootCA)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.PrivateKeyFromFile(id.options.serviceAccountKey)
	if err != nil {
		return nil, err
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, err
	}
	c, err := accounts.NewTokensController(klog.FromContext(ctx),
		id.informers.Core().V1().ServiceAccounts(), id.informers.Core().V1().Secrets(), id.client,
		accounts.TokensControllerOptions{TokenGenerator: generator, RootCA: rootCA})
	if err != nil {
		return nil, err
	}
	return workers(c.Run, 5), nil
}

func newStatefulSet(ctx context.Context, id *identity) (func(context.Context), error) {
	c := statefulset.NewStatefulSetController(ctx,
		id.informers.Core().V1().Pods(), id.informers.Apps().V1().StatefulSets(),
		id.informers.Core().V1().PersistentVolumeClaims(), id.informers.Apps().V1().ControllerRevisions(), id.client)
	return workers(c.Run, 5), nil
}

func newTaintEviction(ctx context.Context, id *identity) (func(context.Context), error) {
	c, err := tainteviction.New(ctx, id.client, id.informers.Core().V1().Pods(), id.informers.Core().V1().Nodes(), "taint-eviction-controller")
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func newPolicyStatus(_ context.Context, id *identity) (func(context.Context), error) {
	discoveryClient, err := id.discovery()
	if err != nil {
		return nil, err
	}
	schemas := resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme, apiextensions.Scheme).
		Combine(&resolver.ClientDiscoveryResolver{Discovery: discoveryClient})
	c, err := validatingadmissionpolicystatus.NewController(
		id.informers.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		id.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		&validating.TypeChecker{SchemaResolver: schemas, RestMapper: id.mapper})
	if err != nil {
		return nil, err
	}
	return workers(c.Run, 5), nil
}
