package fidelity

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/test/lab"
)

var updateResponses = flag.Bool("update-responses", false, "write what the API server answers to pkg/kit/response/testdata")

const responses = "../../pkg/kit/response/testdata/responses.yaml"

// answer is one of the table that the test of package response reads.
type answer struct {
	Name   string        `json:"name"`
	Means  string        `json:"means"`
	Status metav1.Status `json:"status"`
}

// The table in pkg/kit/response is what a real API server answers to a write of the Deployment "cone".
func TestResponses(t *testing.T) {
	reality := startReal(t)
	content, err := os.ReadFile(responses)
	if err != nil {
		t.Fatal(err)
	}
	var table []answer
	if err := yaml.UnmarshalStrict(content, &table); err != nil {
		t.Fatal(err)
	}
	c := &causes{realServer: reality, t: t}
	c.webhook()
	all := c.all()
	for i, row := range table {
		if all[row.Name] == nil {
			t.Errorf("nothing makes the API server answer %q", row.Name)
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			c := &causes{realServer: reality, t: t, denials: c.denials, url: c.url, ca: c.ca}
			got := normal(t, all[row.Name](c))
			if diff := cmp.Diff(row.Status, got); diff != "" {
				t.Errorf("the API server answers something else; run with -update-responses (-want +got):\n%s", diff)
			}
			table[i].Status = got
		})
		delete(all, row.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Errorf("the table has no row %q", name)
	}
	if *updateResponses {
		content, err := yaml.Marshal(table)
		if err == nil {
			err = os.WriteFile(responses, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// normal returns the response in an error, without what differs from run to run.
func normal(t *testing.T, err error) metav1.Status {
	t.Helper()
	var response apierrors.APIStatus
	if !errors.As(err, &response) {
		t.Fatalf("it is no response: %v", err)
	}
	raw, err := json.Marshal(response.Status())
	if err != nil {
		t.Fatal(err)
	}
	for pattern, replacement := range map[string]string{
		`causes-[a-z0-9]+`:                          "parlor",
		`127\.0\.0\.1:\d+`:                          "127.0.0.1:443",
		`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`: "00000000-0000-0000-0000-000000000000",
	} {
		raw = regexp.MustCompile(pattern).ReplaceAll(raw, []byte(replacement))
	}
	var status metav1.Status
	if err := json.Unmarshal(raw, &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// causes makes an API server refuse a write.
type causes struct {
	*realServer
	t *testing.T

	denials map[string]metav1.Status // of the webhook
	url     string                   // of the webhook
	ca      []byte
}

const webhookLabel = "denial"

func (c *causes) all() map[string]func(*causes) error {
	all := map[string]func(*causes) error{
		"it is there already": func(c *causes) error {
			ns := c.namespace("")
			c.must(c.create(c.kube, ns, cone()))
			return c.create(c.kube, ns, cone())
		},
		"it has changed": func(c *causes) error {
			ns, d := c.namespace(""), cone()
			c.must(c.create(c.kube, ns, cone()))
			d.ResourceVersion = "1"
			_, err := c.kube.AppsV1().Deployments(ns).Update(c.t.Context(), d, metav1.UpdateOptions{})
			return err
		},
		"it is gone": func(c *causes) error { return c.patch(c.namespace(""), `{"metadata":{"labels":{"a":"b"}}}`) },
		"it has another UID": func(c *causes) error {
			ns := c.namespace("")
			c.must(c.create(c.kube, ns, cone()))
			return c.patch(ns, `{"metadata":{"uid":"00000000-0000-0000-0000-000000000001"}}`)
		},
		"an apply has the UID of nothing": func(c *causes) error {
			want := applied()
			want.WithUID("00000000-0000-0000-0000-000000000001")
			return c.apply(c.namespace(""), want)
		},
		"an apply meets another selector": func(c *causes) error {
			ns, want := c.namespace(""), applied()
			c.must(c.create(c.kube, ns, cone()))
			want.Spec.Selector.MatchLabels["app"] = "cup"
			want.Spec.Template.Labels["app"] = "cup"
			return c.apply(ns, want)
		},
		"an apply meets another controller": func(c *causes) error {
			ns, d, want := c.namespace(""), cone(), applied()
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "menu", UID: "menu", Controller: ptr.To(true)}
			d.OwnerReferences = []metav1.OwnerReference{owner}
			c.must(c.create(c.kube, ns, d))
			want.WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("ConfigMap").WithName("other").WithUID("other").WithController(true))
			return c.apply(ns, want)
		},
		"an apply has a variable twice": func(c *causes) error {
			want := applied()
			want.Spec.Template.Spec.Containers[0].WithEnv(corev1ac.EnvVar().WithName("A"), corev1ac.EnvVar().WithName("A"))
			return c.apply(c.namespace(""), want)
		},
		"a quota that several write":   (*causes).contestedQuota,
		"its namespace does not exist": func(c *causes) error { return c.create(c.kube, "nowhere", cone()) },
		"its definition does not exist": func(c *causes) error {
			config := rest.CopyConfig(c.config)
			config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: "db.example.com", Version: "v1"}
			config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
			client, err := rest.RESTClientFor(config)
			c.must(err)
			return client.Put().Namespace(c.namespace("")).Resource("databases").Name("cone").Body([]byte("{}")).Do(c.t.Context()).Error()
		},
		"its namespace is being deleted": func(c *causes) error {
			ns := c.namespace("")
			c.must(c.kube.CoreV1().Namespaces().Delete(c.t.Context(), ns, metav1.DeleteOptions{}))
			return c.eventually(ns, func(error) bool { return true })
		},

		"somebody forbids it": func(c *causes) error { return c.create(c.as("nobody"), c.namespace(""), cone()) },
		"a quota is exceeded": func(c *causes) error {
			ns := c.namespace("")
			c.quota(ns, "0")
			return c.eventually(ns, apierrors.IsForbidden)
		},
		"it makes no sense": func(c *causes) error {
			return c.post(c.kube, c.namespace("")).Body([]byte(`{"apiVersion": "apps/v1", "kind": "Deployment", "spec": "soft"}`)).Do(c.t.Context()).Error()
		},
		"it is too large": func(c *causes) error {
			d := cone()
			d.Annotations = map[string]string{"a": strings.Repeat("melted", 1<<20)}
			return c.create(c.kube, c.namespace(""), d)
		},
		"it is invalid": func(c *causes) error {
			d := cone()
			d.Spec.Template.Spec.Containers[0].Image = ""
			d.Spec.Selector.MatchLabels = map[string]string{"another": "label"}
			return c.create(c.kube, c.namespace(""), d)
		},
		"it is invalid, and quotes a denial": func(c *causes) error {
			d := cone()
			d.Spec.Template.Spec.Containers[0].Name = `admission webhook "w" denied request: no`
			return c.create(c.kube, c.namespace(""), d)
		},

		"a validating policy denies it": func(c *causes) error {
			return c.validatingPolicy("denies", admissionregistrationv1.Validation{Expression: "false", Message: "not today"})
		},
		"a validating policy forbids it": func(c *causes) error {
			return c.validatingPolicy("forbids", admissionregistrationv1.Validation{Expression: "false", Message: "not today", Reason: ptr.To(metav1.StatusReasonForbidden)})
		},
		"a validating policy fails": func(c *causes) error {
			return c.validatingPolicy("fails", admissionregistrationv1.Validation{Expression: `object.metadata.labels["team"] == "a"`})
		},
		"a mutating policy fails to be evaluated": func(c *causes) error {
			return c.mutatingPolicy("is-wrong", `Object{metadata: Object.metadata{labels: {"team": object.metadata.labels["team"]}}}`)
		},
		"a mutating policy fails to be applied": func(c *causes) error {
			return c.mutatingPolicy("does-not-fit", `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [
				Object.spec.template.spec.containers{name: "main", env: [Object.spec.template.spec.containers.env{name: "A",
				valueFrom: Object.spec.template.spec.containers.env.valueFrom{secretKeyRef:
				Object.spec.template.spec.containers.env.valueFrom.secretKeyRef{name: "a", key: "b"}}}]}]}}}}`)
		},
		"a webhook cannot be called": func(c *causes) error {
			away := httptest.NewServer(nil)
			away.Close()
			return c.brokenWebhook("away", "https"+strings.TrimPrefix(away.URL, "http"), 10)
		},
		"a webhook does not answer": func(c *causes) error { return c.brokenWebhook("slow", c.url+"/sleep", 1) },

		"etcd refuses to write": func(c *causes) error {
			ns := c.namespace("")
			c.must(c.cluster.FillEtcd(c.t.Context(), true))
			defer func() { c.must(c.cluster.FillEtcd(context.WithoutCancel(c.t.Context()), false)) }()
			return c.create(c.kube, ns, cone())
		},
		"the server is busy": (*causes).busy,
		"the credentials are wrong": func(c *causes) error {
			config := rest.AnonymousClientConfig(c.config)
			config.BearerToken = "invented"
			kube, err := kubernetes.NewForConfig(config)
			c.must(err)
			return c.create(kube, c.namespace(""), cone())
		},
	}
	for name := range c.denials {
		all["a webhook denies it "+name] = func(c *causes) error {
			return c.eventually(c.namespace(labelOf(name)), func(error) bool { return true })
		}
	}
	return all
}

// labelOf returns the label of namespaces in which the webhook denies like that.
func labelOf(denial string) string { return strings.ReplaceAll(denial, " ", "-") }

// cone is a Deployment that is valid.
func cone() *appsv1.Deployment {
	labels := map[string]string{"app": "cone"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "cone"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/cone:1"}}},
			},
		},
	}
}

func (c *causes) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// namespace creates a namespace, in which the webhook denies what the label says.
func (c *causes) namespace(denial string) string {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "causes-"}}
	if denial != "" {
		ns.Labels = map[string]string{webhookLabel: denial}
	}
	ns, err := c.kube.CoreV1().Namespaces().Create(c.t.Context(), ns, metav1.CreateOptions{})
	c.must(err)
	return ns.Name
}

