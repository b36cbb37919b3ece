// Command release writes a CycloneDX bill of materials for a Go binary: the modules that
// the build information in the binary lists, the standard library, and the license that
// each module contains. The output depends on the binary and the flags only.
//
// It must run in the directory of the binary's main module, after a build: it finds the
// modules in the module cache and downloads nothing.
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

// specVersion is the latest version of CycloneDX that all common scanners can read.
const specVersion = cdx.SpecVersion1_6

func main() {
	version := flag.String("version", "", "Version of the main module.")
	date := flag.String("date", "", "Commit date of the binary's source, in RFC 3339.")
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
		return fmt.Errorf("reading the build information of %s: %w", binary, err)
	}
	bom, err := billOfMaterials(info, filepath.Base(binary), sha256.Sum256(content), version, date)
	if err != nil {
		return err
	}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetEscapeHTML(false).SetPretty(true).EncodeVersion(bom, specVersion)
}

// billOfMaterials returns the bill of materials of a binary. file is the binary's name, and
// digest is its SHA-256 digest.
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

// serialNumber returns a UUID (version 8) that is derived from the binary. With a random one,
// two builds of the same source would differ.
func serialNumber(digest [sha256.Size]byte) string {
	u := digest[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// linkedModules returns the modules that are linked into the binary, including the standard
// library, sorted by name.
func linkedModules(info *debug.BuildInfo) ([]cdx.Component, error) {
	// Vulnerability databases know the standard library by this name.
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
		// This is a property, because CycloneDX defines a hash as that of a single file.
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: module.Sum}}
		if c.Licenses, err = licensesIn(dir); err != nil {
			return nil, err
		}
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.Name, b.Name) })
	return components, nil
}

// component returns a Go module as a library that the binary requires.
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

// directories returns the directory of each module, or of its replacement, in the module
// cache. The keys are module paths.
func directories(modules []*debug.Module) (map[string]string, error) {
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, module := range modules {
		args = append(args, module.Path)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("finding the modules: %w", err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	return dirs, nil
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)

// licensesIn returns the licenses of a module, which are in its root directory. It returns an
// error if it finds none, so that someone looks at the module.
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
		return nil, fmt.Errorf("%s: no known license", dir)
	}
	slices.Sort(ids)
	return choices(slices.Compact(ids)...), nil
}

// choices returns the licenses with the given SPDX IDs.
func choices(ids ...string) *cdx.Licenses {
	licenses := cdx.Licenses{}
	for _, id := range ids {
		licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &licenses
}
