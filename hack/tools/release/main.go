// Command release writes what is in a Go binary as a CycloneDX bill of materials:
// the modules that the binary itself says it was linked from, the standard
// library, and the license of each as its module has it. The same binary gives
// the same bytes.
//
// It is run in the directory of the binary's main module, after a build: the
// modules are looked for in the module cache, and nothing is downloaded.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// What is newer than this is not yet read by every scanner.
const specVersion = cdx.SpecVersion1_6

func main() {
	version := flag.String("version", "", "Version of the main module.")
	date := flag.String("date", "", "When the binary's source was committed, in RFC 3339.")
	flag.Parse()
	err := errors.New("usage: release -version=v1.2.3 -date=2006-01-02T15:04:05Z BINARY")
	if flag.NArg() == 1 {
		err = write(os.Stdout, flag.Arg(0), *version, *date)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// write writes the bill of materials of a binary.
func write(w io.Writer, binary, version, date string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("reading what %s was built from: %w", binary, err)
	}
	bom, err := billOfMaterials(info, filepath.Base(binary), sha256.Sum256(content), version, date)
	if err != nil {
		return err
	}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetEscapeHTML(false).SetPretty(true).EncodeVersion(bom, specVersion)
}

func billOfMaterials(info *debug.BuildInfo, file string, digest [sha256.Size]byte, version, date string) (*cdx.BOM, error) {
	linked, err := linkedModules(info)
	if err != nil {
		return nil, err
	}
	licenses, err := licensesIn(".")
	if err != nil {
		return nil, err
	}
	platform := map[string]string{}
	for _, s := range info.Settings {
		platform[s.Key] = s.Value
	}
	url := fmt.Sprintf("pkg:golang/%s@%s?goos=%s&goarch=%s", info.Main.Path, version, platform["GOOS"], platform["GOARCH"])
	if dir, isBelow := strings.CutPrefix(info.Path, info.Main.Path+"/"); isBelow {
		url += "#" + dir
	}
	main := cdx.Component{
		Type:       cdx.ComponentTypeApplication,
		Name:       info.Path,
		Version:    version,
		PackageURL: url,
		Licenses:   licenses,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", digest)}},
		Properties: &[]cdx.Property{
			{Name: "file", Value: file},
		},
	}
	main.BOMRef = main.PackageURL

	refs := make([]string, 0, len(linked))
	for _, component := range linked {
		refs = append(refs, component.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serialNumber(digest)
	bom.Metadata = &cdx.Metadata{
		Timestamp: date,
		Component: &main,
		Tools: &cdx.ToolsChoice{Components: &[]cdx.Component{
			{Type: cdx.ComponentTypeApplication, Name: "hack/tools/release", Version: version},
		}},
	}
	bom.Components = &linked
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom, nil
}

// serialNumber is a UUID (version 8) that follows from the binary, because a
// random one would make two equal builds differ.
func serialNumber(digest [sha256.Size]byte) string {
	u := digest[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// linkedModules returns the modules that are linked into the binary, and the
// standard library, sorted by name.
func linkedModules(info *debug.BuildInfo) ([]cdx.Component, error) {
	// The name by which vulnerability databases know it.
	std := component("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	std.Licenses = choices("BSD-3-Clause")

	dirs, err := directories(info.Deps)
	if err != nil {
		return nil, err
	}
	components := []cdx.Component{std}
	for _, module := range info.Deps {
		dir := dirs[module.Path]
		if dir == "" {
			return nil, fmt.Errorf("module %s is not in the module cache", module.Path)
		}
		module = cmp.Or(module.Replace, module)
		c := component(module.Path, module.Version)
		// Not a hash in the sense of CycloneDX, which would be of one file.
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: module.Sum}}
		if c.Licenses, err = licensesIn(dir); err != nil {
			return nil, err
		}
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.Name, b.Name) })
	return components, nil
}

func component(name, version string) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", name, strings.ReplaceAll(version, "+", "%2B"))
	return cdx.Component{
		BOMRef:     url,
		Type:       cdx.ComponentTypeLibrary,
		Name:       name,
		Version:    version,
		Scope:      cdx.ScopeRequired,
		PackageURL: url,
	}
}

// directories are where the module cache has each module, or what it is replaced by.
func directories(modules []*debug.Module) (map[string]string, error) {
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, module := range modules {
		args = append(args, module.Path)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("looking for modules: %w", err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	return dirs, nil
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)

// licensesIn returns the licenses that a module has at its root. To find none is
// an error: somebody has to look.
func licensesIn(dir string) (*cdx.Licenses, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() || !licenseFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !match.IsURL {
				ids = append(ids, match.ID)
			}
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s: no license that is known", dir)
	}
	slices.Sort(ids)
	return choices(slices.Compact(ids)...), nil
}

func choices(ids ...string) *cdx.Licenses {
	licenses := cdx.Licenses{}
	for _, id := range ids {
		licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &licenses
}
