package main

import (
	"os"
	"testing"
)

func TestLineageIsBrokenWhenAParentChanges(t *testing.T) {
	self, parent := os.Getpid(), os.Getppid()
	lineage := ancestors(self)
	if len(lineage) == 0 || lineage[0] != (kin{pid: self, parent: parent}) {
		t.Fatalf("lineage %v, want one that begins with %d, child of %d", lineage, self, parent)
	}
	if !isIntact(lineage) {
		t.Error("nothing has happened")
	}
	if isIntact([]kin{{pid: self, parent: parent + 1}}) {
		t.Error("another parent goes unnoticed")
	}
}
