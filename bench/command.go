package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Command is what setnxlock, the command, costs as a process.
type Command struct {
	Err      string    `json:"error,omitempty"` // why it was not measured
	Runs     []Process `json:"runs,omitempty"`
	Resident int       `json:"resident_kb,omitempty"` // at most, of a run that waits for a lock; 0: not known on this system
	Size     int64     `json:"bytes,omitempty"`       // of the file, as it is released
}

// Process is a command line, run whole from its start to its end, again and again.
type Process struct {
	Name string        `json:"name"`
	Wall time.Duration `json:"wall_ns"` // p50
	CPU  time.Duration `json:"cpu_ns"`  // mean, the kernel's work for it included
}

// over is how much longer one takes than redis-cli.
func (c *Command) over(name string) (ratio float64, ok bool) {
	var wall, base time.Duration
	for _, p := range c.Runs {
		if p.Name == name {
			wall = p.Wall
		}
		if p.Name == redisCLI {
			base = p.Wall
		}
	}
	return wall.Seconds() / base.Seconds(), wall > 0 && base > 0
}

// The command lines that take turns.
const (
	redisCLI   = "redis-cli PING"
	runVersion = "version"
	runNamed   = "run, a named lock"
	runAuto    = "run, auto"
)

// command measures it beside redis-cli, which connects, asks once and ends.
func command(ctx context.Context, b *bench, s *server, m *Measured) error {
	c := &Command{}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		c.Err, m.Command = "there is no redis-cli on the PATH", c
		return nil
	}
	dir, err := os.MkdirTemp("", "setnxlock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "setnxlock")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/setnxlock")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0") // as make dist
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	c.Size = info.Size()
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	on := []string{file, "--redis", s.Address, "--prefix", prefix, "run"}
	lines := []struct {
		name string
		args []string
	}{
		{redisCLI, []string{cli, "-h", host, "-p", port, "PING"}},
		{runVersion, []string{file, "version"}},
		{runNamed, append(slices.Clone(on), "--algorithm", s.name, "named", "--", "true")},
		{runAuto, append(slices.Clone(on), "auto", "--", "true")},
	}
	env := append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache")) // what the server answered is remembered there
	walls, cpus := make([][]time.Duration, len(lines)), make([]time.Duration, len(lines))
	turns := b.turns(300)
	for n := -2; n < turns; n++ { // the first two turns warm up
		b.progress(float64(max(n, 0))/float64(turns), "whole processes")
		for i, line := range lines {
			cmd := exec.CommandContext(ctx, line.args[0], line.args[1:]...)
			cmd.Env = env
			began := time.Now()
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s: %w", line.name, err)
			}
			if wall := time.Since(began); n >= 0 {
				walls[i] = append(walls[i], wall)
				cpus[i] += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
		}
	}
	for i, line := range lines {
		slices.Sort(walls[i])
		c.Runs = append(c.Runs, Process{line.name, walls[i][turns/2], cpus[i] / time.Duration(turns)})
	}
	if c.Resident, err = resident(ctx, on, env); err != nil {
		return err
	}
	m.Command = c
	return nil
}

// resident is the memory of a run that waits for a lock that another has, in kB.
func resident(ctx context.Context, on, env []string) (most int, err error) {
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, on[0], append(slices.Clone(on[1:]), args...)...)
		cmd.Env = env
		return cmd
	}
	holder := run("held", "--", "cat")
	in, err := holder.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := holder.Start(); err != nil {
		return 0, err
	}
	defer func() {
		in.Close()
		if ended := holder.Wait(); err == nil {
			err = ended
		}
	}()
	if _, err := io.WriteString(in, "held\n"); err != nil {
		return 0, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return 0, fmt.Errorf("the lock was not taken: %w", err)
	}
	waiter := run("--wait", "2s", "held", "--", "true")
	if err := waiter.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- waiter.Wait() }()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			status, _ := os.ReadFile("/proc/" + strconv.Itoa(waiter.Process.Pid) + "/status") // gone, or another system: it says nothing
			if m := highWater.FindSubmatch(status); m != nil {
				n, _ := strconv.Atoi(string(m[1]))
				most = max(most, n)
			}
		case err := <-ended:
			var busy *exec.ExitError
			if !errors.As(err, &busy) || busy.ExitCode() != 75 {
				return 0, fmt.Errorf("the wait for a lock that is held ends with %v", err)
			}
			return most, nil
		}
	}
}

// highWater is the most memory that a process had resident, in kB, as Linux tells it.
var highWater = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB`)
