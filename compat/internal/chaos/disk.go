//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// mountDisk mounts a small file system in this program's mount namespace, for fillDisk.
func mountDisk(at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	return syscall.Mount("none", at, "tmpfs", 0, "size=96m")
}

// fillDisk leaves no room for a byte on the disk at dir. The returned function makes room again.
func fillDisk(dir string) (free func() error, err error) {
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; piece = piece[:len(piece)/2] {
		for err = nil; err == nil; {
			_, err = f.Write(piece)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return nil, err
		}
	}
	return func() error { return os.Remove(f.Name()) }, nil
}
