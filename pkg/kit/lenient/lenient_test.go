package lenient_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// The usual decoder of a generated client, and the lenient one.
var (
	usualCodecs   = coneCodecs.WithoutConversion()
	lenientCodecs = lenient.Codecs(usualCodecs)

	usually   = jsonDecoder(usualCodecs)
	leniently = jsonDecoder(lenientCodecs)
)

func jsonInfo(codecs runtime.NegotiatedSerializer) runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		panic("no JSON")
	}
	return info
}

func jsonDecoder(codecs runtime.NegotiatedSerializer) runtime.Decoder {
	return codecs.DecoderToVersion(jsonInfo(codecs).Serializer, coneVersion)
}

// flaws are ways not to be a Cone that a laxer schema lets pass.
var flaws = []struct {
	name         string
	spec, status string            // in JSON
	want         map[string]string // the problem of each field that has one
}{{
	name: "a number as a string",
	spec: `{"image":5,"replicas":2}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec.image: json: cannot unmarshal number into Go struct field ConeSpec.spec.image of type string"},
}, {
	name: "a string as a number",
	spec: `{"replicas":"two"}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec.replicas: json: cannot unmarshal string into Go struct field ConeSpec.spec.replicas of type int32"},
}, {
	name: "a number that is too large",
	spec: `{"replicas":3000000000}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec.replicas: json: cannot unmarshal number 3000000000 into Go struct field ConeSpec.spec.replicas of type int32"},
}, {
	name: "an object as a quantity",
	spec: `{"resources":{"limits":{"cpu":1},"requests":{"cpu":{},"memory":"1Gi"}}}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec.resources.requests.cpu: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
}, {
	name: "an element among others",
	spec: `{"resources":{"claims":[{"name":"a"},{"name":"b"},{"name":7},{"name":"d"}]}}`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec.resources.claims: json: cannot unmarshal number into Go struct field ResourceClaim.spec.resources.claims.name of type string"},
}, {
	name: "a spec that is text",
	spec: `"text"`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal string into Go struct field Cone.spec of type lenient_test.ConeSpec"},
}, {
	name: "a spec that is a list",
	spec: `["text"]`, status: `{"replicas":3}`,
	want: map[string]string{"spec": "spec: json: cannot unmarshal array into Go struct field Cone.spec of type lenient_test.ConeSpec"},
}, {
	name: "a status",
	spec: `{"image":"vanilla","replicas":2}`, status: `{"conditions":{}}`,
	want: map[string]string{"status": "status.conditions: json: cannot unmarshal object into Go struct field ConeStatus.status.conditions of type []v1.Condition"},
}, {
	name: "a time",
	spec: `{"image":"vanilla"}`, status: `{"conditions":[{"type":"Ready","lastTransitionTime":"soon"}]}`,
	want: map[string]string{"status": `status.conditions: parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"`},
}, {
	name: "spec and status",
	spec: `{"image":true}`, status: `7`,
	want: map[string]string{
		"spec":   "spec.image: json: cannot unmarshal bool into Go struct field ConeSpec.spec.image of type string",
		"status": "status: json: cannot unmarshal number into Go struct field Cone.status of type lenient_test.ConeStatus",
	},
}}

// coneJSON is a Cone of that name, spec and status.
func coneJSON(name, spec, status string) string {
	return fmt.Sprintf(`{"apiVersion":"parlor.example/v1alpha1","kind":"Cone","metadata":{"name":%q,"namespace":"parlor","uid":"uid-%s","resourceVersion":"7","annotations":{"a":"b"}},"spec":%s,"status":%s}`,
		name, name, spec, status)
}

func listJSON(items ...string) string {
	return `{"apiVersion":"parlor.example/v1alpha1","kind":"ConeList","metadata":{"resourceVersion":"9","continue":"more","remainingItemCount":5},"items":[` + strings.Join(items, ",") + `]}`
}

// problems are those of a Cone's fields that have one.
func problems(cone *Cone) map[string]string {
	found := map[string]string{}
	for _, field := range []string{"apiVersion", "kind", "metadata", "spec", "status"} {
		if problem := lenient.DecodeError(cone, field); problem != "" {
			found[field] = problem
		}
	}
	return found
}

