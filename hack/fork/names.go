package main

import (
	_ "embed"
	"errors"
	"fmt"
	"go/build"
	"go/token"
	"go/types"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/gobuffalo/flect"
	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Answers are what the author of a fork chooses. They are kept in the fork, and the same
// answers always give the same names.
type Answers struct {
	Module  string `json:"module"`
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	Plural  string `json:"plural"` // lower case; empty means the regular English plural
	Short   string `json:"short"`  // for kubectl; the first letters of the kind if empty
}

// Names are all names in which a fork and its template differ.
type Names struct {
	Module     string // of Go
	Required   string // the version by which modules below it require it
	Registry   string // of images in examples
	Project    string // of the chart, the image, the Lease, the namespace, the service account
	Group      string // of the API
	API        string // the directory of the group's types, which is also the group's name in Go
	Version    string // of the API
	Package    string // of the kind's rules
	Kind       string // such as IceShelf
	Kinds      string // IceShelves
	Short      string // for kubectl
	Controller string // iceshelf-controller: a field manager and the value of a label
}

// template are the names that this repository uses.
func template() Names {
	return Names{
		Module:     "nicoleh.io/k8s-controller",
		Required:   "v0.0.0-00010101000000-000000000000",
		Registry:   "registry.nicoleh.io",
		Project:    "k8s-controller",
		Group:      "controller.nicoleh.io",
		API:        "samplecontroller",
		Version:    "v1alpha1",
		Package:    "icecream",
		Kind:       "Icecream",
		Kinds:      "Icecreams",
		Short:      "ice",
		Controller: "icecream-controller",
	}
}

// Singular returns the kind in lower case, which names packages, files, flags and metrics.
func (n Names) Singular() string { return strings.ToLower(n.Kind) }

// Plural returns the name of the resource.
func (n Names) Plural() string { return strings.ToLower(n.Kinds) }

var (
	kindPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	// versionPattern is that of the versions that Kubernetes sorts by stability.
	versionPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

// Names checks the answers and returns the names that follow from them. The error has one
// line, which says what is wrong with which flag. What the API server would refuse, is
// refused by its own rules.
func (a Answers) Names() (Names, error) {
	for _, required := range []struct{ flag, value, example string }{
		{"module", a.Module, "example.com/pantry"},
		{"group", a.Group, "pantry.example.com"},
		{"version", a.Version, "v1alpha1"},
		{"kind", a.Kind, "Shelf"},
	} {
		if required.value == "" {
			return Names{}, fmt.Errorf("-%s is missing, such as %s", required.flag, required.example)
		}
	}
	t, err := readTaken()
	if err != nil {
		return Names{}, err
	}
	singular := strings.ToLower(a.Kind)
	if a.Plural == "" && kindPattern.MatchString(a.Kind) {
		if a.Plural = flect.Pluralize(singular); slices.Contains(t.Resources, a.Plural) {
			return Names{}, fmt.Errorf("-kind %q: its plural would be %s, which every cluster has: choose another with -plural", a.Kind, a.Plural)
		}
	}
	if a.Short == "" {
		a.Short = t.shortOf(singular)
	}
	for _, check := range []struct {
		flag, value string
		err         error
	}{
		{"module", a.Module, checkModule(a.Module)},
		{"group", a.Group, checkGroup(a.Group)},
		{"version", a.Version, checkVersion(a.Version)},
		{"kind", a.Kind, checkKind(a.Kind)},
		{"plural", a.Plural, checkPlural(a.Plural, a.Kind)},
		{"short", a.Short, checkShort(a.Short, a.Plural, a.Kind)},
		{"short", a.Short, t.check(t.Resources, "it", a.Short)},
		{"module", a.Module, t.check(t.Accounts, "the service account", projectOf(a.Module))},
		{"module", a.Module, t.check(t.ClusterRoles, "a ClusterRole", projectOf(a.Module)+"-"+singular)},
		{"kind", a.Kind, t.check(t.Accounts, "the controller", controllerOf(singular))},
	} {
		if check.err != nil {
			return Names{}, fmt.Errorf("-%s %q: %w", check.flag, check.value, check.err)
		}
	}
	if problems := validation.IsDNS1123Subdomain(a.Plural + "." + a.Group); len(problems) > 0 {
		return Names{}, fmt.Errorf("-group %q: with the plural in front, as in the name of the CustomResourceDefinition, it %s", a.Group, problems[0])
	}
	domain, _, _ := strings.Cut(a.Module, "/")
	return Names{
		Module:     a.Module,
		Required:   requiredVersion(a.Module),
		Registry:   "registry." + strings.ToLower(domain),
		Project:    projectOf(a.Module),
		Group:      a.Group,
		API:        apiOf(a.Group),
		Version:    a.Version,
		Package:    singular,
		Kind:       a.Kind,
		Kinds:      camelPlural(a.Kind, a.Plural),
		Short:      a.Short,
		Controller: controllerOf(singular),
	}, nil
}

// controllerOf returns the name of the controller of a kind, which is also a label's value.
func controllerOf(singular string) string {
	const suffix = "-controller"
	return singular[:min(len(singular), validation.LabelValueMaxLength-len(suffix))] + suffix
}

func checkModule(modulePath string) error {
	if err := module.CheckPath(modulePath); err != nil {
		if invalid, ok := errors.AsType[*module.InvalidPathError](err); ok {
			return invalid.Err
		}
		return err
	}
	if projectOf(modulePath) == "" {
		return errors.New("no element of it can name a chart and an image: it needs a letter")
	}
	if project := projectOf(modulePath); project == "kube" || strings.HasPrefix(project, "kube-") {
		return fmt.Errorf("the namespace would be named %s-system, and names that begin with kube- are Kubernetes' own", project)
	}
	if module.CheckPath(modulePath+"/test") != nil {
		return errors.New("there can be no modules below it, such as the one of the tests")
	}
	return nil
}

// requiredVersion returns the version by which a module is required that is replaced by a
// directory: the least one that its path allows.
func requiredVersion(modulePath string) string {
	const zero = "v0.0.0-00010101000000-000000000000"
	_, major, _ := module.SplitPathVersion(modulePath)
	if major = strings.TrimPrefix(major, "/"); major == "" {
		return zero
	}
	return major + strings.TrimPrefix(zero, "v0")
}

func checkGroup(group string) error {
	if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
		return errors.New(problems[0])
	}
	if !strings.Contains(group, ".") {
		return errors.New("it needs a dot, as in pantry.example.com: groups without one belong to Kubernetes")
	}
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if group == reserved || strings.HasSuffix(group, "."+reserved) {
			return fmt.Errorf("groups in %s belong to Kubernetes", reserved)
		}
	}
	return nil
}

