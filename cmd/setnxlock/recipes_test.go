//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A recipeTest tries a recipe of docs/operating.md: it has a server, and a folder with the programs of the recipe.
type recipeTest struct {
	*testing.T
	address, dir string
}

func newRecipeTest(t *testing.T) *recipeTest {
	t.Parallel()
	k := &recipeTest{t, realredis.Start(t), t.TempDir()}
	k.writes("report.sh", "#!/bin/sh\necho the report is written\n")
	return k
}

// writes puts a program into the folder.
func (k *recipeTest) writes(name, text string) {
	k.Helper()
	must.Do(k.T, os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o755))
}

// read is a file of the folder; "" if there is none.
func (k *recipeTest) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(k.dir, name))
	return string(b)
}

// command is a program in the folder, which it finds in PATH too, with an environment of its own as cron's is.
func (k *recipeTest) command(env []string, words ...string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = k.dir
	cmd.Env = append([]string{"HOME=" + k.dir, "GORACE=" + noRaceSleep}, env...)
	cmd.Env = append(append(cmd.Env, "PATH="+k.dir+":"+os.Getenv("PATH")), using(k.address)...)
	return cmd
}

// runs runs a program, and demands what it says and its status.
func (k *recipeTest) runs(cmd *exec.Cmd, says string, status int) {
	k.Helper()
	out, errs, got := finish(k, cmd)
	if out+errs != says || got != status {
		k.Errorf("%q says %q with status %d, want %q, %d", cmd.Args, out+errs, got, says, status)
	}
}

// runsOnce runs a program twice: the first writes the report, the second finds that done and ends with a status.
func (k *recipeTest) runsOnce(env, words []string, status int) (second *exec.Cmd) {
	k.Helper()
	k.runs(k.command(env, words...), "the report is written\n", 0)
	second = k.command(env, words...)
	k.runs(second, "", status)
	return second
}

// A recipe is a block of the chapter: its language, or a file's name.
func recipe(t *testing.T, what string) string {
	t.Helper()
	b := must.Get(os.ReadFile("../../docs/operating.md"))(t)
	_, chapter, _ := strings.Cut(string(b), "\n## Recipes\n")
	m := regexp.MustCompile("(?ms)^```(?:[a-z]+ )?" + regexp.QuoteMeta(what) + "\n(.*?)^```$").FindStringSubmatch(chapter)
	if m == nil {
		t.Fatalf("no recipe %s", what)
	}
	return m[1]
}

// list is a list of words as JSON, behind a name.
func list(t *testing.T, name, text string) (words []string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *` + name + ` *(\[.*\])$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in %s", name, text)
	}
	must.Do(t, json.Unmarshal([]byte(m[1]), &words))
	return words
}

// pathsOf returns words with the paths of the page as they are in the test.
func (k *recipeTest) pathsOf(words []string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "/opt/"):
			words[i] = filepath.Join(k.dir, filepath.Base(w))
		case strings.HasPrefix(w, "/usr/local/bin/"):
			words[i] = must.Get(exec.LookPath(filepath.Base(w)))(k.T)
		}
	}
	return words
}

