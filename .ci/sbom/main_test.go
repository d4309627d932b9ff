package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

// The document of this test's own program reads back, and says what is in it.
func TestDocument(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	licences["github.com/setnxlock/setnxlock/.ci/sbom"] = "MIT"
	if err := run([]string{self}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "its licence is not known here") {
		t.Errorf("a module without a licence: %v", err)
	}
	for _, m := range []string{"github.com/spdx/tools-golang", "github.com/anchore/go-struct-converter"} {
		licences[m] = "Apache-2.0"
	}
	var first, again bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &again} {
		if err := run([]string{self}, b); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != again.String() {
		t.Error("two documents of one program differ")
	}
	doc, err := json.Read(&first)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range doc.Packages {
		names = append(names, p.PackageName+" "+p.PackageLicenseDeclared)
	}
	if doc.SPDXVersion != spdx.Version || len(doc.Relationships) != len(names) || !strings.Contains(strings.Join(names, ","), "github.com/spdx/tools-golang Apache-2.0") || !strings.Contains(strings.Join(names, ","), "stdlib BSD-3-Clause") {
		t.Errorf("%s: %q", doc.SPDXVersion, names)
	}
	if err := run(nil, &bytes.Buffer{}); err == nil {
		t.Error("no program is no error")
	}
}