func checkVersion(version string) error {
	if !versionPattern.MatchString(version) {
		return errors.New("it has to be like v1, v1beta1 or v1alpha1")
	}
	return nil
}

func checkKind(kind string) error {
	lower := strings.ToLower(kind)
	switch {
	case !kindPattern.MatchString(kind):
		return errors.New("it has to begin with a capital letter and to consist of letters and digits")
	case len(validation.IsDNS1035Label(lower)) > 0:
		return errors.New(validation.IsDNS1035Label(lower)[0])
	case token.IsKeyword(lower):
		return fmt.Errorf("the package would be named %s, which is a keyword of Go", lower)
	case types.Universe.Lookup(lower) != nil:
		return fmt.Errorf("the package would be named %s, which Go has predeclared", lower)
	case !isString(lower):
		return fmt.Errorf("the chart would have the key %s, which is no string in YAML", lower)
	case module.CheckImportPath("x/"+lower) != nil, isSpecial(lower):
		return fmt.Errorf("files and a directory would be named %s, which means something to Go", lower)
	case strings.HasSuffix(kind, "List"):
		return errors.New("kinds that end in List are lists")
	}
	return nil
}

// isString reports whether YAML reads a word as a string, and not as true or null, for example.
func isString(word string) bool {
	var read any
	if err := yaml.Unmarshal([]byte(word), &read); err != nil {
		return false
	}
	_, is := read.(string)
	return is
}

