package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// What a stolen token may do is what the controller does. A label of a namespace gives more power to Pods there, and
// nothing else.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	s := NewLab(t, lab.Options{Nodes: 3}).NewThief(t)
	s.RequireKept("icecream-controller", "UPDATE controller.nicoleh.io/icecreams/status", "UPDATE controller.nicoleh.io/icecreams/finalizers")
	n, opened, closed := s.Lab.NewNamespace(t), s.Lab.NewNamespace(t), s.Lab.NewNamespace(t)
	lab.Kubectl(t, s.Lab, "label", "namespace", opened.Name, "controller.nicoleh.io/pods=unrestricted")
	lab.Kubectl(t, s.Lab, "label", "namespace", closed.Name, "controller.nicoleh.io/pods=restricted")
	s.Lab.StartController(t)
	n.Apply(t, icecreamYAML("vanilla", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")
	ice, own := n.Icecream(t, "vanilla"), n.Deployment(t, "vanilla")

	// What the controller would create for another name.
	legitimate, err := json.Marshal(&appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "cone", Labels: own.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ice, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))},
		},
		Spec: own.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	create := func(client kubernetes.Interface, namespace, change string) error {
		d := &appsv1.Deployment{}
		changed, err := strategicpatch.StrategicMergePatch(legitimate, []byte(change), d)
		if err := errors.Join(err, json.Unmarshal(changed, d)); err != nil {
			return err
		}
		_, err = client.AppsV1().Deployments(namespace).Create(t.Context(), d, lab.TryCreate)
		return err
	}
	ownerReference := func(change string) string {
		return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"uid":%q,%s}]}}`, ice.UID, change)
	}
	pod := func(spec string) string { return `{"spec":{"template":{"spec":{` + spec + `}}}}` }
	container := func(fields string) string { return pod(`"containers":[{"name":"icecream",` + fields + `}]`) }
	security := func(fields string) string { return container(`"securityContext":{` + fields + `}`) }
	sidecar := func(fields string) string {
		return pod(`"initContainers":[{"name":"sidecar","image":"registry.example/sidecar:1",` + fields + `}]`)
	}
	volume := func(source string) string { return pod(`"volumes":[{"name":"v",` + source + `}]`) }
	const (
		owner      = "may only write Deployments that an Icecream controls"
		others     = "may not change Deployments of other owners"
		owners     = "may not add owners other than Icecreams"
		oneOwner   = "may not add another owner"
		selects    = "may only select by the label controller.nicoleh.io/icecream"
		finalizers = "may not add finalizers"
		stay       = "may not give Pods finalizers"
		power      = "may not give Pods more power: "
	)
	policyFor := func(words string) string {
		if strings.HasPrefix(words, power) {
			return "icecream-pods"
		}
		return "icecream"
	}
	for name, attempt := range map[string]struct{ words, change string }{
		"nobody's":                     {owner, `{"metadata":{"ownerReferences":null}}`},
		"an owner that controls not":   {owner, ownerReference(`"controller":null`)},
		"a ConfigMap's":                {owner, ownerReference(`"kind":"ConfigMap","blockOwnerDeletion":null`)},
		"another group's Icecream":     {owner, ownerReference(`"apiVersion":"example.com/v1","blockOwnerDeletion":null`)},
		"an owner that lives on":       {owners, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"x"}]}}`},
		"an owner of no known version": {owners, ownerReference(`"apiVersion":"controller.nicoleh.io/v9","blockOwnerDeletion":null`)},
		"another owner":                {oneOwner, `{"metadata":{"ownerReferences":[{"apiVersion":"controller.nicoleh.io/v1alpha1","kind":"Icecream","name":"other","uid":"x"}]}}`},
		"somebody's ReplicaSet":        {selects, `{"spec":{"selector":{"matchLabels":{"controller.nicoleh.io/icecream":null,"app":"precious"}},"template":{"metadata":{"labels":{"app":"precious"}}}}}`},
		"a finalizer":                  {finalizers, `{"metadata":{"finalizers":["example.com/stay"]}}`},
		"a finalizer for orphans":      {finalizers, `{"metadata":{"finalizers":["orphan"]}}`},
		"a finalizer of the Pods":      {stay, `{"spec":{"template":{"metadata":{"finalizers":["example.com/stay"]}}}}`},
		"a service account":            {power + "service account default", pod(`"serviceAccountName":"default"`)},
		"a service account, as before": {power + "service account builder", pod(`"serviceAccount":"builder"`)},
		"a token":                      {power + "a token", pod(`"automountServiceAccountToken":true`)},
		"a token by default":           {power + "a token", pod(`"automountServiceAccountToken":null`)},
		"the host's network":           {power + "hostNetwork", pod(`"hostNetwork":true`)},
		"the host's processes":         {power + "hostPID", pod(`"hostPID":true`)},
		"the host's IPC":               {power + "hostIPC", pod(`"hostIPC":true`)},
		"a port of the host":           {power + "hostPort 80", container(`"ports":[{"containerPort":80,"hostPort":80}]`)},
		"root allowed":                 {power + "root", pod(`"securityContext":{"runAsNonRoot":null}`)},
		"root":                         {power + "root", pod(`"securityContext":{"runAsUser":0}`)},
		"no seccomp":                   {power + "no seccomp", pod(`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`)},
		"no AppArmor":                  {power + "no AppArmor", pod(`"securityContext":{"appArmorProfile":{"type":"Unconfined"}}`)},
		"no AppArmor by annotation": {
			power + "container.apparmor.security.beta.kubernetes.io/icecream",
			`{"spec":{"template":{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/icecream":"unconfined"}}}}}`,
		},
		"sysctls":                      {power + "sysctl kernel.shm_rmid_forced=0", pod(`"securityContext":{"sysctls":[{"name":"kernel.shm_rmid_forced","value":"0"}]}`)},
		"SELinux":                      {power + "SELinux ::spc_t", pod(`"securityContext":{"seLinuxOptions":{"type":"spc_t"}}`)},
		"privileged":                   {power + "privileged", security(`"privileged":true,"allowPrivilegeEscalation":null`)},
		"escalation":                   {power + "allowPrivilegeEscalation", security(`"allowPrivilegeEscalation":true`)},
		"capabilities":                 {power + "capability SYS_ADMIN", security(`"capabilities":{"add":["SYS_ADMIN"]}`)},
		"all of /proc":                 {power + "procMount", pod(`"hostUsers":false,"containers":[{"name":"icecream","securityContext":{"procMount":"Unmasked"}}]`)},
		"a root container":             {power + "root", sidecar(`"securityContext":{"runAsUser":0}`)},
		"root allowed in a container":  {power + "root", sidecar(`"securityContext":{"runAsNonRoot":false}`)},
		"a privileged sidecar":         {power + "privileged", sidecar(`"securityContext":{"privileged":true}`)},
		"a container without seccomp":  {power + "no seccomp", sidecar(`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`)},
		"a process of the host":        {power + "hostNetwork, hostProcess", pod(`"hostNetwork":true,"securityContext":{"windowsOptions":{"hostProcess":true}}`)},
		"a Secret":                     {power + "volume v", volume(`"secret":{"secretName":"password"}`)},
		"a projected Secret":           {power + "volume v", volume(`"projected":{"sources":[{"secret":{"name":"password"}}]}`)},
		"a projected token":            {power + "volume v", volume(`"projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}`)},
		"a directory of the host":      {power + "volume v", volume(`"hostPath":{"path":"/"}`)},
		"a driver's volume":            {power + "volume v", volume(`"csi":{"driver":"secrets-store.csi.k8s.io"}`)},
		"a Secret by variable":         {power + "Secret password/p", sidecar(`"env":[{"name":"P","valueFrom":{"secretKeyRef":{"name":"password","key":"p"}}}]`)},
		"all of a Secret by variables": {power + "Secret password", sidecar(`"envFrom":[{"secretRef":{"name":"password"}}]`)},
		"a probe of another host":      {power + "probe of 169.254.169.254", sidecar(`"restartPolicy":"Always","readinessProbe":{"httpGet":{"host":"169.254.169.254","port":80}}`)},
		"a hook at another host":       {power + "hook at 169.254.169.254", container(`"lifecycle":{"postStart":{"tcpSocket":{"host":"169.254.169.254","port":80}}}`)},
	} {
		policy := policyFor(attempt.words)
		s.RequireRefusedAlone(name, policy, attempt.words, func(client kubernetes.Interface) error { return create(client, n.Name, attempt.change) })
		inOpened := func(context.Context) error { return create(s.Kube, opened.Name, attempt.change) }
		if policy == "icecream" {
			s.RequireRefused(policy, attempt.words, inOpened)
			continue
		}
		lab.Eventually(t, name+" is allowed where the label says so", func() error { return inOpened(t.Context()) })
	}
	s.RequireRefused("icecream-pods", power+"privileged", func(context.Context) error {
		return create(s.Kube, closed.Name, security(`"privileged":true,"allowPrivilegeEscalation":null`))
	})

	// What gives no power may be the work of the cluster's own policies.
	for _, change := range []string{
		`{}`,
		`{"metadata":{"annotations":{"policy.example/seen":"yes"}}}`,
		`{"spec":{"template":{"metadata":{"labels":{"costcenter":"42","app.kubernetes.io/name":"vanilla"},"annotations":{"linkerd.io/inject":"enabled"}}}}}`,
		pod(`"priorityClassName":"system-cluster-critical"`), volume(`"persistentVolumeClaim":{"claimName":"cache"}`), pod(`"runtimeClassName":"gvisor"`),
		pod(`"tolerations":[{"key":"dairy","operator":"Exists"}]`),
		pod(`"imagePullSecrets":[{"name":"password"}]`), pod(`"nodeSelector":{"pool":"dessert"}`),
		container(`"env":[{"name":"HTTP_PROXY","value":"proxy:80"}]`), sidecar(`"restartPolicy":"Always"`),
		pod(`"containers":[{"name":"sidecar","image":"registry.example/sidecar:1"}]`),
		volume(`"emptyDir":{}`), volume(`"configMap":{"name":"ca"}`), volume(`"projected":{"sources":[{"configMap":{"name":"ca"}}]}`),
	} {
		if err := create(s.Kube, n.Name, change); err != nil {
			t.Errorf("%s: %v", change, err)
		}
	}

	// One in a namespace without its Icecream is deleted, with all that came of it.
	elsewhere, stray := s.Lab.NewNamespace(t), &appsv1.Deployment{}
	if err := json.Unmarshal(legitimate, stray); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kube.AppsV1().Deployments(elsewhere.Name).Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	elsewhere.Eventually(t, "nothing is left of it", func(ctx context.Context) error {
		left, err := elsewhere.TryKubectl(ctx, "", "get", "deployments,replicasets,pods", "--output=name", "--ignore-not-found")
		if left != "" {
			err = fmt.Errorf("there is %s", left)
		}
		return err
	})

	// Somebody else's Deployment is not the controller's to touch.
	deployments := s.Kube.AppsV1().Deployments(n.Name)
	n.Kubectl(t, "create", "deployment", "payments", "--image=registry.example/payments:1")
	seize := []byte(ownerReference(`"apiVersion":"controller.nicoleh.io/v1alpha1","kind":"Icecream","name":"vanilla","controller":true,"blockOwnerDeletion":true`))
	s.RequireRefused("icecream", others, func(ctx context.Context) error {
		_, err := deployments.Patch(ctx, "payments", types.MergePatchType, seize, lab.TryPatch)
		return err
	})

	// One that an Icecream has left behind may be adopted, and no more.
	n.Apply(t, icecreamYAML("orphan", "image: registry.example/orphan:1"))
	n.EventuallyReady(t, "orphan")
	n.Kubectl(t, "delete", "icecream", "orphan", "--cascade=orphan")
	n.Eventually(t, "the Deployment has no owner", func(ctx context.Context) error {
		d, err := n.Deployments().Get(ctx, "orphan", metav1.GetOptions{})
		if err == nil && len(d.OwnerReferences) > 0 {
			return fmt.Errorf("it has %v", d.OwnerReferences)
		}
		return err
	})
	orphaned := func(ctx context.Context, patch []byte) error {
		_, err := deployments.Patch(ctx, "orphan", types.MergePatchType, patch, lab.TryPatch)
		return err
	}
	lab.RequireAllowed(t, orphaned(t.Context(), seize))
	s.RequireRefused("icecream", owner, func(ctx context.Context) error { return orphaned(ctx, []byte(`{"spec":{"replicas":7}}`)) })
	s.RequireRefused("icecream", owner, func(ctx context.Context) error {
		return orphaned(ctx, []byte(`{"metadata":{"labels":{"app":"payments"}}}`))
	})

	// Its own is, within the same bounds. What somebody else has added to it may stay.
	image := func(image string) []byte {
		return []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"icecream","image":"` + image + `"}]}}}}`)
	}
	patch := func(ctx context.Context, patch []byte) error {
		_, err := deployments.Patch(ctx, "vanilla", types.StrategicMergePatchType, patch, lab.TryPatch)
		return err
	}
	lab.RequireAllowed(t, patch(t.Context(), image("registry.example/vanilla:2")))
	s.RequireRefused("icecream", "and may not delete them", func(ctx context.Context) error { return deployments.Delete(ctx, "vanilla", lab.TryDelete) })
	privileged := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"icecream","securityContext":{"privileged":true,"allowPrivilegeEscalation":true}}]}}}}`)
	s.RequireRefused("icecream-pods", power+"privileged", func(ctx context.Context) error { return patch(ctx, privileged) })
	s.RequireRefused("icecream-pods", power+"service account builder", func(ctx context.Context) error {
		return patch(ctx, []byte(`{"spec":{"template":{"spec":{"serviceAccountName":"builder"}}}}`))
	})
	s.RequireRefused("icecream", owner, func(ctx context.Context) error {
		return patch(ctx, []byte(`{"metadata":{"ownerReferences":[{"$patch":"replace"},{"apiVersion":"v1","kind":"ConfigMap","name":"mint","uid":"other","controller":true}]}}`))
	})
	held := []byte(`{"metadata":{"finalizers":["example.com/stay"]}}`)
	s.RequireRefused("icecream", finalizers, func(ctx context.Context) error { return patch(ctx, held) })
	heldPods := []byte(`{"spec":{"template":{"metadata":{"finalizers":["example.com/stay"]}}}}`)
	s.RequireRefused("icecream", stay, func(ctx context.Context) error { return patch(ctx, heldPods) })
	uid := strings.TrimSpace(n.Kubectl(t, "get", "configmap", "kube-root-ca.crt", "--output=jsonpath={.metadata.uid}"))
	lives := strings.Replace(ownerReference(`"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt"`), string(ice.UID), uid, 1)
	s.RequireRefused("icecream", owners, func(ctx context.Context) error { return patch(ctx, []byte(lives)) })
	n.Kubectl(t, "patch", "deployment", "vanilla", "--type=strategic", "-p", lives)
	n.Kubectl(t, "patch", "deployment", "vanilla", "--type=strategic", "-p", string(held))
	lab.RequireAllowed(t, patch(t.Context(), image("registry.example/vanilla:2")))
	n.Kubectl(t, "patch", "deployment", "vanilla", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`) // or the namespace would stay
	n.Kubectl(t, "patch", "deployment", "vanilla", "--type=strategic", "-p", `{"spec":{"template":{"metadata":{"labels":{"team":"dessert"}},"spec":{
		"serviceAccountName": "default", "hostNetwork": true, "priorityClassName": "system-cluster-critical",
		"volumes": [{"name": "v", "secret": {"secretName": "password", "optional": true}}, {"name": "logs", "hostPath": {"path": "/var/log"}}],
		"containers": [{"name": "sidecar", "image": "registry.example/sidecar:1", "securityContext": {"privileged": true, "capabilities": {"add": ["NET_ADMIN"]}},
			"env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "password", "key": "p", "optional": true}}}]}]}}}}`)
	n.EventuallyReady(t, "vanilla")
	lab.RequireAllowed(t, patch(t.Context(), image("registry.example/vanilla:2")))
	for change, words := range map[string]string{
		string(privileged): "privileged",
		`{"spec":{"template":{"spec":{"serviceAccountName":"builder"}}}}`:                                                                            "service account builder",
		`{"spec":{"template":{"spec":{"volumes":[{"name":"logs","hostPath":{"path":"/"}}]}}}}`:                                                       "volume logs",
		`{"spec":{"template":{"spec":{"volumes":[{"name":"v","secret":{"secretName":"other"}}]}}}}`:                                                  "volume v",
		`{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}}}}`:               "capability SYS_PTRACE",
		`{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","env":[{"name":"P","valueFrom":{"secretKeyRef":{"key":"q"}}}]}]}}}}`:           "Secret password/q",
		`{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","envFrom":[{"secretRef":{"name":"password"}}]}]}}}}`:                           "Secret password",
		`{"spec":{"template":{"spec":{"initContainers":[{"name":"more","image":"registry.example/any:1","securityContext":{"privileged":true}}]}}}}`: "privileged",
	} {
		s.RequireRefused("icecream-pods", power+words, func(ctx context.Context) error { return patch(ctx, []byte(change)) })
	}
	patchIcecream(t, n, "vanilla", `{"spec":{"image":"registry.example/vanilla:3"}}`)
	n.EventuallyReady(t, "vanilla")
	if got := n.Deployment(t, "vanilla").Spec.Template.Spec; !got.HostNetwork || len(got.Containers) != 2 {
		t.Errorf("what somebody else has added is gone: %+v", got)
	}
}

// A controller that is restricted to one namespace needs only a Role there. The policies
// apply to its account, too, and neither to one of another name nor to another program's of
// the same name, which may create Deployments where it has nothing to do with Icecreams.
func TestOneNamespaceNeedsOnlyARole(t *testing.T) {
	t.Parallel()
	n, other := NewQuietNamespace(t), NewQuietNamespace(t)
	c := n.StartController(t)
	other.Create(t, "lime", v1alpha1.IcecreamSpec{})
	n.Kubectl(t, "create", "serviceaccount", "another")
	n.Kubectl(t, "create", "rolebinding", "another", "--role="+lab.ServiceAccount, "--serviceaccount="+n.Name+":another")
	other.Kubectl(t, "create", "role", "unrelated", "--verb=create", "--resource=deployments.apps")
	other.Kubectl(t, "create", "rolebinding", "unrelated", "--role=unrelated", "--serviceaccount="+other.Name+":"+lab.ServiceAccount)
	n.Apply(t, icecreamYAML("vanilla"))
	n.EventuallyReady(t, "vanilla")
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	if refused := n.Lab.Requests(t).By(c.User).Refused(); len(refused) > 0 {
		t.Errorf("requests of the controller were refused: %s", refused)
	}
	if lime := other.Icecream(t, "lime"); lime.Status.ObservedGeneration > 0 {
		t.Errorf("the controller has written a status in another namespace: %+v", lime.Status)
	}

	create := func(in *lab.Namespace, account string) error {
		_, err := in.TryKubectl(t.Context(), "", "create", "deployment", "nobodys", "--image=registry.example/any:1", "--dry-run=server",
			"--as=system:serviceaccount:"+in.Name+":"+account)
		return err
	}
	if err := create(n, lab.ServiceAccount); err == nil || !strings.Contains(err.Error(), "may only write Deployments that an Icecream controls") {
		t.Errorf("the account of the controller gets: %v", err)
	}
	lab.RequireAllowed(t, create(n, "another"))
	lab.RequireAllowed(t, create(other, lab.ServiceAccount))
}
