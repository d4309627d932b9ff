package promises_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

// strange are answers that are none to most commands.
var strange = []any{nil, int64(7), float64(1), []any{}, []any{nil, nil}, "WEIRD"}

// possible reports whether a server may give the n-th of them to a command: it can't be told from the truth.
func possible(n int, command string) bool {
	return slices.Contains(map[string][]int{
		"GET": {0, 5}, "GETSET": {0, 5}, "ZSCORE": {0}, "SET": {0}, "EXEC": {0}, "EVAL": {0, 1, 4}, "EVALSHA": {0, 1, 4},
		"DEL": {1}, "ZREM": {1}, "LREM": {1}, "SORT": {3, 4},
	}[command], n)
}

// An answer that no server gives to a command, which did not run, is taken neither for the good one nor for a refusal.
func TestStrangeAnswers(t *testing.T) {
	kinds := append(all(false), one("rwlock.Read", "2.4", rwlock.Read{}), one("semaphore of 3", "2.2", semaphore.Lock{Options: semaphore.Options{N: 3}}),
		one("set:ifeq", "8.6", setlock.IfEq{}), one("set:ifeq of Valkey", "valkey-9.1", setlock.IfEq{}))
	stride := 3
	if whole {
		stride = 1
	}
	eachKind(t, kinds, func(t *testing.T, k kind) {
		for i, reply := range strange {
			for n, reached := 1+(i+len(t.Name()))%stride, true; reached && n < 60; n += stride {
				inWorld(t, k, func(w *world) { reached = w.answered(i, reply, n) })
			}
		}
	})
}

// answered has the n-th command of a lock's life answered with a strange reply.
func (w *world) answered(i int, reply any, n int) (reached bool) {
	mine, net := w.client(compat.Options{NoRenew: true})
	other, _ := w.client(compat.Options{NoRenew: true})
	w.try(mine, 10*time.Second).Release(background)  //nolint:errcheck // what follows shows it
	w.try(other, 10*time.Second).Release(background) //nolint:errcheck // likewise
	pass(time.Second)
	net.Clear()
	net.Expect(faulty.Answer(reply).At(n))
	wrong := func(what string, err error) {
		name := net.Sent()[n-1].Name
		if strings.HasPrefix(w.kind.name, "set:ifeq") && name == "SET" {
			name = "GETSET" // with GET behind it: the value before
		}
		if !possible(i, name) && name != "MSETNX" && name != "GETSET" { // parts of a transaction that must not be halved
			w.Errorf("%T(%v) to %s: %s, %v", reply, reply, name, what, err)
		}
	}
	free := func() bool {
		s, err := other.Inspect(background, w.kind.key)
		return err == nil && (s.Status == protocol.StatusFree || s.Status == protocol.StatusDead)
	}
	start := time.Now()
	l, err := mine.TryLock(background, w.kind.key, 10*time.Second)
	if errors.Is(err, compat.ErrHeld) {
		wrong("held", err)
	}
	if err == nil {
		if free() {
			wrong("taken, but free", nil)
		}
		if err = l.Extend(background, 30*time.Second); errors.Is(err, compat.ErrLost) {
			wrong("lost", err)
		}
		pass(time.Until(start.Add(15 * time.Second)))
		held := believes(l)
		if held && free() {
			wrong("extended, but free", err)
		}
		if err = l.Release(background); held && errors.Is(err, compat.ErrLost) {
			wrong("lost at the release", err)
		}
		if err == nil && !free() {
			wrong("released, but held", nil)
		}
	}
	reached = net.Count() >= n
	net.Clear()
	return reached
}