// The recipes of docs/operating.md do what the page says.
func TestRecipesDoWhatThePageSays(t *testing.T) {
	t.Parallel()
	t.Run("crontab", func(t *testing.T) {
		k := newRecipeTest(t)
		line := regexp.MustCompile(`^(?:[0-9*,/-]+ ){5} *([^ ].*)$`)
		var env []string
		jobs := 0
		for text := range strings.Lines(recipe(t, "crontab")) {
			text = strings.TrimSpace(text)
			m := line.FindStringSubmatch(text)
			switch {
			case text == "":
			case m != nil && !strings.Contains(text, "%"): // which cron takes for the end of a line
				jobs++
				k.runsOnce(env, []string{"/bin/sh", "-c", m[1]}, 75)
			case regexp.MustCompile(`^[A-Z_]+=[^ ]+$`).MatchString(text):
				env = append(env, text)
			default:
				t.Errorf("no line of a crontab: %q", text)
			}
		}
		if jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
	t.Run("systemd", func(t *testing.T) {
		k := newRecipeTest(t)
		u := k.unit("nightly-report.service")
		u.ends(t, k.runsOnce(u["Environment"], u["ExecStart"], 75))

		k.writes("report.sh", "#!/bin/sh\necho begun\nexec sleep 600\n")
		ask(t, k.address, "FLUSHALL")
		stopped := k.command(u["Environment"], u["ExecStart"]...)
		out := k.starts(stopped)
		until(t, "the job runs", func() bool { return out.String() == "begun\n" })
		must.Do(t, stopped.Process.Signal(syscall.SIGTERM)) // to it alone, as with KillMode=mixed
		stopped.Wait()                                      //nolint:errcheck // its status is looked at
		u.ends(t, stopped)
		if k.unit("nightly-report.timer")["Persistent"][0] != "false" {
			t.Error("a machine that was off makes up for it")
		}
	})
	t.Run("an election", func(t *testing.T) {
		k := newRecipeTest(t)
		k.writes("serve", "#!/bin/sh\necho leads\nexec sleep 600\n")
		u := k.unit("leader.service")
		var terms [2]*exec.Cmd
		var outs [2]*syncBuffer
		for i := range terms {
			terms[i] = k.command(append(u["Environment"], "SETNXLOCK_TTL=3"), u["ExecStart"]...)
			outs[i] = k.starts(terms[i])
			if i == 0 {
				until(t, "the first leads", func() bool { return outs[0].String() == "leads\n" })
			}
		}
		until(t, "the second waits", func() bool { return strings.Contains(outs[1].String(), "waiting for") })
		if strings.Contains(outs[1].String(), "leads") {
			t.Error("two lead")
		}
		must.Do(t, terms[0].Process.Signal(syscall.SIGTERM))
		terms[0].Wait() //nolint:errcheck // its status is looked at
		u.ends(t, terms[0])
		until(t, "the second leads", func() bool { return strings.HasSuffix(outs[1].String(), "leads\n") })
		ask(t, k.address, "DEL", "scheduler")
		terms[1].Wait() //nolint:errcheck // likewise
		if got := terms[1].ProcessState.ExitCode(); got != statusLost || u["Restart"][0] != "always" {
			t.Errorf("status %d", got)
		}
	})
	t.Run("Docker", func(t *testing.T) {
		k := newRecipeTest(t)
		image := recipe(t, "dockerfile")
		words := k.pathsOf(append(list(t, "ENTRYPOINT", image), list(t, "CMD", image)...))
		k.runsOnce(nil, words, 75)
		run := strings.Fields(recipe(t, "sh"))
		if !slices.Contains(run, "--init") || !slices.Contains(run, "-e") || run[len(run)-1] != "report" {
			t.Errorf("%q", run)
		}
	})
	t.Run("Kubernetes", func(t *testing.T) {
		k := newRecipeTest(t)
		job := recipe(t, "yaml")
		words := k.pathsOf(append(list(t, "command:", job), list(t, "args:", job)...))
		k.runsOnce(nil, words, 0)
		late := must.Get(strconv.Atoi(regexp.MustCompile(`startingDeadlineSeconds: (\d+)`).FindStringSubmatch(job)[1]))(t)
		hold := must.Get(duration.Parse(words[slices.Index(words, "--hold")+1]))(t)
		if time.Duration(late)*time.Second >= hold {
			t.Errorf("a pod may begin after %d s, and the lock is held for %v", late, hold)
		}
	})
	t.Run("a pipeline", func(t *testing.T) {
		k := newRecipeTest(t)
		k.writes("backup.sh", recipe(t, "backup.sh"))
		zip := must.Get(exec.LookPath("gzip"))(t)
		k.writes("gzip", "#!/bin/sh\nsetnxlock inspect backup | grep '^status' >under\nexec "+zip+" \"$@\"\n")
		k.writes("pg_dump", "#!/bin/sh\necho \"all of $1\"\n")
		backup := func(status int) {
			t.Helper()
			k.runs(k.command(nil, "sh", "backup.sh"), "", status)
			if out := must.Get(k.command(nil, zip, "-dc", "app.sql.gz").Output())(t); string(out) != "all of app\n" {
				t.Errorf("the dump is %q", out)
			}
		}
		backup(0)
		if k.read("under") != "status  held\n" {
			t.Errorf("gzip ran under %q", k.read("under"))
		}
		k.writes("pg_dump", "#!/bin/sh\necho half of it\nexit 3\n")
		backup(3)
	})
	t.Run("hooks", func(t *testing.T) {
		k := newRecipeTest(t)
		k.writes("deploy.sh", recipe(t, "deploy.sh"))
		k.writes("locked.sh", recipe(t, "locked.sh"))
		deploys := func(before, work, says, did string) {
			t.Helper()
			k.writes("before.sh", "#!/bin/sh\necho before >>did\n"+before+"\n")
			k.writes("work.sh", "#!/bin/sh\necho work >>did\n"+work+"\n")
			k.writes("after.sh", "#!/bin/sh\necho after >>did\n")
			must.Do(t, os.WriteFile(filepath.Join(k.dir, "did"), nil, 0o600))
			out, err := k.command([]string{"SETNXLOCK_TTL=3"}, "./locked.sh").CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), says+"\n") || strings.Join(strings.Fields(k.read("did")), " ") != did {
				t.Errorf("%v: it says %q, want %q; it did %q, want %q", err, out, says, k.read("did"), did)
			}
		}
		deploys("", "", "deployed", "before work after")
		deploys("", "exit 7", "it failed", "before work after")
		deploys("exit 7", "", "it failed", "before")
		deploys("", "setnxlock release deploy --force --yes; exec sleep 600", "the lock was lost: look at what was deployed", "before work after")
		ask(t, k.address, "SETEX", "deploy", 600, "another machine's")
		deploys("", "", "another machine deploys", "")
	})
}

