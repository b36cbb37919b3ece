package charts

import (
	"encoding/json"
	"os"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Argo CD finds in an Icecream what kstatus finds, by the health check in artifacts/examples.
func TestArgoCDHealth(t *testing.T) {
	file, err := os.ReadFile(root + "/artifacts/examples/argocd/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config corev1.ConfigMap
	if err := yaml.UnmarshalStrict(file, &config); err != nil {
		t.Fatal(err)
	}
	check := config.Data["resource.customizations.health.controller.nicoleh.io_Icecream"]
	const (
		ready       = `{"type":"Ready","status":"True","message":"3 of 3 Pods available"},{"type":"Stalled","status":"False"}`
		reconciling = `{"type":"Ready","status":"False","message":"1 of 3 Pods available"},{"type":"Reconciling","status":"True"},{"type":"Stalled","status":"False"}`
		stalled     = `{"type":"Stalled","status":"True"},{"type":"Ready","status":"False","message":"no such image"}`
	)
	for name, test := range map[string]struct{ status, want string }{
		"there is no status yet":  {`null`, "Progressing: the controller has not seen this version yet"},
		"it is about an old spec": {`{"observedGeneration":1,"conditions":[` + ready + `]}`, "Progressing: the controller has not seen this version yet"},
		"ready":                   {`{"observedGeneration":2,"conditions":[` + ready + `]}`, "Healthy: 3 of 3 Pods available"},
		"reconciling":             {`{"observedGeneration":2,"conditions":[` + reconciling + `]}`, "Progressing: 1 of 3 Pods available"},
		"stalled":                 {`{"observedGeneration":2,"conditions":[` + stalled + `]}`, "Degraded: no such image"},
	} {
		t.Run(name, func(t *testing.T) {
			var object any
			if err := json.Unmarshal([]byte(`{"metadata":{"generation":2},"status":`+test.status+`}`), &object); err != nil {
				t.Fatal(err)
			}
			state := lua.NewState()
			defer state.Close()
			state.SetGlobal("obj", toLua(state, object))
			if err := state.DoString(check); err != nil {
				t.Fatal(err)
			}
			health, ok := state.Get(-1).(*lua.LTable)
			if !ok {
				t.Fatal("the check returns no table")
			}
			if got := health.RawGetString("status").String() + ": " + health.RawGetString("message").String(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, inner := range value {
			table.RawSetString(key, toLua(state, inner))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, inner := range value {
			table.Append(toLua(state, inner))
		}
		return table
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	default:
		return lua.LNil
	}
}
