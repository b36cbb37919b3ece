package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// extent is how much of each kind of thing a description holds.
type extent struct{ icecreams, lines int }

var (
	screenful  = extent{icecreams: 3, lines: 12}
	everything = extent{icecreams: 1000, lines: 10_000}
)

// Describe is the state of the namespace in words: what a reader wants to see of
// a test that has failed, with what is not Ready first. It fills a screen.
func (n *Namespace) Describe() string { return n.describe(screenful) }

func (n *Namespace) describe(most extent) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	var out strings.Builder
	n.describeIcecreams(ctx, &out, most)
	for _, list := range [][]string{
		{"get", "deployments,replicasets,pods", "-o", "wide"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	} {
		text, err := n.TryKubectl(ctx, "", list...)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		fmt.Fprintf(&out, "--- kubectl %s\n%s", strings.Join(list, " "), lastLines(text, most.lines))
	}
	if n.Controller != nil {
		requests, err := n.Lab.allRequests()
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		fmt.Fprintf(&out, "--- requests of the controller in this namespace\n%s", lastLines(requests.In(n.Name).By(n.Controller.User).lines(), most.lines))
		fmt.Fprintf(&out, "--- log of the controller, what is about this namespace\n%s", lastLines(linesWith(n.Controller.Log(), n.Name), most.lines))
	}
	return out.String()
}

func (n *Namespace) describeIcecreams(ctx context.Context, out *strings.Builder, most extent) {
	list, err := n.Icecreams().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	var worst, rest []v1alpha1.Icecream
	for _, ice := range list.Items {
		if IsReady(&ice) != nil {
			worst = append(worst, ice)
		} else {
			rest = append(rest, ice)
		}
	}
	fmt.Fprintf(out, "--- %d Icecreams, %d of them Ready\n", len(list.Items), len(rest))
	for i, ice := range append(worst, rest...) {
		if i == most.icecreams {
			break
		}
		if most == everything {
			ice.ManagedFields = nil
			fmt.Fprintf(out, "---\n%s", yamlOf(ice))
			continue
		}
		fmt.Fprintf(out, "%s: generation %d, spec %s\n", ice.Name, ice.Generation, jsonOf(ice.Spec))
		for _, c := range ice.Status.Conditions {
			fmt.Fprintf(out, "  %s=%s since %s, generation %d: %s: %s\n", c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly), c.ObservedGeneration, c.Reason, c.Message)
		}
	}
}

func yamlOf(object any) string {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func jsonOf(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// linesWith are the lines of text that contain word.
func linesWith(text, word string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// lastLines is the end of text.
func lastLines(text string, most int) string {
	lines := strings.SplitAfter(text, "\n")
	if left := len(lines) - most; left > 0 {
		return fmt.Sprintf("(%d lines left out)\n%s", left, strings.Join(lines[left:], ""))
	}
	return text
}
