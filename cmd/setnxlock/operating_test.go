//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// Every command of docs/operating.md prints what the page says: each chapter on a new server.
func TestOperatingPage(t *testing.T) {
	t.Parallel()
	b := must.Get(os.ReadFile("../../docs/operating.md"))(t)
	commands := 0
	for _, chapter := range strings.Split(string(b), "\n## ")[1:] {
		title, _, _ := strings.Cut(chapter, "\n")
		all := blocksOf("console", "docs/operating.md, "+title, chapter)
		if len(all) == 0 {
			continue
		}
		address := realredis.Start(t)
		path := cliFor(t, address)
		for _, b := range all {
			commands += runBlock(t, b, address, ".", path)
		}
	}
	if commands < 35 {
		t.Errorf("%d commands on the page", commands)
	}
}

// cliFor is a PATH whose redis-cli asks the server at address.
func cliFor(t *testing.T, address string) string {
	cli := realredis.Need(t, "redis-cli", "redis-tools")
	bin := t.TempDir()
	_, port, _ := net.SplitHostPort(address)
	script := fmt.Sprintf("#!/bin/sh\nexec %s -p %s \"$@\"\n", cli, port)
	must.Do(t, os.WriteFile(filepath.Join(bin, "redis-cli"), []byte(script), 0o755))
	return "PATH=" + bin + ":" + os.Getenv("PATH")
}

// old.py and JL.java are the programs of docs/migration.md, with the real clients: they try to take
// report, or take it for three seconds and die.
var programs = map[string]string{
	"old.py": `
import os, sys, redis
lock = redis.StrictRedis(port=int(os.environ["PORT"])).lock("report", timeout=3)
try:
    if sys.argv[1] == "try":
        print("redis-py gets it:", lock.acquire(blocking=False))
    elif lock.acquire():
        print("redis-py holds report, and dies")
        sys.stdout.flush()
        os._exit(0)
except Exception as e:
    print("redis-py throws %s: %s" % (type(e).__name__, e))
`,
	"JL.java": `
public class JL {
	public static void main(String[] args) throws Exception {
		var jedis = new redis.clients.jedis.Jedis("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
		try {
			boolean tries = args[0].equals("try");
			boolean got = new com.github.jedis.lock.JedisLock(jedis, "report", tries ? 0 : 3000, 3000).acquire();
			System.out.println(tries ? "jedis-lock gets it: " + got : "jedis-lock holds report, and dies");
		} catch (Exception e) {
			System.out.println("jedis-lock throws " + e);
		}
		System.exit(0);
	}
}
`}

// Every command of docs/migration.md prints what the page says, with the real old clients, each block
// on a new server. make interop installs them, and asks for this.
func TestInteropMigrationPage(t *testing.T) {
	if os.Getenv("SETNXLOCK_INTEROP") == "" {
		t.Skip("not run: the real clients; make interop runs it")
	}
	clients := must.Get(filepath.Abs(root + "/compat/dialect/internal/interop/.clients"))(t)
	dir := t.TempDir()
	for name, text := range programs {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	commands := 0
	for _, b := range blocks(t, "console", "docs/migration.md") {
		address := realredis.Start(t)
		_, port, _ := net.SplitHostPort(address)
		commands += runBlock(t, b, address, dir, cliFor(t, address), "PORT="+port,
			"PYTHONPATH="+clients+"/redis-py-2.9.1", "PYTHONWARNINGS=ignore", "CLASSPATH="+clients+"/jedis-lock/*")
	}
	if commands < 20 {
		t.Errorf("%d commands on the page", commands)
	}
}

// changing is made when it is asked for: the command under test is this binary, too, and must start fast.
var changing = sync.OnceValue(func() []change {
	return []change{
		{regexp.MustCompile(`setnxlock:[^ ]+:[0-9a-f]{32}|\b[0-9a-f]{32}\b`), "TOKEN"},
		{regexp.MustCompile(`\b\d{10}\.\d+|\b\d{13}\b`), "STAMP"},
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
