// Package difftest shows the difference of two values in a test, in no more than a
// screenful, and without the contents of Secrets, which everyone can read in the logs of CI.
package difftest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// A screenful.
const (
	maxLines = 60
	maxBytes = 300 // of a line
)

// Equal fails the test, and shows the difference, if want and got differ.
func Equal[T any](t testing.TB, what string, want, got T, opts ...cmp.Option) {
	t.Helper()
	if diff := Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Diff is cmp.Diff for values of any size that may contain secrets. It shows the length
// and a digest instead of bytes, of what a Secret has in StringData, and of the annotation
// in which kubectl apply keeps a whole object. (Comparing the digests is also faster than
// comparing bytes one by one through reflection.)
//
// It does show unexported fields if an option makes cmp compare them.
func Diff(want, got any, opts ...cmp.Option) string {
	return Clip(cmp.Diff(withDigests(want), withDigests(got), opts...))
}

// Bytes describes bytes by their length and a digest. The digest is different in each
// process, so that nobody can find the bytes by trying.
func Bytes(content []byte) string {
	hash := hmac.New(sha256.New, key)
	hash.Write(content)
	return fmt.Sprintf("%d bytes with digest %x", len(content), hash.Sum(nil)[:6])
}

var key = func() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return key
}()

// Clip leaves out the middle of a text that has too many lines, and the end of lines
// that are too long.
func Clip(text string) string {
	lines := strings.SplitAfter(text, "\n")
	if left := len(lines) - maxLines; left > 0 {
		half := maxLines / 2
		note := fmt.Sprintf("... (%d lines left out)\n", left)
		lines = append(append(append([]string{}, lines[:half]...), note), lines[len(lines)-half:]...)
	}
	for i, line := range lines {
		content, end, _ := strings.Cut(line, "\n")
		if left := len(content) - maxBytes; left > 0 {
			content = fmt.Sprintf("%s... (%d bytes left out)", strings.ToValidUTF8(content[:maxBytes], ""), left)
			lines[i] = content + end + strings.Repeat("\n", strings.Count(line, "\n"))
		}
	}
	return strings.Join(lines, "")
}

// withDigests returns a copy of a value with digests in place of what must not be shown.
// The copies of two values are equal only if the values are.
func withDigests(value any) any {
	if value == nil {
		return nil
	}
	return digested(reflect.ValueOf(value)).Interface()
}

// digested does the work of withDigests for a value or a part of one.
func digested(v reflect.Value) reflect.Value {
	made := reflect.New(v.Type()).Elem()
	made.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			made.Set(reflect.New(v.Type().Elem()))
			made.Elem().Set(digested(v.Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			made.Set(digested(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				made.Field(i).Set(digested(v.Field(i)))
			}
		}
		if v.Type() == secretType {
			hideAll(made.FieldByName("StringData"))
		}
	case reflect.Slice:
		digestSlice(made, v)
	case reflect.Array:
		for i := range v.Len() {
			made.Index(i).Set(digested(v.Index(i)))
		}
	case reflect.Map:
		digestMap(made, v)
	default:
	}
	return made
}

var secretType = reflect.TypeFor[corev1.Secret]()

func digestSlice(made, v reflect.Value) {
	switch {
	case v.IsNil():
	case v.Type().Elem().Kind() == reflect.Uint8:
		made.Set(reflect.ValueOf([]byte(Bytes(v.Bytes()))).Convert(v.Type()))
	default:
		made.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			made.Index(i).Set(digested(v.Index(i)))
		}
	}
}

func digestMap(made, v reflect.Value) {
	if v.IsNil() {
		return
	}
	made.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
	for each := v.MapRange(); each.Next(); {
		made.SetMapIndex(each.Key(), digested(each.Value()))
	}
	if isText(v.Type().Key()) && isText(v.Type().Elem()) {
		name := reflect.ValueOf(corev1.LastAppliedConfigAnnotation).Convert(v.Type().Key())
		if whole := v.MapIndex(name); whole.IsValid() {
			made.SetMapIndex(name, hidden(whole))
		}
	}
}

// hideAll replaces every value of a map of strings.
func hideAll(texts reflect.Value) {
	for each := texts.MapRange(); each.Next(); {
		texts.SetMapIndex(each.Key(), hidden(each.Value()))
	}
}

// hidden returns the description of a string by Bytes.
func hidden(text reflect.Value) reflect.Value {
	return reflect.ValueOf(Bytes([]byte(text.String()))).Convert(text.Type())
}

func isText(t reflect.Type) bool { return t.Kind() == reflect.String }
