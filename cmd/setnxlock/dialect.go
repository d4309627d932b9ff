package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// dialects lists the values of --dialect for ways to write times.
func dialects() []string { return []string{"seconds", "float", "millis", "nanos"} }

// clients lists the values of --dialect for clients in the field.
func clients() []string {
	var list []string
	for _, f := range dialect.All() {
		list = append(list, f.Name)
	}
	return list
}

// dialectValue returns the dialect of times of --dialect, or float's for a client of tokens.
func (a *app) dialectValue() (getsetlock.Dialect, error) {
	if a.dialect == "" {
		return getsetlock.Float, nil
	}
	if d, ok := getsetlock.Dialects()[a.dialect]; ok {
		return d, nil
	}
	f, err := dialect.Lookup(a.dialect)
	switch {
	case errors.Is(err, dialect.ErrUnsupported):
		return getsetlock.Dialect{}, exit.Because(exit.Wrong, err, "")
	case err != nil:
		return getsetlock.Dialect{}, exit.Because(exit.Wrong, fmt.Errorf("there is no dialect %q", a.dialect),
			"it is one of "+strings.Join(dialects(), ", ")+", or a client: "+sentence(err))
	case f.Kind.Timed():
		return getsetlock.Named(a.dialect)
	}
	return getsetlock.Float, nil
}

// fleet returns the locks of a client of tokens, or of times on a second key; none for any other dialect.
func (a *app) fleet() ([]candidate, error) {
	f, err := dialect.Lookup(a.dialect)
	if err != nil || f.Kind.Timed() {
		return nil, nil
	}
	family, _, _ := strings.Cut(a.algorithm, ":")
	if f.Kind == dialect.TwoKeys {
		if family != "auto" && family != "getset" {
			return nil, exit.Because(exit.Wrong, fmt.Errorf("--algorithm does not go with %s, whose locks stand on two keys", f.Name), "leave --algorithm out")
		}
		return []candidate{{name: f.Name, Algorithm: getsetlock.TwoKeys{Fence: a.fence}}}, nil
	}
	switch family {
	case "set":
		if f.Signal != "" {
			return nil, exit.Because(exit.Wrong, fmt.Errorf("the waiters of %s wait on the list %s, to which a %s lock pushes nothing", f.Name, f.Signal, family), "leave --algorithm out")
		}
		return nil, nil // writes tokens as they do, as short a way as there is
	case "auto", "tx":
	default:
		return nil, exit.Because(exit.Wrong, fmt.Errorf("the clients of %s write tokens, and a %s lock does not", f.Name, family), "leave --algorithm out")
	}
	lock, err := txlock.Named(a.dialect)
	if err != nil {
		return nil, err
	}
	lock.Fence = a.fence
	list := []candidate{{name: f.Name, Algorithm: lock}}
	if lock.Millis { // and on servers that don't count in them
		lock.Millis = false
		list = append(list, candidate{name: f.Name, Algorithm: lock})
	}
	return list, nil
}