func (c *causes) as(user string) kubernetes.Interface {
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = user
	kube, err := kubernetes.NewForConfig(config)
	c.must(err)
	return kube
}

// post returns a request that client-go does not repeat, as it does at a Retry-After.
func (c *causes) post(kube kubernetes.Interface, ns string) *rest.Request {
	return kube.AppsV1().RESTClient().Post().Namespace(ns).Resource("deployments").MaxRetries(0)
}

func (c *causes) create(kube kubernetes.Interface, ns string, d *appsv1.Deployment) error {
	return c.post(kube, ns).Body(d).Do(c.t.Context()).Error()
}

// applied returns cone as something to apply.
func applied() *appsv1ac.DeploymentApplyConfiguration {
	labels := func() map[string]string { return map[string]string{"app": "cone"} }
	return appsv1ac.Deployment("cone", "").WithSpec(appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels())).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels()).WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName("main").WithImage("registry.example/cone:1")))))
}

func (c *causes) apply(ns string, want *appsv1ac.DeploymentApplyConfiguration) error {
	_, err := c.kube.AppsV1().Deployments(ns).Apply(c.t.Context(), want.WithNamespace(ns), metav1.ApplyOptions{FieldManager: "parlor", Force: true})
	return err
}

func (c *causes) patch(ns, body string) error {
	_, err := c.kube.AppsV1().Deployments(ns).Patch(c.t.Context(), "cone", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

// eventually tries to create the Deployment until that fails as it should: what admission does takes
// effect some time after its configuration.
func (c *causes) eventually(ns string, is func(error) bool) (last error) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, lab.Timeout, true, func(context.Context) (bool, error) {
		last = c.post(c.kube, ns).Param("dryRun", "All").Body(cone()).Do(c.t.Context()).Error()
		return last != nil && is(last), nil
	})
	if err != nil {
		c.t.Fatalf("%v: the last error is %v", err, last)
	}
	return last
}

