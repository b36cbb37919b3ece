package flags_test

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
)

func TestRename(t *testing.T) {
	for _, tt := range []struct {
		name        string
		environment map[string]string
		args        []string
		want        time.Duration
		wantRenamed bool // a line about the former name
		wantErr     []string
	}{
		{name: "nothing", want: time.Second},
		{name: "the new name", args: []string{"-gadget-melt-after=2s"}, want: 2 * time.Second},
		{name: "the former name", args: []string{"-melt-after=2s"}, want: 2 * time.Second, wantRenamed: true},
		{name: "the new name in the environment", environment: map[string]string{"CREAM_GADGET_MELT_AFTER": "2s"}, want: 2 * time.Second},
		{name: "the former name in the environment", environment: map[string]string{"CREAM_MELT_AFTER": "2s"}, want: 2 * time.Second, wantRenamed: true},
		{name: "the command line wins by the new name", environment: map[string]string{"CREAM_MELT_AFTER": "2s"}, args: []string{"-gadget-melt-after=3s"}, want: 3 * time.Second, wantRenamed: true},
		{name: "the command line wins by the former name", environment: map[string]string{"CREAM_GADGET_MELT_AFTER": "2s"}, args: []string{"-melt-after=3s"}, want: 3 * time.Second, wantRenamed: true},
		{name: "both names and one value", args: []string{"-melt-after=60s", "-gadget-melt-after=1m"}, want: time.Minute, wantRenamed: true},
		{name: "both names and two values", args: []string{"-melt-after=2s", "-gadget-melt-after=3s"}, wantErr: []string{"-melt-after", "2s", "-gadget-melt-after", "3s"}},
		{name: "both names and two values, one the default", args: []string{"-melt-after=1s", "-gadget-melt-after=3s"}, wantErr: []string{"-melt-after", "1s", "-gadget-melt-after", "3s"}},
		{name: "both in the environment", environment: map[string]string{"CREAM_GADGET_MELT_AFTER": "2s", "CREAM_MELT_AFTER": "3s"}, wantErr: []string{"-melt-after", "3s", "-gadget-melt-after", "2s"}},
		{name: "nonsense", args: []string{"-melt-after=soon"}, wantErr: []string{`"soon"`, "-melt-after"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			fs := flag.NewFlagSet("cream", flag.ContinueOnError)
			got := fs.Duration("gadget-melt-after", time.Second, "")
			flags.Rename(fs, "melt-after", "gadget-melt-after")
			err := flags.Parse(fs, tt.args)
			if tt.wantErr == nil && (err != nil || *got != tt.want) {
				t.Errorf("got %s and %v, want %s", *got, err, tt.want)
			}
			if lines := flags.Renamed(fs); tt.wantErr == nil && (len(lines) > 0) != tt.wantRenamed {
				t.Errorf("got %q", lines)
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

func TestARenamedSwitchNeedsNoValue(t *testing.T) {
	fs := flag.NewFlagSet("cream", flag.ContinueOnError)
	got := fs.Bool("gadget-melts", false, "")
	flags.Rename(fs, "melts", "gadget-melts")
	if err := flags.Parse(fs, []string{"-melts"}); err != nil || !*got {
		t.Errorf("got %t and %v", *got, err)
	}
}

func TestHelpHasBothNames(t *testing.T) {
	var help bytes.Buffer
	fs := flag.NewFlagSet("cream", flag.ContinueOnError)
	fs.Duration("gadget-melt-after", time.Second, "How long it takes.")
	flags.Rename(fs, "melt-after", "gadget-melt-after")
	fs.SetOutput(&help)
	fs.PrintDefaults()
	want := "  -gadget-melt-after value\n    \tHow long it takes. (default 1s)\n  -melt-after value\n    \tThe former name of -gadget-melt-after, which still works.\n"
	if help.String() != want {
		t.Errorf("got\n%s\nwant\n%s", help.String(), want)
	}
}
