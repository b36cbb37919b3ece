package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const object = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n"
	for _, tc := range []struct {
		name, text, want string // want is part of the error; if empty, there must be none
	}{
		{name: "an object", text: object},
		{name: "two objects", text: object + "---\n" + object},
		{name: "a comment before the first separator", text: "# for kubectl\n---\n" + object},
		{name: "a List", text: "apiVersion: v1\nkind: List\nitems: [{}]\n"},
		{name: "nothing", text: "# nothing\n", want: "no object"},
		{name: "not YAML", text: "a: b: c", want: "document 1"},
		{name: "not a map", text: "- a", want: "document 1"},
		{name: "a key twice", text: object + "kind: Pod\n", want: "already"},
		{name: "no kind in the second", text: object + "---\napiVersion: v1\nmetadata: {name: a}\n", want: "document 2: no kind"},
		{name: "no apiVersion", text: "kind: Pod\nmetadata: {name: a}\n", want: "no apiVersion"},
		{name: "no name", text: "apiVersion: v1\nkind: Pod\n", want: "no metadata.name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := check([]byte(tc.text))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}
