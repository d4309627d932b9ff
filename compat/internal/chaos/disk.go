//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// A disk is a small file system of our own, which can be filled. It lives in a mount namespace of
// its own, so that nothing is left of it when its keeper ends, however that comes.
type disk struct {
	dir    string // as everybody sees it
	keeper *exec.Cmd
	stdin  io.Closer
}

// newDisk mounts one, where the machine lets us: as root, or in a user namespace.
func newDisk(at string) (*disk, error) {
	at, err := filepath.Abs(at)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	var tried []error
	for _, flag := range []string{"-m", "-rm"} {
		var said strings.Builder
		cmd := exec.Command("unshare", flag, "sh", "-c", `mount -t tmpfs -o size=96m none "$1" && echo ready && exec cat`, "sh", at)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Stderr = &said
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		d := &disk{dir: fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, at), keeper: cmd, stdin: in}
		if line, _ := bufio.NewReader(out).ReadString('\n'); line == "ready\n" {
			if err = os.WriteFile(filepath.Join(d.dir, "tried"), nil, 0o600); err == nil {
				return d, nil
			}
			tried = append(tried, err)
		}
		d.close()
		tried = append(tried, errors.New(strings.TrimSpace(said.String())))
	}
	return nil, errors.Join(tried...)
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves no room for a byte.
func (d *disk) fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; piece = piece[:len(piece)/2] {
		for err = nil; err == nil; {
			_, err = f.Write(piece)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

func (d *disk) free() error { return os.Remove(d.filler()) }

func (d *disk) close() {
	d.stdin.Close()
	d.keeper.Wait() //nolint:errcheck // it ends when its input does
}

// noDisk is why this machine has no disk that can be filled, found out once.
var noDisk = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return err
	}
	defer os.Remove(dir) //nolint:errcheck // an empty directory
	d, err := newDisk(dir)
	if err == nil {
		d.close()
	}
	return err
})
