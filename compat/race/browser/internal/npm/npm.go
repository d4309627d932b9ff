// Package npm fetches a file of a package for tests: what judges our pages, and is no part of them.
package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
)

// File is where a file of a package of npm's lies, "package/dist/mermaid.min.js" for one. It is
// fetched once, and its package has to have this checksum: SHA-512, in Base64.
func File(t testing.TB, name, version, sum, file string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	kept := filepath.Join(cache, "setnxlock", version+"-"+path.Base(file))
	if _, err := os.Stat(kept); err == nil {
		return kept
	}
	dir := t.TempDir()
	npm := exec.Command(realredis.Need(t, "npm", "npm"), "pack", "--silent", name+"@"+version)
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("%s is not there and npm does not fetch it: %v\n%s", name, err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, name+"-"+version+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if got := sha512.Sum512(b); base64.StdEncoding.EncodeToString(got[:]) != sum {
		t.Fatalf("%s@%s is not what it was: sha512-%s", name, version, base64.StdEncoding.EncodeToString(got[:]))
	}
	if b, err = unpack(b, file); err != nil {
		t.Fatalf("no %s in the package %s: %v", file, name, err)
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o777); err != nil {
		t.Fatal(err)
	}
	// Another test may be doing the same: nobody must see half a file.
	half := filepath.Join(filepath.Dir(kept), filepath.Base(dir)+fmt.Sprint(os.Getpid()))
	if err := os.WriteFile(half, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, kept); err != nil {
		t.Fatal(err)
	}
	return kept
}

// unpack is one file of an archive.
func unpack(b []byte, file string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			return nil, err
		}
		if h.Name == file {
			return io.ReadAll(r)
		}
	}
}
