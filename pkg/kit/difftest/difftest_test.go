package difftest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hush is in everything that must not be shown.
const hush = "hunter2"

func secret(edits ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"data":"` + hush + `"}`, "note": "shown",
		}},
		Data:       map[string][]byte{"password": []byte(hush), "user": []byte(hush + "-user")},
		StringData: map[string]string{"more": hush},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func TestDiffShowsNoSecrets(t *testing.T) {
	type pair struct {
		Named   *corev1.Secret
		Any     any
		List    []corev1.Secret
		ByName  map[string]corev1.Secret
		private string
	}
	other := secret(func(s *corev1.Secret) { s.Data["password"] = []byte(hush + "!") })
	for name, tt := range map[string]struct {
		want, got any
		shows     string
	}{
		"another value":           {secret(), other, "bytes with digest"},
		"another value, by value": {*secret(), *other, "bytes with digest"},
		"none at all":             {(*corev1.Secret)(nil), secret(), "Secret"},
		"of another type":         {nil, secret(), "Secret"},
		"bytes":                   {[]byte(hush), []byte(hush + "!"), "bytes with digest"},
		"a missing key":           {secret().Data, map[string][]byte{}, "bytes with digest"},
		"nothing and no bytes":    {[]byte{}, []byte(nil), "bytes with digest"},
		"StringData":              {secret(), secret(func(s *corev1.Secret) { s.StringData["more"] += "!" }), "bytes with digest"},
		"an annotation":           {secret(), secret(func(s *corev1.Secret) { s.Annotations["note"] = "also shown" }), "also shown"},
		"what was applied": {secret().Annotations, secret(func(s *corev1.Secret) {
			s.Annotations[corev1.LastAppliedConfigAnnotation] += " "
		}).Annotations, "bytes with digest"},
		"in a struct":             {pair{Named: secret()}, pair{Named: other}, "bytes with digest"},
		"in an interface":         {pair{Any: secret()}, pair{Any: other}, "bytes with digest"},
		"one more in a list":      {pair{}, pair{List: []corev1.Secret{*secret()}}, "bytes with digest"},
		"one more in a map":       {pair{}, pair{ByName: map[string]corev1.Secret{"db": *secret()}}, "bytes with digest"},
		"beside a private string": {pair{private: "a"}, pair{private: "b"}, `"b"`},
	} {
		t.Run(name, func(t *testing.T) {
			diff := Diff(tt.want, tt.got, cmp.AllowUnexported(pair{}))
			if !strings.Contains(diff, tt.shows) {
				t.Errorf("the diff does not hold %q:\n%s", tt.shows, diff)
			}
			for _, told := range []string{hush, hex.EncodeToString([]byte(hush)), strings.Trim(fmt.Sprintf("%d", []byte(hush)), "[]")} {
				if strings.Contains(diff, told) {
					t.Errorf("the diff holds %q:\n%s", told, diff)
				}
			}
		})
	}
}

func TestDiffOfEqualValuesIsEmpty(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	pod := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: now, ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("{}")}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1.5")},
			}}}},
		}
	}
	for name, of := range map[string]func() any{
		"a Secret": func() any { return secret() },
		"a Pod":    func() any { return pod() },
		"nothing":  func() any { return nil },
		"a number": func() any { return 7 },
	} {
		if diff := Diff(of(), of()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	shown := secret()
	Diff(shown, secret())
	if string(shown.Data["password"]) != hush || shown.StringData["more"] != hush {
		t.Error("Diff has changed what it was shown")
	}
}

// The largest Secret is compared in milliseconds, also by the race detector; byte by
// byte through reflection it takes up to minutes.
func TestDiffOfLargeBytesIsFast(t *testing.T) {
	large := func(last byte) map[string][]byte {
		return map[string][]byte{"blob": append(bytes.Repeat([]byte("x"), corev1.MaxSecretSize-1), last)}
	}
	if diff := Diff(large('x'), large('x')); diff != "" {
		t.Errorf("of the same:\n%s", diff)
	}
	if diff := Diff(large('x'), large('y')); !strings.Contains(diff, "1048576 bytes") || len(diff) > 1000 {
		t.Errorf("of others:\n%s", diff)
	}
	// Each byte costs an allocation there.
	if allocs := testing.AllocsPerRun(3, func() { Diff(large('x'), large('x')) }); allocs > 1000 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestClip(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("line\n", n) }
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":          {"", ""},
		"a line":           {"line", "line"},
		"a screenful":      {lines(59) + "end", lines(59) + "end"},
		"a line too many":  {lines(60) + "end", lines(30) + "... (1 lines left out)\n" + lines(29) + "end"},
		"many lines":       {lines(1000), lines(30) + "... (941 lines left out)\n" + lines(29)},
		"a long line":      {strings.Repeat("a", 310) + "\nb", strings.Repeat("a", 300) + "... (10 bytes left out)\nb"},
		"a letter is cut":  {strings.Repeat("a", 299) + "ä", strings.Repeat("a", 299) + "... (1 bytes left out)"},
		"one line, and on": {strings.Repeat("a", 1<<20), strings.Repeat("a", 300) + "... (1048276 bytes left out)"},
	} {
		if got := Clip(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// complaints is a test that collects what it is told.
type complaints struct {
	testing.TB
	told []string
}

func (*complaints) Helper() {}

func (c *complaints) Errorf(format string, args ...any) {
	c.told = append(c.told, fmt.Sprintf(format, args...))
}

func TestEqual(t *testing.T) {
	c := &complaints{TB: t}
	Equal(c, "the same", secret(), secret())
	Equal(c, "data", secret().Data, nil)
	if len(c.told) != 1 || !strings.HasPrefix(c.told[0], "data (-want +got):\n") || strings.Contains(c.told[0], hush) {
		t.Errorf("told %q", c.told)
	}
}
