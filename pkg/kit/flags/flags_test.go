package flags_test

import (
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
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
			fs := flag.NewFlagSet("snack-bar", flag.ContinueOnError)
			got := fs.Duration("melt-after", time.Second, "")
			err := flags.Parse(fs, tt.args)
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

func TestHelp(t *testing.T) {
	fs := flag.NewFlagSet("snack-bar", flag.ContinueOnError)
	fs.Usage = func() {}
	if err := flags.Parse(fs, []string{"-help"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
}

func TestVersionLine(t *testing.T) {
	if got := flags.VersionLine("snack-bar"); !strings.HasPrefix(got, "snack-bar ") || strings.Contains(got, "\n") || !strings.Contains(got, "go1.") {
		t.Errorf("got %q", got)
	}
}
