package main

import (
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/textfile"
	"github.com/setnxlock/setnxlock/compat"
)

// measured does a run, and adds its metrics to --metrics-file.
func (a *app) measured(keys []string, f runFlags, run func() error) error {
	if f.metrics == "" {
		return run()
	}
	lock := f.handle.Key
	if f.adopt == "" {
		names := make([]string, len(keys))
		for i, k := range keys {
			names[i], _ = a.onServer(k) // run refuses an empty one
		}
		lock = strings.Join(names, " ")
	}
	m := textfile.Open(f.metrics, lock)
	a.observer = m.Observe
	err := run()
	status := 0
	if err != nil {
		status = a.explain(err).Status
	}
	if err := m.Close(status); err != nil {
		a.say("the metrics of this run are not all in the file: %v", err)
	}
	return err
}

// observeBoth calls one after the other; the first may be nil.
func observeBoth(one, other compat.Observer) compat.Observer {
	if one == nil {
		return other
	}
	return func(e compat.Event) { one(e); other(e) }
}
