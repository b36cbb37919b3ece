package flags_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/internal/flags"
)

// A variable takes the place of a flag that is not on the command line, also of one that can be repeated. There is none
// for -version: images set a variable of this name to a version.
func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name        string
		environment string // NAME=value
		args        []string
		want        string   // the values of the flags
		wantErr     []string // what its one line names
	}{
		{name: "nothing", want: "1s [] false"},
		{name: "one dash", args: []string{"-melt-after=2s"}, want: "2s [] false"},
		{name: "two dashes", args: []string{"--melt-after", "2s"}, want: "2s [] false"},
		{name: "the environment", environment: "MELT_AFTER=3s", want: "3s [] false"},
		{name: "the command line wins", environment: "MELT_AFTER=3s", args: []string{"-melt-after=2s"}, want: "2s [] false"},
		{name: "a repeatable flag in the environment", environment: "WINDOW=Sat", want: "1s [Sat] false"},
		{name: "the command line wins as a whole", environment: "WINDOW=Sat", args: []string{"-window=Mon", "-window=Tue"}, want: "1s [Mon Tue] false"},
		{name: "the version of an image", environment: "VERSION=v1.2.3", want: "1s [] false"},
		{name: "nonsense in the environment", environment: "MELT_AFTER=soon", wantErr: []string{`"soon"`, "$SNACK_BAR_MELT_AFTER"}},
		{name: "nonsense", args: []string{"-melt-after=soon"}, wantErr: []string{`"soon"`, "-melt-after"}},
		{name: "no such flag", args: []string{"-freeze"}, wantErr: []string{"-freeze"}},
		{name: "no flag", args: []string{"melt-after=2s"}, wantErr: []string{`"melt-after=2s"`, "dash"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if name, value, isSet := strings.Cut(tt.environment, "="); isSet {
				t.Setenv("SNACK_BAR_"+name, value)
			}
			fs := flag.NewFlagSet("Times", flag.ContinueOnError)
			after := fs.Duration("melt-after", time.Second, "")
			isVersion := fs.Bool("version", false, "")
			var windows []string
			fs.Func("window", "", func(value string) error {
				windows = append(windows, value)
				return nil
			})
			err := flags.Parse("snack-bar", tt.args, fs)
			if got := fmt.Sprint(*after, windows, *isVersion); tt.wantErr == nil && (err != nil || got != tt.want) {
				t.Errorf("got %s and %v, want %s", got, err, tt.want)
			}
			for _, part := range tt.wantErr {
				if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line with %q", err, part)
				}
			}
		})
	}
}

// Help has all flags, in their groups.
func ExampleParse_help() {
	times, places := flag.NewFlagSet("Times", flag.ContinueOnError), flag.NewFlagSet("Places", flag.ContinueOnError)
	times.Duration("melt-after", time.Second, "How long a scoop lasts.")
	places.String("counter", "", "The `address` of the counter.")
	places.Bool("outdoors", false, "Sell outdoors, too.")
	fmt.Println(errors.Is(flags.Parse("snack-bar", []string{"-help"}, times, places), flag.ErrHelp))
	// Output:
	// Usage: snack-bar [flags]
	//
	// Every flag can be given with one dash or two, or by an environment variable:
	// SNACK_BAR_LOGGING_FORMAT for --logging-format. The command line takes precedence.
	//
	// Times:
	//
	//       --melt-after duration   How long a scoop lasts. (default 1s)
	//
	// Places:
	//
	//       --counter address   The address of the counter.
	//       --outdoors          Sell outdoors, too.
	// true
}

func TestVersionLine(t *testing.T) {
	if got := flags.VersionLine("snack-bar"); !strings.HasPrefix(got, "snack-bar ") || strings.Contains(got, "\n") || !strings.Contains(got, "go1.") {
		t.Errorf("got %q", got)
	}
}
