package manager

import (
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each flag belongs to the controller that added it, and to the process otherwise;
// defaults are those of the program, not of the environment.
func TestFlags(t *testing.T) {
	t.Setenv("PARLOR_WORKERS", "many")
	t.Setenv("PARLOR_CONE_SCOOPS", "9")
	flags := Manager{Name: "parlor", LeaseName: "parlor", Controllers: []Descriptor{
		{Name: "cone", AddFlags: func(fs *flag.FlagSet) { fs.Int("cone-scoops", 2, "") }},
		{Name: "cup", AddFlags: func(fs *flag.FlagSet) { fs.Int("cup-scoops", 3, ""); fs.Bool("cup-lid", false, "") }},
		{Name: "plain"},
	}}.Flags()
	defaults := map[string]map[string]string{}
	for controller, all := range flags {
		defaults[controller] = map[string]string{}
		for _, f := range all {
			defaults[controller][f.Name] = f.DefValue
		}
	}
	if got := defaults[""]["workers"]; got != "8" {
		t.Errorf("the default of the process's -workers is %q", got)
	}
	delete(defaults, "")
	want := map[string]map[string]string{
		"cone": {"cone-scoops": "2"},
		"cup":  {"cup-scoops": "3", "cup-lid": "false"},
	}
	if diff := cmp.Diff(want, defaults); diff != "" {
		t.Errorf("flags of the controllers (-want +got):\n%s", diff)
	}
}
