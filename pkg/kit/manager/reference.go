package manager

import "flag"

// Flags returns the flags of the program with their defaults: those of the process under
// the empty name, and those of each controller under its own. It is for documentation.
func (m Manager) Flags() map[string][]*flag.Flag {
	flags, ofControllers := map[string][]*flag.Flag{}, map[string]bool{}
	for _, d := range m.Controllers {
		d.flagSet().VisitAll(func(f *flag.Flag) {
			flags[d.Name] = append(flags[d.Name], f)
			ofControllers[f.Name] = true
		})
	}
	m.flagSet(&options{}).VisitAll(func(f *flag.Flag) {
		if !ofControllers[f.Name] {
			flags[""] = append(flags[""], f)
		}
	})
	return flags
}

// flagSet returns the controller's own flags.
func (d Descriptor) flagSet() *flag.FlagSet {
	fs := flag.NewFlagSet(d.Name, flag.ContinueOnError)
	if d.AddFlags != nil {
		d.AddFlags(fs)
	}
	return fs
}
