//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

	"github.com/gomodule/redigo/redis"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
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
		Cmds: commandsOfScripts(map[string]func(script, []string){
			"redis": script.redis, "quorum": script.quorum, "do": script.do, "exits": script.exits,
			"json": script.json, "aged": script.aged, "clients": script.clients, "setnames": script.setnames, "commands": script.commands,
			"pages": script.pages, "exercises": script.exercises,
		}),
	})
}

// commandsOfScripts has each command get the script as a test.
func commandsOfScripts(all map[string]func(script, []string)) map[string]func(*testscript.TestScript, bool, []string) {
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	for name, do := range all {
		cmds[name] = func(ts *testscript.TestScript, _ bool, args []string) { do(script{ts: ts}, args) }
	}
	return cmds
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
		text := must.Get(os.ReadFile(name))(t)
		needs := real.Match(text)
		if needs {
			realredis.Skipped(t, "redis-server, for "+name)
		}
		return needs
	})
}

// serverOf connects to the script's server.
func serverOf(s script) redis.Conn { return dial(s, s.ts.Getenv("SETNXLOCK_REDIS")) }

// commands N fails if the server has run more than N commands since CONFIG RESETSTAT, those inside
// scripts included.
func (s script) commands(args []string) {
	if ran := s.counted(`:calls=(\d+)`); ran > number(s, args[0]) {
		s.Fatalf("%d commands, want %s at most", ran, args[0])
	}
}

// setnames N demands that so many clients have told their names since CONFIG RESETSTAT, or tried to.
func (s script) setnames(args []string) {
	if tried := s.counted(`client\|setname:calls=(\d+),.*rejected_calls=(\d+)`); tried != number(s, args[0]) {
		s.Fatalf("%d clients tried, want %s", tried, args[0])
	}
}

// counted adds up what the server counts of its commands.
func (s script) counted(which string) (sum int) {
	stats := must.Get(redis.String(serverOf(s).Do("INFO", "commandstats")))(s)
	s.Logf("%s", stats)
	for _, m := range regexp.MustCompile(which).FindAllStringSubmatch(stats, -1) {
		for _, n := range m[1:] {
			sum += number(s, n)
		}
	}
	return sum
}

func number(t testing.TB, text string) int { return must.Get(strconv.Atoi(text))(t) }

// clients REGEXP waits until the server has a client with such a name.
func (s script) clients(args []string) {
	c, name := serverOf(s), regexp.MustCompile(`(?m) name=`+args[0]+` `)
	until(s, "a client is called "+args[0], func() bool {
		return name.MatchString(must.Get(redis.String(c.Do("CLIENT", "LIST")))(s))
	})
}

// aged KEY VALUE SECONDS puts a value on a key of a real server (5.0 or later) that nobody has used for so long.
func (s script) aged(args []string) {
	c := serverOf(s)
	must.Get(c.Do("SET", args[0], args[1]))(s)
	must.Get(c.Do("RESTORE", args[0], 0, must.Get(c.Do("DUMP", args[0]))(s), "REPLACE", "IDLETIME", args[2]))(s)
}

// redis VERSION starts an embedded server, "redis real [ARG...]" a real one, "redis loading" what is
// loading its data.
func (s script) redis(args []string) {
	address := ""
	switch args[0] {
	case "real":
		address = realredis.Start(s, args[1:]...)
	case "loading":
		address = startLoading(s, new(atomic.Bool), "")
	default:
		address = startServer(s, args[0])
	}
	s.ts.Setenv("SETNXLOCK_REDIS", address)
}

// quorum VERSION... starts servers, and gives their addresses to all commands: "down" is one that is not there.
func (s script) quorum(args []string) {
	s.ts.Setenv("SETNXLOCK_REDIS", startAll(s, strings.Join(args, ",")))
}

// do COMMAND ARG... sends one command to the server.
func (s script) do(args []string) {
	must.Get(serverOf(s).Do(args[0], redis.Args{}.AddFlat(args[1:])...))(s)
}

// exits STATUS COMMAND ARG... demands that status.
func (s script) exits(args []string) {
	got := enough(args[2:], func(args2 []string) int {
		var status *exec.ExitError
		err := s.ts.Exec(args[1], args2...)
		if errors.As(err, &status) {
			return status.ExitCode()
		}
		must.Do(s, err)
		return 0
	})
	if got != number(s, args[0]) {
		s.Fatalf("exit status %d, want %s", got, args[0])
	}
}

// json FILE demands that it is JSON.
func (s script) json(args []string) {
	if !json.Valid([]byte(s.ts.ReadFile(args[0]))) {
		s.Fatalf("%s is not JSON", args[0])
	}
}

// pages LIST DIR demands a page of a site for each race that race list --json
// told of, and a link to it from the index.
func (s script) pages(args []string) {
	var list struct{ Races []struct{ Name string } }
	must.Do(s, json.Unmarshal([]byte(s.ts.ReadFile(args[0])), &list))
	races := list.Races
	if len(races) < 40 {
		s.Fatalf("%d races", len(races))
	}
	index := s.ts.ReadFile(args[1] + "/index.html")
	for _, r := range races {
		file := strings.NewReplacer("/", "-", ".", "-").Replace(r.Name) + ".html"
		if !strings.Contains(index, `href="`+file+`"`) || !strings.Contains(index, r.Name) {
			s.Fatalf("the index does not link to %s", file)
		}
		if page := s.ts.ReadFile(args[1] + "/" + file); !strings.Contains(page, r.Name) {
			s.Fatalf("%s is not about %s", file, r.Name)
		}
	}
}

// exercises gives every exercise its answer, as words and as a whole line.
func (s script) exercises([]string) {
	for _, r := range catalogue.All() {
		if r.Exercise == nil {
			continue
		}
		for _, answer := range append(r.Exercise.Answers, "tx:classic 2.4 2x2 : "+r.Exercise.Answers[0]) {
			must.Do(s, s.ts.Exec("setnxlock", "race", "replay", "--exercise", r.Name, answer))
		}
	}
}

// A script is one of testdata, as helpers of tests want it.
type script struct {
	testing.TB // none: the methods below are all that they call
	ts         *testscript.TestScript
}

func (s script) Helper()                           {}
func (s script) Cleanup(f func())                  { s.ts.Defer(f) }
func (s script) TempDir() string                   { return s.ts.Getenv("WORK") }
func (s script) Fatal(args ...any)                 { s.Fatalf("%s", fmt.Sprint(args...)) }
func (s script) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }
func (s script) Logf(format string, args ...any)   { s.ts.Logf(format, args...) }