// A unit is the settings of one of systemd's, Environment and ExecStart as words.
type unit map[string][]string

func (k *recipeTest) unit(name string) unit {
	k.Helper()
	text := recipe(k.T, name)
	k.verified(name, text)
	u := unit{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			u[key] = strings.Fields(value)
		}
	}
	u["ExecStart"] = k.pathsOf(u["ExecStart"])
	return u
}

// verified has systemd read a unit, where it is installed.
func (k *recipeTest) verified(name, text string) {
	k.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // it is looked at where there is one
	}
	text = regexp.MustCompile(`(?m)^ExecStart=.*$`).ReplaceAllStringFunc(text, func(line string) string {
		words := strings.Fields(strings.TrimPrefix(line, "ExecStart="))
		return "ExecStart=" + strings.Join(k.pathsOf(words), " ")
	})
	must.Do(k.T, os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600))
	if strings.HasSuffix(name, ".timer") {
		must.Do(k.T, os.WriteFile(filepath.Join(k.dir, strings.TrimSuffix(name, ".timer")+".service"), []byte("[Service]\nExecStart=/bin/true\n"), 0o600))
	}
	out, err := k.command(nil, analyze, "verify", "--man=no", filepath.Join(k.dir, name)).CombinedOutput()
	for line := range strings.Lines(string(out)) { // it tells of the machine's own units, too
		if strings.Contains(line, name) {
			k.Errorf("%s: %v: %s", name, err, line)
		}
	}
}

// ends demands a status that the unit does not take for a failure.
func (u unit) ends(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); !slices.Contains(u["SuccessExitStatus"], got) {
		t.Errorf("it ends with %s, and %q are no failures", got, u["SuccessExitStatus"])
	}
}

// starts starts a program that the test's end kills, and returns what it says.
func (k *recipeTest) starts(cmd *exec.Cmd) *syncBuffer {
	k.Helper()
	var out syncBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for what has its output still
	must.Do(k.T, cmd.Start())
	k.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) //nolint:errcheck // it may have ended
	return &out
}
