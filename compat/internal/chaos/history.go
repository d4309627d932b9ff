//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"
)

// A line of a client's history. Moments are nanoseconds of the machine's clock, which all
// processes share.
type line struct {
	Op     string `json:"op"` // "got", "until", "end", "wait", "wrong", "bye"
	ID     string `json:"id,omitempty"`
	Client int    `json:"client"`
	Key    string `json:"key,omitempty"`
	At     int64  `json:"at"`
	Asked  int64  `json:"asked,omitempty"` // got: when the call began; end: the same of the call that gave it up
	Until  int64  `json:"until,omitempty"` // of the lease, at least
	Fence  int64  `json:"fence,omitempty"`
	Shared bool   `json:"shared,omitempty"` // got: a reader has it
	From   string `json:"from,omitempty"`   // got: the writer that it was until then
	How    string `json:"how,omitempty"`
	Err    string `json:"err,omitempty"`
}

// A diary is a client's history on disk. A line is written before the client goes on: a client that
// is killed has told everything that it believed.
type diary struct {
	mu     sync.Mutex
	f      *os.File
	client int
}

func (d *diary) write(l line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.Client = d.client
	if l.At == 0 {
		l.At = time.Now().UnixNano()
	}
	b, _ := json.Marshal(l)
	d.f.Write(append(b, '\n')) //nolint:errcheck // seen when it is read: "bye" is missing
}

// read returns what was written down; the last line may be torn.
func read(file string) ([]line, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []line
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l line
		if json.Unmarshal(in.Bytes(), &l) == nil {
			all = append(all, l)
		}
	}
	return all, in.Err()
}