// quota creates a quota of Deployments that is in effect.
func (c *causes) quota(ns, hard string) *corev1.ResourceQuota {
	c.t.Helper()
	of := corev1.ResourceList{"count/deployments.apps": resource.MustParse(hard)}
	quotas := c.kube.CoreV1().ResourceQuotas(ns)
	quota, err := quotas.Create(c.t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: of}}, metav1.CreateOptions{})
	c.must(err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: of, Used: corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")}}
	quota, err = quotas.UpdateStatus(c.t.Context(), quota, metav1.UpdateOptions{})
	c.must(err)
	return quota
}

// contestedQuota creates Deployments until another writer of the quota's status is faster.
func (c *causes) contestedQuota() error {
	ns := c.namespace("")
	quota := c.quota(ns, "1000000")
	ctx, stop := context.WithTimeout(c.t.Context(), lab.Timeout)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for range 6 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Appendf(nil, `{"metadata":{"annotations":{"turn":"%d"}}}`, i)
				_, _ = c.kube.CoreV1().ResourceQuotas(ns).Patch(ctx, quota.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		d := cone()
		d.Name = fmt.Sprintf("cone-%d", i)
		if err := c.create(c.kube, ns, d); err != nil {
			return err
		}
	}
	return errors.New("no other writer of the quota was faster")
}

