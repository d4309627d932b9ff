// Command sbom writes what is compiled into a Go program as an SPDX document.
//
//	sbom PROGRAM... >setnxlock.spdx.json
//
// The programs are one for several systems: the document names what is in any of them. It says the
// same for the same programs: its time is the commit's.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

// licences are those whose texts were read. A module that is not here is an error.
var licences = map[string]string{
	"github.com/setnxlock/setnxlock":       "MIT",
	"github.com/alicebob/miniredis/v2":     "MIT",
	"github.com/benbjohnson/clock":         "MIT",
	"github.com/gomodule/redigo":           "Apache-2.0",
	"github.com/inconshreveable/mousetrap": "Apache-2.0",
	"github.com/spf13/cobra":               "Apache-2.0",
	"github.com/spf13/pflag":               "BSD-3-Clause",
	"github.com/yuin/gopher-lua":           "MIT",
	"golang.org/x/sys":                     "BSD-3-Clause",
	"golang.org/x/term":                    "BSD-3-Clause",
	"stdlib":                               "BSD-3-Clause",
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(programs []string, w io.Writer) error {
	if len(programs) == 0 {
		return fmt.Errorf("no program is named")
	}
	modules, sums := map[string]debug.Module{}, sha256.New()
	var self debug.Module
	created := "1970-01-01T00:00:00Z"
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		self = info.Main
		modules["stdlib"] = debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
		for _, m := range info.Deps {
			modules[m.Path] = *m
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				created = s.Value
			}
		}
		text, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		sums.Write(text)
	}
	all := []debug.Module{self}
	for _, m := range modules {
		all = append(all, m)
	}
	slices.SortFunc(all[1:], func(a, b debug.Module) int { return cmp.Compare(a.Path, b.Path) })

	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      path.Base(self.Path) + " " + self.Version,
		DocumentNamespace: fmt.Sprintf("https://%s/spdx/%x", self.Path, sums.Sum(nil)),
		CreationInfo:      &spdx.CreationInfo{Created: created, Creators: []common.Creator{{CreatorType: "Tool", Creator: "setnxlock-sbom"}}},
	}
	for i, m := range all {
		licence, ok := licences[m.Path]
		if !ok {
			return fmt.Errorf("%s is compiled in, and its licence is not known here: read it and add it to licences", m.Path)
		}
		id := common.ElementID(fmt.Sprintf("Package-%d", i))
		doc.Packages = append(doc.Packages, &spdx.Package{
			PackageName: m.Path, PackageVersion: m.Version, PackageSPDXIdentifier: id,
			PackageDownloadLocation: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
			PackageLicenseDeclared: licence, PackageLicenseConcluded: licence,
			PackageExternalReferences: []*spdx.PackageExternalReference{{
				Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + m.Path + "@" + m.Version,
			}},
		})
		relation := &spdx.Relationship{RefA: common.MakeDocElementID("", string(doc.Packages[0].PackageSPDXIdentifier)), RefB: common.MakeDocElementID("", string(id)), Relationship: common.TypeRelationshipDependsOn}
		if i == 0 {
			relation.RefA, relation.Relationship = common.MakeDocElementID("", "DOCUMENT"), common.TypeRelationshipDescribe
		}
		doc.Relationships = append(doc.Relationships, relation)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		return err
	}
	return json.Write(doc, w, json.Indent("  "))
}
