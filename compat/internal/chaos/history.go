//go:build linux

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/setnxlock/setnxlock/compat/internal/history"
)

// What a client's history has beside the events of its holds. Moments are nanoseconds of the machine's clock, which all
// processes share.
const (
	waited history.Op = "wait"  // a call of Lock for Key, from Asked on, has returned
	wrong  history.Op = "wrong" // Text, which nothing explains
	bye    history.Op = "bye"   // the client has ended well
)

// A diary is a client's history on disk. A line is written before the client goes on: a client that
// is killed has told everything that it believed.
type diary struct {
	mu     sync.Mutex
	f      *os.File
	client int
}

func (d *diary) write(e history.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.By, e.At = fmt.Sprint(d.client), cmp.Or(e.At, now())
	b, _ := json.Marshal(e)
	d.f.Write(append(b, '\n')) //nolint:errcheck // seen when it is read: "bye" is missing
}

// read returns what was written down; the last line may be torn.
func read(file string) ([]history.Event, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []history.Event
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e history.Event
		if json.Unmarshal(in.Bytes(), &e) == nil {
			all = append(all, e)
		}
	}
	return all, in.Err()
}
