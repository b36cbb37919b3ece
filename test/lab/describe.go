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

// extent limits how many Icecreams, and how many lines of each list, a description
// contains.
type extent struct{ icecreams, lines int }

var (
	screenful  = extent{icecreams: 3, lines: 12}
	everything = extent{icecreams: 1000, lines: 10_000}
)

// Describe returns a description of the namespace for the reader of a failed test. It
// fills about one screen, and begins with the Icecreams that are not Ready.
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
		requests, err := n.Lab.AllRequests()
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		fmt.Fprintf(&out, "--- requests of the controller in this namespace\n%s", lastLines(requests.In(n.Name).By(n.Controller.User).lines(), most.lines))
		fmt.Fprintf(&out, "--- lines of the controller's log that contain the name of this namespace\n%s", lastLines(linesWith(n.Controller.Log(), n.Name), most.lines))
	}
	return out.String()
}

func (n *Namespace) describeIcecreams(ctx context.Context, out *strings.Builder, most extent) {
	list, err := n.Icecreams().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	var notReady, ready []v1alpha1.Icecream
	for _, ice := range list.Items {
		if IsReady(&ice) != nil {
			notReady = append(notReady, ice)
		} else {
			ready = append(ready, ice)
		}
	}
	fmt.Fprintf(out, "--- %d Icecreams, %d of them Ready\n", len(list.Items), len(ready))
	for i, ice := range append(notReady, ready...) {
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

// linesWith returns the lines of text that contain word.
func linesWith(text, word string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// lastLines returns the last lines of text, at most that many.
func lastLines(text string, most int) string {
	lines := strings.SplitAfter(text, "\n")
	if left := len(lines) - most; left > 0 {
		return fmt.Sprintf("(%d lines left out)\n%s", left, strings.Join(lines[left:], ""))
	}
	return text
}
