package main

import (
	"go/format"
	"path/filepath"
	"testing"
)

// Every mutant is still a change of the code that is there.
func TestMutantsApply(t *testing.T) {
	root := filepath.Join("..", "..")
	mutants, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		source, err := m.source(root)
		if err == nil {
			_, err = format.Source([]byte(source))
		}
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("there are two mutants %s", m.name)
		}
		names[m.name] = true
	}
}
