package textfile

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// turn waits until no other process has the file of this name locked, and locks it. Its end, too,
// unlocks it.
func turn(name string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
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
