package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// How much of each kind of thing a description holds.
const (
	maxObjects = 5
	maxLines   = 60
)

// Describe is the state of the namespace in words: what a reader wants to see of
// a test that has failed, with what is not Ready first.
func (n *Namespace) Describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	var out strings.Builder
	n.describeIcecreams(ctx, &out)
	for _, list := range [][]string{
		{"get", "deployments,replicasets,pods", "-o", "wide"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	} {
		text, err := n.TryKubectl(ctx, "", list...)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		fmt.Fprintf(&out, "--- kubectl %s\n%s", strings.Join(list, " "), lastLines(text, maxLines))
	}
	if n.Controller != nil {
		fmt.Fprintf(&out, "--- log of the controller, what is about this namespace\n%s", lastLines(linesWith(n.Controller.Log(), n.Name), maxLines))
	}
	return out.String()
}

func (n *Namespace) describeIcecreams(ctx context.Context, out *strings.Builder) {
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
		if i == maxObjects {
			break
		}
		ice.ManagedFields = nil
		text, err := yaml.Marshal(ice)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(out, "---\n%s", text)
	}
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
