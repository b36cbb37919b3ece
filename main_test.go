package main

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// emptyCluster is an API server with nothing in it: lists are empty, and nothing
// ever happens.
func emptyCluster(t *testing.T) (address string, paths func() []string) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		selector := r.URL.Query().Get("labelSelector")
		seen[strings.TrimSuffix(r.URL.Path+"?"+selector, "?")] = true
		mu.Unlock()
		if r.URL.Query().Get("watch") != "" {
			if r.URL.Query().Get("sendInitialEvents") != "" {
				w.WriteHeader(http.StatusUnprocessableEntity) // an older server; the client lists then
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(seen))
	}
}

// TestStartup starts processes with the flags in testdata/startup, one on each line: what
// they watch, as only that needs permission, or the one line in which they refuse a flag.
func TestStartup(t *testing.T) {
	files, err := filepath.Glob("testdata/startup/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing is to be started: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				flags := strings.Split(d.Input, "\n")
				switch d.Cmd {
				case "watch":
					want := strings.Fields(d.Expected)
					got := watched(t, flags, len(want))
					slices.Sort(want) // A fork has other names, and so another order.
					if slices.Equal(got, want) {
						return d.Expected
					}
					return strings.Join(got, "\n")
				case "refuse":
					return fmt.Sprint(newProgram().Run(t.Context(), flags))
				}
				d.Fatalf(t, "unknown command %s", d.Cmd)
				return ""
			})
		})
	}
}

// watched runs the program until it has asked for so many resources, and returns these.
func watched(t *testing.T, flags []string, want int) []string {
	t.Helper()
	address, paths := emptyCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stopped := make(chan error, 1)
	go func() {
		stopped <- newProgram().Run(ctx, append(flags, "-master="+address, "-leader-elect=false", "-bind-address="))
	}()
	for len(paths()) < want {
		select {
		case err := <-stopped:
			t.Fatalf("it watched %q and ended: %v", paths(), err)
		default:
			runtime.Gosched()
		}
	}
	cancel()
	// It may have been stopped before its caches were ready, which it then says.
	if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	return paths()
}

// Each controller can be left out, because no other imports it.
func TestNoControllerImportsAnother(t *testing.T) {
	descriptors, err := filepath.Glob("pkg/*/controller.go")
	if err != nil {
		t.Fatal(err)
	}
	var controllers []string
	for _, path := range append(descriptors, "pkg/icecream/") {
		controllers = append(controllers, filepath.Dir(path))
	}
	imports := 0
	for _, of := range controllers {
		own, err := filepath.Glob(of + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		below, err := filepath.Glob(of + "/*/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(own, below...) {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				imports++
				imported := strings.Trim(spec.Path.Value, `"`) + "/"
				isOf := func(controller string) bool { return strings.Contains(imported, "/"+controller+"/") }
				if i := slices.IndexFunc(controllers, isOf); i >= 0 && controllers[i] != of {
					t.Errorf("%s imports %s", path, imported)
				}
			}
		}
	}
	if imports == 0 {
		t.Error("there are no imports")
	}
}
