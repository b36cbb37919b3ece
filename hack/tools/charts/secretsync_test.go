package charts

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The policy of secretsync is about what the controller is really told to copy.
func TestPolicyOfSecretsyncFollowsTheValues(t *testing.T) {
	policy := policyOf(t, "{policies: {ignoredKeys: [example.com/seen]}, controllers: {secretsync: {enabled: true, sourceNamespace: vault, annotation: example.com/share}}}", "k8s-controller-secretsync-writes")
	text, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`'"vault"'`, `'"example.com/share"'`, `'["example.com/seen"]'`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the policy of secretsync does not have %s:\n%s", want, text)
		}
	}
}

func TestSecretsyncRefused(t *testing.T) {
	refusals{
		"secretsync in one namespace": {"{namespace: team, controllers: {secretsync: {enabled: true}}}", "namespace=team: secretsync cannot be restricted to one namespace, and needs a release of its own"},
		"no namespace of sources":     {`controllers: {secretsync: {sourceNamespace: ""}}`, "at '/controllers/secretsync/sourceNamespace'"},
		"an annotation with a space":  {"controllers: {secretsync: {annotation: a b}}", "at '/controllers/secretsync/annotation': 'a b' does not match pattern"},
	}.check(t)
}
