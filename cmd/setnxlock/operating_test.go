//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Every command of docs/operating.md prints what the page says: each chapter on a new server.
func TestOperatingPage(t *testing.T) {
	b, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, chapter := range strings.Split(string(b), "\n## ")[1:] {
		title, _, _ := strings.Cut(chapter, "\n")
		all := blocksOf("console", "docs/operating.md, "+title, chapter)
		if len(all) == 0 {
			continue
		}
		address := startReal(t)
		path := cliFor(t, address)
		for _, b := range all {
			commands += runBlock(t, b, address, ".", path)
		}
	}
	if commands < 40 {
		t.Errorf("%d commands on the page", commands)
	}
}

// cliFor is a PATH whose redis-cli asks the server at address.
func cliFor(t *testing.T, address string) string {
	cli := need(t, "redis-cli", "redis-tools")
	bin := t.TempDir()
	_, port, _ := net.SplitHostPort(address)
	script := fmt.Sprintf("#!/bin/sh\nexec %s -p %s \"$@\"\n", cli, port)
	if err := os.WriteFile(filepath.Join(bin, "redis-cli"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + bin + ":" + os.Getenv("PATH")
}

// changing is made when it is asked for: the command under test is this binary, too, and must start fast.
var changing = sync.OnceValue(func() []change {
	return []change{
		{regexp.MustCompile(`setnxlock:[^ ]+:[0-9a-f]{32}`), "TOKEN"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "DATE"},
		{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?s\b|\b\d+m\b|\b\d+ days\b`), "SPAN"},
		{regexp.MustCompile(`[-._a-zA-Z0-9]+:\d+/nightly`), "HOST:PID/nightly"},
		{regexp.MustCompile(` +`), " "},
	}
})

type change struct {
	is   *regexp.Regexp
	with string
}

// masked is text without what is different each time, nor the width of its columns.
func masked(text string) string {
	for _, c := range changing() {
		text = c.is.ReplaceAllString(text, c.with)
	}
	return strings.TrimSpace(text)
}

// as is the pattern of what the page says: a line of three dots is any lines, or none, and three
// dots in a line are any text.
func as(says string) *regexp.Regexp {
	p := "\n" + regexp.QuoteMeta(says)
	p = strings.ReplaceAll(p, "\n"+regexp.QuoteMeta("..."), `(\n[^\n]*)*?`)
	p = strings.ReplaceAll(p, regexp.QuoteMeta("..."), `[^\n]*`)
	return regexp.MustCompile(`^` + p + `$`)
}
