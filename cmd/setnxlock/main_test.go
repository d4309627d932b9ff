//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// TestMain makes this test binary answer to three names on PATH, in scripts
// and in exec.Command.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", noRaceSleep)       //nolint:errcheck // its value can't be wrong
	if os.Getenv("XDG_CACHE_HOME") == "" { // the user's own cache stays as it is
		os.Setenv("XDG_CACHE_HOME", os.DevNull) //nolint:errcheck // its value can't be wrong
	}
	testscript.Main(attentive{m}, map[string]func(){
		"setnxlock": patient,
		"puppet":    puppet,
		"addone":    addone,
	})
}

// patience is how long tests wait for what others are about to do.
const patience = time.Minute

// patient is the command, which waits for servers as long as the tests do.
func patient() {
	defaultTimeout = patience
	main()
}

// attentive are the tests, with commands that hear signals although the tests were started
// to ignore them (nohup, a background job). More of them run at a time than there are processors:
// they wait for servers, locks and one another's ends.
type attentive struct{ *testing.M }

func (m attentive) Run() int {
	flag.Parse()
	flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) //nolint:errcheck // a flag that exists
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // nobody reads it: that is to ignore it as well
		}
	}
	return m.M.Run()
}

// noRaceSleep: with -race a process sleeps a second before it exits, and here
// are a thousand of them.
const noRaceSleep = "atexit_sleep_ms=0"

// puppet is a child that does what words on its stdin say, and says on stdout
// what it has done and which signals it got.
func puppet() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	go func() {
		for s := range c {
			fmt.Println("got", s)
		}
	}()
	fmt.Println("ready", os.Getpid(), os.Getenv("SETNXLOCK_TOKEN"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, arg, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "exit":
			n, _ := strconv.Atoi(arg)
			os.Exit(n)
		case "ignore": // SIGTERM
			signal.Ignore(syscall.SIGTERM)
		case "catch": // SIGTERM, and end well
			term := make(chan os.Signal, 1)
			signal.Notify(term, syscall.SIGTERM)
			go func() {
				<-term
				fmt.Println("got terminated")
				os.Exit(0)
			}()
		case "fork": // a grandchild in the same group, which ignores SIGTERM
			cmd := exec.Command("sh", "-c", `trap "" TERM; echo forked; exec sleep 1000`)
			cmd.Stdout = os.Stdout
			cmd.Start() //nolint:errcheck
		}
		fmt.Println("did", in.Text())
	}
	select {}
}

// addone reads a number from a file, thinks, and writes it back one higher: what
// eight of them must not do at once.
func addone() {
	b, _ := os.ReadFile(os.Args[1])
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	for range 100 {
		os.Getppid() // thinks
	}
	if err := os.WriteFile(os.Args[1], []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		os.Exit(1)
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Files:         scripts(t),
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", noRaceSleep)
			e.Setenv("XDG_CACHE_HOME", os.DevNull) // no script's answers are another's
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"redis":  scriptRedis,
			"quorum": scriptQuorum,
			"do":     scriptDo,
			"exits":  scriptExits,
			"json":   scriptJSON,
			"aged":   scriptAged,

			"clients":  scriptClients,
			"setnames": scriptSetnames,
			"pages":    scriptPages,

			"commands": scriptCommands,

			"exercises": scriptExercises,
		},
	})
}

// scripts are those of dir that the machine can run.
func scripts(t *testing.T) []string {
	all, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	if !realredis.Embedded() {
		return all
	}
	real := regexp.MustCompile(`(?m)^(redis|quorum)\b.* real\b`)
	return slices.DeleteFunc(all, func(name string) bool {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		needs := real.Match(text)
		if needs {
			realredis.Skipped(t, "redis-server, for "+name)
		}
		return needs
	})
}

// commands N fails if the server has run more than N commands since CONFIG RESETSTAT, those inside
// scripts included.
func scriptCommands(ts *testscript.TestScript, _ bool, args []string) {
	most, err := strconv.Atoi(args[0])
	ts.Check(err)
	c, err := redis.Dial("tcp", ts.Getenv("SETNXLOCK_REDIS"))
	ts.Check(err)
	defer c.Close()
	stats, err := redis.String(c.Do("INFO", "commandstats"))
	ts.Check(err)
	ran := 0
	for line := range strings.Lines(stats) {
		if _, calls, ok := strings.Cut(line, ":calls="); ok {
			calls, _, _ = strings.Cut(calls, ",")
			n, err := strconv.Atoi(calls)
			ts.Check(err)
			ran += n
		}
	}
	ts.Logf("%d commands:\n%s", ran, stats)
	if ran > most {
		ts.Fatalf("%d commands, want %d at most", ran, most)
	}
}

// startLoading starts what answers each command as a server does that is loading its data, until it
// is loaded: then its connections are those of the server at address.
func startLoading(t starter, loaded *atomic.Bool, address string) string {
	return serve(t, func(c net.Conn) {
		if loaded.Load() {
			relay(c, address, func([]byte) {})
			return
		}
		for lines := bufio.NewScanner(c); lines.Scan(); {
			n, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "*"))
			if err != nil {
				return
			}
			for range 2 * n { // each word behind its length
				lines.Scan()
			}
			if _, err := fmt.Fprint(c, "-LOADING Redis is loading the dataset in memory\r\n"); err != nil {
				return
			}
		}
	})
}