// requireSalvaged requires that a Cone made by coneJSON has the problems of
// a flaw and no others, is empty there, and is what the usual decoder makes of it
// everywhere else.
func requireSalvaged(t *testing.T, cone *Cone, spec, status string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, problems(cone)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if want["spec"] != "" {
		spec = "{}"
	}
	if want["status"] != "" {
		status = "{}"
	}
	rest, _, err := usually.Decode([]byte(coneJSON(cone.Name, spec, status)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := cone.DeepCopy()
	got.TypeMeta = metav1.TypeMeta{}
	got.Annotations = map[string]string{"a": cone.Annotations["a"]}
	if len(cone.Annotations) != 1+len(want) {
		t.Errorf("annotations %q", cone.Annotations)
	}
	if diff := cmp.Diff(rest, runtime.Object(got)); diff != "" {
		t.Errorf("everything else (-want +got):\n%s", diff)
	}
}

func TestFlawedObject(t *testing.T) {
	for _, flaw := range flaws {
		t.Run(flaw.name, func(t *testing.T) {
			data := []byte(coneJSON("sundae", flaw.spec, flaw.status))
			if _, _, err := usually.Decode(data, nil, nil); err == nil {
				t.Fatal("this is no flaw: the usual decoder accepts it")
			}
			for _, into := range []*Cone{nil, {}} {
				var target runtime.Object
				if into != nil {
					target = into
				}
				obj, kind, err := leniently.Decode(data, nil, target)
				if err != nil {
					t.Fatal(err)
				}
				if into != nil && obj != target {
					t.Error("it is not decoded into the object that was given")
				}
				if want := coneVersion.WithKind("Cone"); *kind != want {
					t.Errorf("its kind is %s", kind)
				}
				requireSalvaged(t, obj.(*Cone), flaw.spec, flaw.status, flaw.want)
				if len(validation.ValidateAnnotations(obj.(*Cone).Annotations, nil)) == 0 {
					t.Error("the API server would accept the object, and lose what could not be decoded")
				}
			}
		})
	}
}

func TestFlawedItems(t *testing.T) {
	const good = `{"image":"vanilla","replicas":4}`
	items := []string{coneJSON("first", good, `{}`)}
	for i, flaw := range flaws {
		items = append(items, coneJSON(fmt.Sprintf("flawed-%d", i), flaw.spec, flaw.status))
	}
	items = append(items, coneJSON("last", good, `{"replicas":4}`))
	data := []byte(listJSON(items...))
	if _, _, err := usually.Decode(data, nil, nil); err == nil {
		t.Fatal("the usual decoder accepts it")
	}
	obj, _, err := leniently.Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := obj.(*ConeList)
	if want := (metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: new(int64(5))}); !reflect.DeepEqual(list.ListMeta, want) {
		t.Errorf("the list has metadata %+v", list.ListMeta)
	}
	if len(list.Items) != len(items) {
		t.Fatalf("%d items of %d", len(list.Items), len(items))
	}
	requireSalvaged(t, &list.Items[0], good, `{}`, map[string]string{})
	for i, flaw := range flaws {
		t.Run(flaw.name, func(t *testing.T) {
			requireSalvaged(t, &list.Items[1+i], flaw.spec, flaw.status, flaw.want)
		})
	}
	requireSalvaged(t, &list.Items[len(items)-1], good, `{"replicas":4}`, map[string]string{})
}

// What is wrong with more than fields of an object is the error that it always was.
func TestStillAnError(t *testing.T) {
	good := coneJSON("sundae", `{"image":"vanilla"}`, `{}`)
	flawed := coneJSON("sundae", `{"image":5}`, `{}`)
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
		"metadata that is text":           `{"apiVersion":"parlor.example/v1alpha1","kind":"Cone","metadata":"text"}`,
		"a label that is a number":        `{"apiVersion":"parlor.example/v1alpha1","kind":"Cone","metadata":{"labels":{"a":5}},"spec":{"image":5}}`,
		"an item that is text":            listJSON(good, `"text"`, flawed),
		"an item with a number as a name": listJSON(good, `{"metadata":{"name":5}}`),
		"items that are text":             `{"apiVersion":"parlor.example/v1alpha1","kind":"ConeList","items":"text"}`,
		"a list's metadata":               `{"apiVersion":"parlor.example/v1alpha1","kind":"ConeList","metadata":7,"items":[` + flawed + `]}`,
		"another kind":                    strings.Replace(flawed, `"Cone"`, `"Gelato"`, 1),
		"another version":                 strings.Replace(flawed, "v1alpha1", "v9", 1),
		"no kind":                         `{"spec":{"image":5}}`,
		"a kind that is a number":         `{"apiVersion":"parlor.example/v1alpha1","kind":5}`,
		"a flawed Status":                 `{"apiVersion":"v1","kind":"Status","code":"many","message":"no"}`,
		"parts that only together are":    `{"apiVersion":"parlor.example/v1alpha1","kind":"Cone","metadata":{"name":"sundae"},"spec":{"image":5},"spec":{"image":"vanilla"}}`,
		"nesting without end":             strings.Replace(good, `"vanilla"`, strings.Repeat("[", 20000)+strings.Repeat("]", 20000), 1),
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
	many := strings.Repeat(`{"name":"a"},`, 50_000)
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	for name, spec := range map[string]string{
		"a long number":          `{"replicas":1` + strings.Repeat("0", 100_000) + `}`,
		"a long key":             `{"resources":{"limits":{"` + strings.Repeat("é", 10_000) + `":{}}}}`,
		"deep nesting":           `{"image":` + deep + `}`,
		"the last of many":       `{"resources":{"claims":[` + many + `{"name":5}]}}`,
		"bytes that are no text": "{\"replicas\":\"\xff\xfe\",\"image\":\"\xff\"}",
		"the same key twice":     `{"replicas":"two","replicas":"three"}`,
	} {
		t.Run(name, func(t *testing.T) {
			obj, _, err := leniently.Decode([]byte(coneJSON("sundae", spec, `{"replicas":3}`)), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			cone := obj.(*Cone)
			if problem := lenient.DecodeError(cone, "spec"); problem == "" || len(problem) > 1024 || problem != strings.ToValidUTF8(problem, "") {
				t.Errorf("a problem of %d bytes: %q", len(problem), problem)
			}
			if cone.Status.Replicas != 3 {
				t.Errorf("its status is %+v", cone.Status)
			}
		})
	}
}