// isSpecial reports whether Go would treat a directory of that name, or a file whose name
// ends in it, differently from others: those for one operating system, for example.
func isSpecial(name string) bool {
	if slices.Contains([]string{"internal", "main", "test", "testdata", "vendor"}, name) {
		return true
	}
	none := build.Context{GOOS: "none", GOARCH: "none", OpenFile: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("package x\n")), nil
	}}
	matches, err := none.MatchFile("", "fake_"+name+".go")
	return !matches || err != nil
}

func checkPlural(plural, kind string) error {
	singular := strings.ToLower(kind)
	switch problems := validation.IsDNS1035Label(plural); {
	case len(problems) > 0:
		return errors.New(problems[0])
	case strings.Contains(plural, "-"):
		return errors.New("it becomes part of names in Go, so it has to consist of letters and digits")
	case plural == singular:
		return errors.New("it is also the singular, so that nobody could tell them apart in the code")
	case slices.Contains([]string{"list", "spec", "status"}, strings.TrimPrefix(plural, singular)):
		return errors.New("it is also the name of another type of the API")
	}
	return nil
}

func checkShort(short, plural, kind string) error {
	switch problems := validation.IsDNS1035Label(short); {
	case len(problems) > 0:
		return errors.New(problems[0])
	case short == plural, strings.EqualFold(short, kind):
		return errors.New("it is no shorter than another name of the kind")
	}
	return nil
}

//go:embed taken.yaml
var takenYAML []byte

// taken are the names that every cluster has.
type taken struct {
	Resources    []string `json:"resources"` // with their short names
	Accounts     []string `json:"accounts"`
	ClusterRoles []string `json:"clusterRoles"`
}

func readTaken() (t taken, err error) {
	if err := yaml.UnmarshalStrict(takenYAML, &t); err != nil {
		return t, fmt.Errorf("reading the names that are taken: %w", err)
	}
	return t, nil
}

func (taken) check(names []string, what, name string) error {
	if slices.Contains(names, name) {
		return fmt.Errorf("%s would be named %s, which every cluster has", what, name)
	}
	return nil
}

// shortOf returns the shortest beginning of a kind, of two letters or more, that means
// nothing to kubectl.
func (t taken) shortOf(singular string) string {
	for length := 2; length < len(singular); length++ {
		if short := singular[:length]; !slices.Contains(t.Resources, short) {
			return short
		}
	}
	return singular + singular
}

// camelPlural spells a plural as its kind is spelled, as far as they agree: IceShelves for
// IceShelf and iceshelves.
func camelPlural(kind, plural string) string {
	common := 0
	for common < min(len(kind), len(plural)) && unicode.ToLower(rune(kind[common])) == rune(plural[common]) {
		common++
	}
	if common == 0 {
		return strings.ToUpper(plural[:1]) + plural[1:]
	}
	return kind[:common] + plural[common:]
}

// maxProject leaves room for what is added to the project's name in the names of objects.
const maxProject = 30

var notInLabel = regexp.MustCompile(`[^a-z0-9]`)

// projectOf returns the last element of a module path that is no major version, as a DNS
// label that begins with a letter. It is empty if there is none.
func projectOf(modulePath string) string {
	if prefix, _, ok := module.SplitPathVersion(modulePath); ok {
		modulePath = prefix
	}
	label := notInLabel.ReplaceAllString(strings.ToLower(path.Base(modulePath)), "-")
	label = strings.TrimLeft(label, "-0123456789")
	return strings.Trim(label[:min(len(label), maxProject)], "-")
}

// apiOf returns the first label of a group as the name of a Go package.
func apiOf(group string) string {
	first, _, _ := strings.Cut(group, ".")
	first = strings.ReplaceAll(first, "-", "")
	name := strings.TrimLeft(first, "0123456789")
	if name == "" || token.IsKeyword(name) || types.Universe.Lookup(name) != nil {
		return "api" + first
	}
	return name
}
