package lenient_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// A Deployment stands for a custom resource: its type is generated, and has fields of every sort
// that can be flawed.
var (
	version       = appsv1.SchemeGroupVersion
	ofDeployments = func() *runtime.Scheme {
		scheme := runtime.NewScheme()
		scheme.AddKnownTypes(version, &appsv1.Deployment{}, &appsv1.DeploymentList{})
		metav1.AddToGroupVersion(scheme, version)
		metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
		return scheme
	}()
	codecs = serializer.NewCodecFactory(ofDeployments)

	// The usual decoder of a generated client, and the lenient one.
	usually   = jsonDecoder(codecs.WithoutConversion())
	leniently = jsonDecoder(lenient.Codecs(codecs.WithoutConversion()))
)

func jsonDecoder(codecs runtime.NegotiatedSerializer) runtime.Decoder {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		panic("no JSON")
	}
	return codecs.DecoderToVersion(info.Serializer, version)
}

const goodSpec = `{"replicas":4,"template":{"spec":{"nodeName":"vanilla"}}}`

// flaws are ways not to be a Deployment that a laxer schema lets pass.
var flaws = []struct {
	name         string
	spec, status string            // in JSON
	want         map[string]string // the problem of each field that has one
}{{
	name: "a number as a string",
	spec: `{"replicas":2,"template":{"spec":{"nodeName":5}}}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.nodeName of type string"},
}, {
	name: "a string as a number",
	spec: `{"replicas":"two"}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"},
}, {
	name: "a number that is too large",
	spec: `{"replicas":3000000000}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"},
}, {
	name: "an object as a quantity",
	spec: `{"template":{"spec":{"hostname":"a","overhead":{"cpu":{},"memory":"1Gi"}}}}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
}, {
	name: "an element among others",
	spec: `{"selector":{"matchExpressions":[{"key":"a"},{"key":"b"},{"key":7},{"key":"d"}]}}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal number into Go struct field LabelSelectorRequirement.spec.selector.matchExpressions.key of type string"},
}, {
	name: "a spec that is text",
	spec: `"text"`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal string into Go struct field Deployment.spec of type v1.DeploymentSpec"},
}, {
	name: "a spec that is a list",
	spec: `["text"]`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec"},
}, {
	name: "a status",
	spec: `{"replicas":2}`, status: `{"conditions":{}}`,
	want: map[string]string{"status": "status: json: cannot unmarshal object into Go struct field DeploymentStatus.status.conditions of type []v1.DeploymentCondition"},
}, {
	name: "a time",
	spec: `{"paused":true}`, status: `{"conditions":[{"type":"Ready","lastTransitionTime":"soon"}]}`,
	want: map[string]string{"status": `status: parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"`},
}, {
	name: "spec and status",
	spec: `{"replicas":true}`, status: `7`,
	want: map[string]string{
		"spec":   "spec: json: cannot unmarshal bool into Go struct field DeploymentSpec.spec.replicas of type int32",
		"status": "status: json: cannot unmarshal number into Go struct field Deployment.status of type v1.DeploymentStatus",
	},
}}

// deploymentJSON is a Deployment of that name, spec and status.
func deploymentJSON(name, spec, status string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":"parlor","uid":"uid-%s","resourceVersion":"7","annotations":{"a":"b"}},"spec":%s,"status":%s}`,
		name, name, spec, status)
}

func listJSON(items ...string) string {
	return `{"apiVersion":"apps/v1","kind":"DeploymentList","metadata":{"resourceVersion":"9","continue":"more","remainingItemCount":5},"items":[` + strings.Join(items, ",") + `]}`
}

// problems are those of a Deployment's fields that have one.
func problems(d *appsv1.Deployment) map[string]string {
	found := map[string]string{}
	for _, field := range []string{"apiVersion", "kind", "metadata", "spec", "status"} {
		if problem := lenient.DecodeError(d, field); problem != "" {
			found[field] = problem
		}
	}
	return found
}

