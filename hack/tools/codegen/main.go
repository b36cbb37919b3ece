// Command codegen runs generators of k8s.io/code-generator in a directory, all of them for
// the same package. It reads one line for each generator, with its name and its flags:
//
//	deepcopy-gen --output-file zz_generated.deepcopy.go
//
// It writes what these programs write, in a third of the time: they spend most of theirs
// on loading the package and everything that it imports, and here that happens only once.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	applyconfigurationargs "k8s.io/code-generator/cmd/applyconfiguration-gen/args"
	applyconfiguration "k8s.io/code-generator/cmd/applyconfiguration-gen/generators"
	clientargs "k8s.io/code-generator/cmd/client-gen/args"
	client "k8s.io/code-generator/cmd/client-gen/generators"
	deepcopyargs "k8s.io/code-generator/cmd/deepcopy-gen/args"
	deepcopy "k8s.io/code-generator/cmd/deepcopy-gen/generators"
	informerargs "k8s.io/code-generator/cmd/informer-gen/args"
	informer "k8s.io/code-generator/cmd/informer-gen/generators"
	listerargs "k8s.io/code-generator/cmd/lister-gen/args"
	lister "k8s.io/code-generator/cmd/lister-gen/generators"
	registerargs "k8s.io/code-generator/cmd/register-gen/args"
	register "k8s.io/code-generator/cmd/register-gen/generators"
	"k8s.io/code-generator/pkg/util"
	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/gengo/v2/namer"
	"k8s.io/gengo/v2/parser"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: codegen DIRECTORY PACKAGE <COMMANDS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "codegen: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, pkg string, commands io.Reader) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	p := parser.NewWithOptions(parser.Options{BuildTags: []string{gengo.StdBuildTag}})
	if err := p.LoadPackages(pkg); err != nil {
		return fmt.Errorf("loading %s: %w", pkg, err)
	}
	c, err := generator.NewContext(p, nil, "")
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		if err := generate(c, words[0], words[1:]); err != nil {
			return fmt.Errorf("%s: %w", words[0], err)
		}
	}
	return lines.Err()
}

// generate runs one generator.
func generate(c *generator.Context, name string, args []string) error {
	newGenerator, ok := generators[name]
	if !ok {
		return fmt.Errorf("there is no such generator")
	}
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	r := newGenerator(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected arguments: %q", flags.Args())
	}
	if err := r.validate(); err != nil {
		return err
	}
	c.Namers, c.Order = r.names(), nil
	if by, ok := c.Namers[r.order]; ok {
		order := namer.Orderer{Namer: by}
		c.Order = order.OrderUniverse(c.Universe)
	}
	os.Args[0] = name // which the files that it writes say that they are from
	return c.ExecuteTargets(r.targets(c))
}

// generatorRun is one run of a generator. Its flags are parsed before anything is called.
type generatorRun struct {
	validate func() error
	names    func() namer.NameSystems
	order    string // the name system by which types are ordered; none if empty
	targets  func(*generator.Context) []generator.Target
}

func newRun[A interface{ Validate() error }](args A, names func() namer.NameSystems, order string, targets func(*generator.Context, A) []generator.Target) generatorRun {
	return generatorRun{args.Validate, names, order, func(c *generator.Context) []generator.Target { return targets(c, args) }}
}

// withPlurals returns the name systems of a generator that has to know plurals.
func withPlurals(names func(plurals map[string]string) namer.NameSystems, exceptions *[]string) func() namer.NameSystems {
	return func() namer.NameSystems { return names(util.PluralExceptionListToMapOrDie(*exceptions)) }
}

var generators = map[string]func(*pflag.FlagSet) generatorRun{
	"applyconfiguration-gen": func(flags *pflag.FlagSet) generatorRun {
		args := applyconfigurationargs.New()
		args.AddFlags(flags, "")
		return newRun(args, applyconfiguration.NameSystems, applyconfiguration.DefaultNameSystem(), applyconfiguration.GetTargets)
	},
	"client-gen": func(flags *pflag.FlagSet) generatorRun {
		args := clientargs.New()
		args.AddFlags(flags, "")
		return newRun(args, withPlurals(client.NameSystems, &args.PluralExceptions), client.DefaultNameSystem(), client.GetTargets)
	},
	"deepcopy-gen": func(flags *pflag.FlagSet) generatorRun {
		args := deepcopyargs.New()
		args.AddFlags(flags)
		return newRun(args, deepcopy.NameSystems, deepcopy.DefaultNameSystem(), deepcopy.GetTargets)
	},
	"informer-gen": func(flags *pflag.FlagSet) generatorRun {
		args := informerargs.New()
		args.AddFlags(flags)
		return newRun(args, withPlurals(informer.NameSystems, &args.PluralExceptions), informer.DefaultNameSystem(), informer.GetTargets)
	},
	"lister-gen": func(flags *pflag.FlagSet) generatorRun {
		args := listerargs.New()
		args.AddFlags(flags)
		return newRun(args, withPlurals(lister.NameSystems, &args.PluralExceptions), lister.DefaultNameSystem(), lister.GetTargets)
	},
	"register-gen": func(flags *pflag.FlagSet) generatorRun {
		args := registerargs.New()
		args.AddFlags(flags)
		return newRun(args, register.NameSystems, register.DefaultNameSystem(), register.GetTargets)
	},
}
