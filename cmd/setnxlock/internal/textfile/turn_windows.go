package textfile

import (
	"os"

	"golang.org/x/sys/windows"
)

const (
	errLocked  = windows.ERROR_LOCK_VIOLATION
	unfollowed = 0 // a link needs rights there that no user has
)

func tryLock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
