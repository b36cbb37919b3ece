package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A description shows so many Icecreams, and so many lines of each list.
const (
	describedIcecreams = 3
	describedLines     = 12
)

// Describe returns a description of the namespace for the reader of a failed test. It
// fills about one screen, and begins with the Icecreams that are not Ready.
func (n *Namespace) Describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	var out strings.Builder
	list := func(what, text string, err error) {
		if err != nil {
			text += err.Error() + "\n"
		}
		fmt.Fprintf(&out, "--- %s\n%s", what, lastLines(text, describedLines))
	}
	n.describeIcecreams(ctx, &out)
	for _, args := range [][]string{
		{"get", "deployments,replicasets,pods", "-o", "wide"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	} {
		text, err := n.TryKubectl(ctx, "", args...)
		list("kubectl "+strings.Join(args, " "), text, err)
	}
	if n.Controller != nil {
		requests, err := n.Lab.AllRequests()
		list("requests of the controller in this namespace", requests.In(n.Name).By(n.Controller.User).lines(), err)
		var log strings.Builder
		for line := range strings.Lines(n.Controller.Log()) {
			if strings.Contains(line, n.Name) {
				log.WriteString(line)
			}
		}
		list("lines of the controller's log that contain the name of this namespace", log.String(), nil)
	}
	return out.String()
}

func (n *Namespace) describeIcecreams(ctx context.Context, out *strings.Builder) {
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
		if i == describedIcecreams {
			break
		}
		spec, err := json.Marshal(ice.Spec)
		if err != nil {
			fmt.Fprintln(out, err)
		}
		fmt.Fprintf(out, "%s: generation %d, spec %s\n", ice.Name, ice.Generation, spec)
		for _, c := range ice.Status.Conditions {
			fmt.Fprintf(out, "  %s=%s since %s, generation %d: %s: %s\n", c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly), c.ObservedGeneration, c.Reason, c.Message)
		}
	}
}

// lastLines returns the last lines of text, at most that many.
func lastLines(text string, most int) string {
	lines := strings.SplitAfter(text, "\n")
	if left := len(lines) - most; left > 0 {
		return fmt.Sprintf("(%d lines left out)\n%s", left, strings.Join(lines[left:], ""))
	}
	return text
}