// serve returns an address whose connections each serves, and closes them then.
func serve(t starter, each func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	deferTo(t, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}

// relay joins a client to the server at address until either goes. What the client asks is passed on
// after before, which gets it.
func relay(client net.Conn, address string, before func(asked []byte)) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		io.Copy(client, server) //nolint:errcheck // one of them ends first
	}()
	for buf := make([]byte, 1<<16); ; {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		before(buf[:n])
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// redis VERSION starts an embedded server, "redis real [ARG...]" a real one, "redis loading" what is
// loading its data.
func scriptRedis(ts *testscript.TestScript, neg bool, args []string) {
	var address string
	switch args[0] {
	case "real":
		address = startReal(ts, args[1:]...)
	case "loading":
		address = startLoading(ts, new(atomic.Bool), "")
	default:
		address = startOld(ts, args[0])
	}
	ts.Setenv("SETNXLOCK_REDIS", address)
}

// quorum VERSION... starts servers as redis does, and gives their addresses to
// all commands: "down" is one that is not there.
func scriptQuorum(ts *testscript.TestScript, neg bool, args []string) {
	var all []string
	for _, v := range args {
		switch v {
		case "real":
			all = append(all, startReal(ts))
		case "down":
			all = append(all, "127.0.0.1:1")
		default:
			all = append(all, startOld(ts, v))
		}
	}
	ts.Setenv("SETNXLOCK_REDIS", strings.Join(all, ","))
}

// do COMMAND ARG... sends one command to the server.
func scriptDo(ts *testscript.TestScript, neg bool, args []string) {
	c, err := redis.Dial("tcp", ts.Getenv("SETNXLOCK_REDIS"))
	ts.Check(err)
	defer c.Close()
	rest := make([]any, len(args)-1)
	for i, a := range args[1:] {
		rest[i] = a
	}
	_, err = c.Do(args[0], rest...)
	ts.Check(err)
}

// exits STATUS COMMAND ARG... demands that status.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var status *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &status) {
		got = status.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// json FILE demands that it is JSON.
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if !json.Valid([]byte(ts.ReadFile(args[0]))) {
		ts.Fatalf("%s is not JSON", args[0])
	}
}

// pages LIST DIR demands a page of a site for each race that race list --json
// told of, and a link to it from the index.
func scriptPages(ts *testscript.TestScript, neg bool, args []string) {
	var list struct{ Races []struct{ Name string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &list))
	races := list.Races
	if len(races) < 40 {
		ts.Fatalf("%d races", len(races))
	}
	index := ts.ReadFile(args[1] + "/index.html")
	for _, r := range races {
		file := strings.NewReplacer("/", "-", ".", "-").Replace(r.Name) + ".html"
		if !strings.Contains(index, `href="`+file+`"`) || !strings.Contains(index, r.Name) {
			ts.Fatalf("the index does not link to %s", file)
		}
		if page := ts.ReadFile(args[1] + "/" + file); !strings.Contains(page, r.Name) {
			ts.Fatalf("%s is not about %s", file, r.Name)
		}
	}
}

// exercises gives every exercise its answer, as words and as a whole line.
func scriptExercises(ts *testscript.TestScript, neg bool, args []string) {
	for _, s := range catalogue.All() {
		if s.Exercise == nil {
			continue
		}
		for _, answer := range append(s.Exercise.Answers, "tx:classic 2.4 2x2 : "+s.Exercise.Answers[0]) {
			ts.Check(ts.Exec("setnxlock", "race", "replay", "--exercise", s.Name, answer))
		}
	}
}

// A starter is a test or a script.
type starter interface {
	Fatalf(format string, args ...any)
}

func deferTo(t starter, f func()) {
	switch t := t.(type) {
	case *testscript.TestScript:
		t.Defer(f)
	case testing.TB:
		t.Cleanup(f)
	}
}

func startOld(t starter, version string) (address string) {
	address, _ = startStoppable(t, version)
	return address
}

func startStoppable(t starter, version string) (address string, stop func()) {
	s, err := oldredis.New(version, oldredis.Options{Clock: clock.New()})
	if err != nil {
		t.Fatalf("%v", err)
	}
	stop = func() { s.Close() }
	deferTo(t, stop)
	a, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return a.String(), stop
}

// startReal starts the machine's redis-server.
func startReal(t starter, args ...string) (address string) {
	if s, ok := t.(*testscript.TestScript); ok {
		return realredis.Start(inScript{s: s}, args...)
	}
	return realredis.Start(t.(testing.TB), args...)
}

// inScript is a script as realredis wants a test to be.
type inScript struct {
	testing.TB // none: the methods below are all that it calls
	s          *testscript.TestScript
}

func (i inScript) Helper()           {}
func (i inScript) Cleanup(f func())  { i.s.Defer(f) }
func (i inScript) TempDir() string   { return i.s.Getenv("WORK") }
func (i inScript) Fatal(args ...any) { i.s.Fatalf("%s", fmt.Sprint(args...)) }

func (i inScript) Fatalf(format string, args ...any) { i.s.Fatalf(format, args...) }

// until polls for a condition.
func until(t starter, what string, ok func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
