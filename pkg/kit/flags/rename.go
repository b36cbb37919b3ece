package flags

import (
	"flag"
	"fmt"
)

// Rename adds old, the former name of a flag that is now called name. It keeps working,
// also in the environment, and [Renamed] then says so.
func Rename(flags *flag.FlagSet, old, name string) {
	f := flags.Lookup(name)
	r := &rename{old: old, name: name, value: f.Value}
	f.Value = renamed{rename: r}
	flags.Var(renamed{rename: r, isOld: true}, old, fmt.Sprintf("The former name of -%s, which still works.", name))
}

// Renamed returns a line for each flag that was set by its former name.
func Renamed(flags *flag.FlagSet) (lines []string) {
	flags.Visit(func(f *flag.Flag) {
		if r, ok := f.Value.(renamed); ok && r.isOld {
			lines = append(lines, fmt.Sprintf("-%s is now called -%s; the former name will stop working one day", r.old, r.name))
		}
	})
	return lines
}

// rename is a flag with two names.
type rename struct {
	old, name string
	value     flag.Value
	// byOld and byName are the values that were given by each name in the same place,
	// which is the environment or the command line; nil if none was.
	byOld, byName *string
}

// renamed is the value of a flag with two names, seen from one of them.
type renamed struct {
	*rename
	isOld bool
}

// String returns the value by the flag's present name only, so that help shows the
// default once.
func (r renamed) String() string {
	if r.rename == nil || r.isOld {
		return ""
	}
	return r.value.String()
}

func (r renamed) Set(value string) error {
	if err := r.value.Set(value); err != nil {
		return err
	}
	is := r.value.String()
	if r.isOld {
		r.byOld = &is
	} else {
		r.byName = &is
	}
	return nil
}

// Get returns the value as the flag package's own flags do.
func (r renamed) Get() any {
	if getter, ok := r.value.(flag.Getter); ok {
		return getter.Get()
	}
	return r.value.String()
}

// IsBoolFlag reports whether the flag needs no value on the command line.
func (r renamed) IsBoolFlag() bool {
	b, ok := r.value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// requireOneValue returns an error if a flag with two names was given a different value
// by each, in the environment or on the command line. It has to be called after each of
// them.
func requireOneValue(flags *flag.FlagSet) (err error) {
	flags.VisitAll(func(f *flag.Flag) {
		r, ok := f.Value.(renamed)
		if !ok || !r.isOld {
			return
		}
		if r.byOld != nil && r.byName != nil && *r.byOld != *r.byName && err == nil {
			err = fmt.Errorf("-%s is %s and -%s, its former name, is %s: remove the latter", r.name, *r.byName, r.old, *r.byOld)
		}
		r.byOld, r.byName = nil, nil
	})
	return err
}
