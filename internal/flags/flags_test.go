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

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name        string
		environment map[string]string
		args        []string
		want        time.Duration
		wantErr     []string // what its one line names
	}{
		{name: "nothing", want: time.Second},
		{name: "one dash", args: []string{"-melt-after=2s"}, want: 2 * time.Second},
		{name: "two dashes", args: []string{"--melt-after", "2s"}, want: 2 * time.Second},
		{name: "the environment", environment: map[string]string{"SNACK_BAR_MELT_AFTER": "3s"}, want: 3 * time.Second},
		{name: "the command line wins", environment: map[string]string{"SNACK_BAR_MELT_AFTER": "3s"}, args: []string{"-melt-after=2s"}, want: 2 * time.Second},
		{name: "nonsense in the environment", environment: map[string]string{"SNACK_BAR_MELT_AFTER": "soon"}, wantErr: []string{`"soon"`, "$SNACK_BAR_MELT_AFTER"}},
		{name: "nonsense", args: []string{"-melt-after=soon"}, wantErr: []string{`"soon"`, "-melt-after"}},
		{name: "no such flag", args: []string{"-freeze"}, wantErr: []string{"-freeze"}},
		{name: "no flag", args: []string{"melt-after=2s"}, wantErr: []string{`"melt-after=2s"`, "dash"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			fs := flag.NewFlagSet("Times", flag.ContinueOnError)
			got := fs.Duration("melt-after", time.Second, "")
			err := flags.Parse("snack-bar", tt.args, fs)
			if tt.wantErr == nil && (err != nil || *got != tt.want) {
				t.Errorf("got %s and %v, want %s", *got, err, tt.want)
			}
			if tt.wantErr != nil && err == nil {
				t.Fatalf("got %s, want an error", *got)
			}
			for _, part := range tt.wantErr {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %q, want one line with %q", err, part)
				}
			}
		})
	}
}

// Of a flag that can be repeated, the command line takes the place of the variable, too.
func TestRepeatableFlag(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"the environment":       {nil, "[Sat]"},
		"the command line wins": {[]string{"-window=Mon", "-window=Tue"}, "[Mon Tue]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SNACK_BAR_WINDOW", "Sat")
			var got []string
			fs := flag.NewFlagSet("Times", flag.ContinueOnError)
			fs.Func("window", "", func(value string) error {
				got = append(got, value)
				return nil
			})
			if err := flags.Parse("snack-bar", tt.args, fs); err != nil || fmt.Sprint(got) != tt.want {
				t.Errorf("got %q and %v, want %s", got, err, tt.want)
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

// Images set a variable of this name to a version.
func TestVersionIsNoVariable(t *testing.T) {
	t.Setenv("SNACK_BAR_VERSION", "v1.2.3")
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	isVersion := fs.Bool("version", false, "")
	if err := flags.Parse("snack-bar", nil, fs); err != nil || *isVersion {
		t.Errorf("Parse returned %v; the version is asked for: %t", err, *isVersion)
	}
}

func TestVersionLine(t *testing.T) {
	if got := flags.VersionLine("snack-bar"); !strings.HasPrefix(got, "snack-bar ") || strings.Contains(got, "\n") || !strings.Contains(got, "go1.") {
		t.Errorf("got %q", got)
	}
}
