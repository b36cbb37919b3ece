package lenient_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// deployment is a Deployment of that name with other fields.
func deployment(name, fields string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"annotations":{"a":"b"}},%s}`, name, fields)
}

func list(items ...string) string {
	return `{"apiVersion":"apps/v1","kind":"DeploymentList","metadata":{"resourceVersion":"9","continue":"more","remainingItemCount":5},"items":[` + strings.Join(items, ",") + `]}`
}

const (
	goodFields   = `"spec":{"replicas":4,"template":{"spec":{"nodeName":"vanilla"}}},"status":{"replicas":4}`
	flawedFields = `"spec":{"replicas":"two"},"status":{"replicas":3}`
)

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

// decode decodes what an API server has sent, and requires what is promised of everything: what the usual decoder
// accepts is decoded the same way, errors are the usual decoder's, and everything else is salvaged.
func decode(t *testing.T, data string) (runtime.Object, error) {
	t.Helper()
	want, wantKind, wantErr := usually.Decode([]byte(data), nil, nil)
	got, kind, err := leniently.Decode([]byte(data), nil, nil)
	if !reflect.DeepEqual(kind, wantKind) {
		t.Errorf("the kind is %v, want %v", kind, wantKind)
	}
	switch {
	case wantErr == nil:
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v (-usual +lenient):\n%s", err, diff)
		}
	case err != nil:
		if err.Error() != wantErr.Error() {
			t.Errorf("the error is %v, want %v", err, wantErr)
		}
	default:
		requireSalvaged(t, data, got)
	}
	return got, err
}

// requireSalvaged requires that an object has problems, is empty where it has one, is what the usual decoder makes of it
// everywhere else, and cannot be stored. A list has all of its items, each as if it had come alone.
func requireSalvaged(t *testing.T, data string, obj runtime.Object) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(data), &fields); err != nil {
		t.Fatal(err)
	}
	rest := obj.DeepCopyObject()
	switch rest := rest.(type) {
	case *appsv1.Deployment:
		found := problems(rest)
		if len(found) == 0 {
			t.Errorf("this is passed off as decoded: %s", data)
		}
		if len(validation.ValidateAnnotations(rest.Annotations, nil)) == 0 {
			t.Error("the API server would accept the object, and lose what could not be decoded")
		}
		for field, problem := range found {
			if !strings.HasPrefix(problem, field+": ") || len(problem) > 1024 || !utf8.ValidString(problem) {
				t.Errorf("a problem of %d bytes: %q", len(problem), problem)
			}
			delete(fields, field)
			delete(rest.Annotations, "not decoded: "+field)
		}
	case *appsv1.DeploymentList:
		var items []json.RawMessage
		if err := json.Unmarshal(fields["items"], &items); err != nil || len(items) != len(rest.Items) {
			t.Fatalf("%d items of %d: %v", len(rest.Items), len(items), err)
		}
		for i, item := range items {
			alone, _, err := leniently.Decode(item, new(version.WithKind("Deployment")), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(alone, runtime.Object(&rest.Items[i]), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
				t.Errorf("item %d (-alone +in a list):\n%s", i, diff)
			}
		}
		fields["items"], rest.Items = json.RawMessage("[]"), nil
	default:
		t.Fatalf("a %T", obj)
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := usually.Decode(raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, rest, cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
		t.Errorf("everything else (-want +got):\n%s", diff)
	}
}

func TestDecode(t *testing.T) {
	datadriven.RunTest(t, "testdata/decode.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		if d.Cmd == "data" {
			if obj, err := decode(t, d.Input); err == nil {
				return fmt.Sprintf("%+v", obj)
			}
			return "the usual error"
		}
		flawed, good := deployment("flawed", d.Input), deployment("good", goodFields)
		obj, err := decode(t, flawed)
		if err != nil {
			return err.Error()
		}
		if _, err := decode(t, list(good, flawed, good, flawed)); err != nil {
			t.Error(err)
		}
		var said []string
		for _, problem := range problems(obj.(*appsv1.Deployment)) {
			said = append(said, problem)
		}
		slices.Sort(said)
		return strings.Join(said, "\n")
	})
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
	} {
		t.Run(name, func(t *testing.T) {
			if obj, err := decode(t, deployment("large", `"spec":`+spec)); err != nil || lenient.DecodeError(obj.(*appsv1.Deployment), "spec") == "" {
				t.Errorf("error %v", err)
			}
		})
	}
	if _, err := decode(t, deployment("endless", `"spec":{"replicas":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+"}")); err == nil {
		t.Error("nesting without end is no error")
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "{", list("null"), list("7"), list(deployment("good", goodFields), deployment("flawed", flawedFields)),
		deployment("flawed", flawedFields), deployment("empty", `"spec":null,"status":null`), deployment("strange", "\"spec\":{\"\xff\":1},\"status\":{\"conditions\":[{\"type\":7}]}"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) { _, _ = decode(t, data) })
}