// busy leaves no seat for the requests of a user, but for one at a time.
func (c *causes) busy() error {
	meta := metav1.ObjectMeta{Name: "never"}
	flow := c.kube.FlowcontrolV1()
	_, err := flow.PriorityLevelConfigurations().Create(c.t.Context(), &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: meta, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: ptr.To[int32](0), LendablePercent: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0),
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		},
	}}, metav1.CreateOptions{})
	c.must(err)
	_, err = flow.FlowSchemas().Create(c.t.Context(), &flowcontrolv1.FlowSchema{ObjectMeta: meta, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: meta.Name}, MatchingPrecedence: 2,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "busy"}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}}},
		}},
	}}, metav1.CreateOptions{})
	c.must(err)
	ns, user := c.namespace(""), c.as("busy")
	ctx, stop := context.WithTimeout(c.t.Context(), lab.Timeout)
	refused := make(chan error, 1)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer stop()
	for range 8 { // One request at a time is served even so.
		senders.Go(func() {
			for ctx.Err() == nil {
				if err := c.create(user, ns, cone()); apierrors.IsTooManyRequests(err) {
					select {
					case refused <- err:
					default:
					}
				}
			}
		})
	}
	select {
	case err := <-refused:
		return err
	case <-ctx.Done():
		return errors.New("nothing was refused")
	}
}

// match selects the Deployments of a namespace.
func match(ns string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: onDeployments()}},
	}
}

func onDeployments() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}
}

func (c *causes) validatingPolicy(name string, validation admissionregistrationv1.Validation) error {
	ns, meta := c.namespace(""), metav1.ObjectMeta{Name: name}
	policies := c.kube.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(c.t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: match(ns), Validations: []admissionregistrationv1.Validation{validation}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(c.t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}, metav1.CreateOptions{})
	c.must(err)
	return c.eventually(ns, func(error) bool { return true })
}

func (c *causes) mutatingPolicy(name, configuration string) error {
	ns, meta := c.namespace(""), metav1.ObjectMeta{Name: name}
	policies := c.kube.AdmissionregistrationV1()
	_, err := policies.MutatingAdmissionPolicies().Create(c.t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match(ns), FailurePolicy: ptr.To(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: configuration},
			}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = policies.MutatingAdmissionPolicyBindings().Create(c.t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	c.must(err)
	return c.eventually(ns, func(error) bool { return true })
}

// webhook serves a webhook that denies with any status: webhooks choose code, reason and details.
func (c *causes) webhook() {
	details := &metav1.StatusDetails{Group: "apps", Kind: "deployments", Name: "cone"}
	c.denials = map[string]metav1.Status{
		"in words":                {Message: "not today"},
		"without a word":          {},
		"with 401":                {Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized, Message: "not today"},
		"with 404":                {Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not today", Details: details},
		"with 409":                {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "not today", Details: details},
		"as already there":        {Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists, Message: "not today", Details: details},
		"with 429":                {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "not today"},
		"with 500":                {Code: http.StatusInternalServerError, Message: "cannot reach the signature store"},
		"with 503":                {Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "not today"},
		"with 504":                {Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: "not today"},
		"as invalid":              {Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "not today", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec"}}}},
		"as another UID":          {Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "not today", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"}}}},
		"in the name of a policy": {Code: http.StatusForbidden, Message: "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil {
			c.t.Error(err)
			return
		}
		if in.URL.Path == "/sleep" {
			<-in.Context().Done()
			return
		}
		ns, err := c.kube.CoreV1().Namespaces().Get(in.Context(), review.Request.Namespace, metav1.GetOptions{})
		if err != nil {
			c.t.Error(err)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID}
		for name, denial := range c.denials {
			if ns.Labels[webhookLabel] == labelOf(name) {
				response.Result = &denial
			}
		}
		review.Request, review.Response = nil, response
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review) // the API server may have given up waiting
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	c.t.Cleanup(server.Close)
	c.url, c.ca = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.register("denies", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: webhookLabel, Operator: metav1.LabelSelectorOpExists}}}, c.url, 10)
}

func (c *causes) register(name string, in *metav1.LabelSelector, url string, timeout int32) {
	_, err := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(c.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    name + ".example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: c.ca},
			NamespaceSelector:       in,
			TimeoutSeconds:          &timeout,
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules:                   []admissionregistrationv1.RuleWithOperations{onDeployments()},
		}},
	}, metav1.CreateOptions{})
	c.must(err)
}

// brokenWebhook registers a webhook that answers nothing.
func (c *causes) brokenWebhook(name, url string, timeout int32) error {
	ns := c.namespace("")
	c.register(name, match(ns).NamespaceSelector, url, timeout)
	return c.eventually(ns, func(error) bool { return true })
}
