package manager

import "flag"

// Flags returns the flags of the program with their defaults: those of the process under
// the empty name, and those of each controller under its own. It is for documentation.
func (m Manager) Flags() map[string][]*flag.Flag {
	var all *flag.FlagSet
	owner := map[string]string{}
	controllers := make([]Descriptor, 0, len(m.Controllers)+1)
	for _, d := range m.Controllers {
		if add := d.AddFlags; add != nil {
			d.AddFlags = func(fs *flag.FlagSet) {
				before := names(fs)
				add(fs)
				for name := range names(fs) {
					if !before[name] {
						owner[name] = d.Name
					}
				}
			}
		}
		controllers = append(controllers, d)
	}
	controllers = append(controllers, Descriptor{AddFlags: func(fs *flag.FlagSet) { all = fs }})
	m.Controllers = controllers
	_, _ = m.parse(nil) // a wrong value in the environment changes no default
	flags := map[string][]*flag.Flag{}
	all.VisitAll(func(f *flag.Flag) { flags[owner[f.Name]] = append(flags[owner[f.Name]], f) })
	return flags
}

// names returns the names of all flags.
func names(fs *flag.FlagSet) map[string]bool {
	names := map[string]bool{}
	fs.VisitAll(func(f *flag.Flag) { names[f.Name] = true })
	return names
}