// requireSalvaged requires that a Deployment made by deploymentJSON has the problems of
// a flaw and no others, is empty there, and is what the usual decoder makes of it
// everywhere else.
func requireSalvaged(t *testing.T, d *appsv1.Deployment, spec, status string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, problems(d)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if want["spec"] != "" {
		spec = "{}"
	}
	if want["status"] != "" {
		status = "{}"
	}
	rest, _, err := usually.Decode([]byte(deploymentJSON(d.Name, spec, status)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := d.DeepCopy()
	got.TypeMeta = metav1.TypeMeta{}
	got.Annotations = map[string]string{"a": d.Annotations["a"]}
	if len(d.Annotations) != 1+len(want) {
		t.Errorf("annotations %q", d.Annotations)
	}
	if diff := cmp.Diff(rest, runtime.Object(got)); diff != "" {
		t.Errorf("everything else (-want +got):\n%s", diff)
	}
}

func TestFlawedObject(t *testing.T) {
	for _, flaw := range flaws {
		t.Run(flaw.name, func(t *testing.T) {
			data := []byte(deploymentJSON("sundae", flaw.spec, flaw.status))
			if _, _, err := usually.Decode(data, nil, nil); err == nil {
				t.Fatal("this is no flaw: the usual decoder accepts it")
			}
			for _, into := range []runtime.Object{nil, &appsv1.Deployment{}} {
				obj, kind, err := leniently.Decode(data, nil, into)
				if err != nil {
					t.Fatal(err)
				}
				if into != nil && obj != into {
					t.Error("it is not decoded into the object that was given")
				}
				if want := version.WithKind("Deployment"); *kind != want {
					t.Errorf("its kind is %s", kind)
				}
				requireSalvaged(t, obj.(*appsv1.Deployment), flaw.spec, flaw.status, flaw.want)
				if len(validation.ValidateAnnotations(obj.(*appsv1.Deployment).Annotations, nil)) == 0 {
					t.Error("the API server would accept the object, and lose what could not be decoded")
				}
			}
		})
	}
}

// What is wrong with more than fields of an object is the error that it always was.
func TestStillAnError(t *testing.T) {
	good := deploymentJSON("sundae", `{"replicas":4}`, `{}`)
	flawed := deploymentJSON("sundae", `{"replicas":"x"}`, `{}`)
	for name, data := range map[string]string{
		"nothing":                         "",
		"a page of HTML":                  "<html><body>502 Bad Gateway</body></html>",
		"text":                            `"text"`,
		"a number":                        "7",
		"a list without a kind":           "[" + good + "]",
		"an object cut short":             good[:len(good)-9],
		"a flawed object cut short":       flawed[:len(flawed)-9],
		"a flawed list cut short":         listJSON(flawed)[:len(listJSON(flawed))-1],
		"something after the object":      flawed + "}",
		"metadata that is text":           `{"apiVersion":"apps/v1","kind":"Deployment","metadata":"text"}`,
		"a label that is a number":        `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"a":5}},"spec":{"replicas":"x"}}`,
		"an item that is text":            listJSON(good, `"text"`, flawed),
		"an item with a number as a name": listJSON(good, `{"metadata":{"name":5}}`),
		"items that are text":             `{"apiVersion":"apps/v1","kind":"DeploymentList","items":"text"}`,
		"a list's metadata":               `{"apiVersion":"apps/v1","kind":"DeploymentList","metadata":7,"items":[` + flawed + `]}`,
		"another kind":                    strings.Replace(flawed, `"Deployment"`, `"Gelato"`, 1),
		"another version":                 strings.Replace(flawed, "apps/v1", "apps/v9", 1),
		"no kind":                         `{"spec":{"replicas":"x"}}`,
		"a kind that is a number":         `{"apiVersion":"apps/v1","kind":5}`,
		"a flawed Status":                 `{"apiVersion":"v1","kind":"Status","code":"many","message":"no"}`,
		"parts that only together are":    `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"sundae"},"spec":{"replicas":"x"},"spec":{"replicas":4}}`,
		"nesting without end":             strings.Replace(good, "4", strings.Repeat("[", 20000)+strings.Repeat("]", 20000), 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, wantKind, want := usually.Decode([]byte(data), nil, nil)
			obj, kind, err := leniently.Decode([]byte(data), nil, nil)
			if want == nil || err == nil || err.Error() != want.Error() || !reflect.DeepEqual(kind, wantKind) {
				t.Errorf("%v, %v, %v; the usual decoder says %v, %v", obj, kind, err, wantKind, want)
			}
		})
	}
}

// Nobody can be made to hold a lot by a few bytes, or to say a lot.
func TestLargeFlaws(t *testing.T) {
	many := strings.Repeat(`{"key":"a"},`, 50_000)
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	for name, spec := range map[string]string{
		"a long number":          `{"replicas":1` + strings.Repeat("0", 100_000) + `}`,
		"a long key":             `{"template":{"spec":{"overhead":{"` + strings.Repeat("é", 10_000) + `":{}}}}}`,
		"deep nesting":           `{"paused":` + deep + `}`,
		"the last of many":       `{"selector":{"matchExpressions":[` + many + `{"key":5}]}}`,
		"bytes that are no text": "{\"replicas\":\"\xff\xfe\"}",
		"the same key twice":     `{"replicas":"two","replicas":"three"}`,
	} {
		t.Run(name, func(t *testing.T) {
			obj, _, err := leniently.Decode([]byte(deploymentJSON("sundae", spec, `{"replicas":3}`)), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := obj.(*appsv1.Deployment)
			if problem := lenient.DecodeError(d, "spec"); problem == "" || len(problem) > 1024 || problem != strings.ToValidUTF8(problem, "") {
				t.Errorf("a problem of %d bytes: %q", len(problem), problem)
			}
			if d.Status.Replicas != 3 {
				t.Errorf("its status is %+v", d.Status)
			}
		})
	}
}
