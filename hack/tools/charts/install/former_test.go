package install

import (
	"os"
	"path/filepath"
	"strings"
)

// A release of the chart when that was called icecream-controller keeps all names that
// other people may know, if it is told to: its Deployment is updated in place. (An
// upgrade to the new names is in test/e2e, with controllers that really run.)
func helmFormerNames(s site) {
	former := filepath.Join(s.TempDir(), "icecream-controller")
	if err := os.CopyFS(former, os.DirFS(chart)); err != nil {
		s.Fatal(err)
	}
	metadata := filepath.Join(former, "Chart.yaml")
	content, err := os.ReadFile(metadata)
	if err != nil {
		s.Fatal(err)
	}
	renamed := strings.Replace(string(content), "name: k8s-controller", "name: icecream-controller", 1)
	if err := os.WriteFile(metadata, []byte(renamed), 0o600); err != nil {
		s.Fatal(err)
	}
	for _, release := range []struct{ name, values string }{
		{"icecream-controller", "replicas=2"},
		{"ice", "fullnameOverride=icecream-controller"},
	} {
		s.helm("install", release.name, former, "-n", "team", "--create-namespace", "--wait", "--timeout=2m", "--set="+release.values)
		uid := s.get("-n", "team", "deployment/icecream-controller", "{.metadata.uid}")
		s.helm("upgrade", release.name, chart, "-n", "team", "--wait", "--timeout=2m", "--reset-then-reuse-values",
			"--set=nameOverride=icecream-controller,podAnnotations.updated=yes")
		s.is(uid, "-n", "team", "deployment/icecream-controller", "{.metadata.uid}")
		s.runs("team", "icecream-controller", 2)
		s.isRestricted("team", "icecream-controller")
		s.helm("uninstall", release.name, "-n", "team")
		s.kubectl("delete", "crd/icecreams.controller.nicoleh.io", "namespace/team")
	}
}
