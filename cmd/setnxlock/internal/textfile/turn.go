package textfile

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// lockFile waits until no other process has the file of this name locked, and locks it. Its end, too,
// unlocks it.
func lockFile(name string, patience time.Duration) (unlock func(), err error) {
	f, err := open(name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(patience); ; {
		if err = tryLock(f); err == nil {
			return func() { f.Close() }, nil //nolint:errcheck // nothing was written
		}
		if !errors.Is(err, errLocked) || !time.Now().Before(until) {
			f.Close() //nolint:errcheck // nothing was written
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// open opens a regular file, and makes it for this user alone: a user who can open it, can lock it. It
// follows no link and waits for no other end of a pipe.
func open(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, how|unfollowed, 0o600)
	if err != nil {
		return nil, err
	}
	if s, err := f.Stat(); err != nil || !s.Mode().IsRegular() {
		f.Close() //nolint:errcheck // nothing was written
		return nil, errors.Join(err, fmt.Errorf("%s: %w", name, errIrregular))
	}
	return f, nil
}
