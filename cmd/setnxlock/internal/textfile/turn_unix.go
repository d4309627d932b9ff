//go:build unix

package textfile

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	errLocked  = unix.EWOULDBLOCK
	unfollowed = unix.O_NOFOLLOW | unix.O_NONBLOCK
)

func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
