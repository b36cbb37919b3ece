package lab

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// describedLines is how many lines a description shows of each list.
const describedLines = 12

// Describe returns a description of the namespace for the reader of a failed test. It fills
// about one screen.
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
	shown := [][]string{
		{"get", "deployments,replicasets,pods", "-o", "wide"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	}
	if n.Lab.program.hasIcecreams() {
		shown = append(shown, []string{"get", "icecreams", "-o", `jsonpath={range .items[*]}{.metadata.name}: generation {.metadata.generation}, spec {.spec}{"\n"}{range .status.conditions[*]}  {.type}={.status} of generation {.observedGeneration}: {.reason}: {.message}{"\n"}{end}{end}`})
	}
	for _, args := range shown {
		text, err := n.TryKubectl(ctx, "", args...)
		list("kubectl "+args[0]+" "+args[1], text, err)
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

// lastLines returns the last lines of text, at most that many.
func lastLines(text string, most int) string {
	lines := strings.SplitAfter(text, "\n")
	if left := len(lines) - most; left > 0 {
		return fmt.Sprintf("(%d lines left out)\n%s", left, strings.Join(lines[left:], ""))
	}
	return text
}
