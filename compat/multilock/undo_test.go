package multilock

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// silent does not answer for one key.
type silent struct {
	compat.Backend
	key string
}

func (s silent) Release(_ context.Context, _ func() time.Time, l compat.Grant) error {
	if l.Key == s.key {
		return errors.New("no answer")
	}
	return nil
}

// granted are parts, each with a value of its own.
func granted(keys ...string) (parts []compat.Grant) {
	for i, k := range keys {
		parts = append(parts, compat.Grant{Lease: compat.Lease{Key: k, Value: strconv.Itoa(i + 1)}})
	}
	return parts
}

// What is left of a set that was given up is what could not be released, and nothing else.
func TestWhatIsLeftIsNamed(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		parts := granted("a", "b", "c")
		b := &inTurn{one: silent{key: key}}
		l, err := b.giveUp(t.Context(), time.Now, Join("a", "b", "c"), parts, 2, errors.New("why"))
		if protocol.OutcomeOf(err) != protocol.Unknown || l.Value == "" {
			t.Errorf("%s was not released: %q, %v; want what is left, and that it is unknown", key, l.Value, err)
		}
		for _, p := range parts {
			if (p.Value != "") != (p.Key == key) {
				t.Errorf("%s was not released: %s has the value %q", key, p.Key, p.Value)
			}
		}
	}
}

// If all was released, nothing is unknown any more.
func TestAllIsUndone(t *testing.T) {
	parts := granted("a", "b")
	l, err := (&inTurn{one: silent{}}).giveUp(t.Context(), time.Now, Join("a", "b"), parts, 1, errors.New("no answer"))
	if protocol.OutcomeOf(err) != protocol.NotSent || l.Value != "" {
		t.Errorf("%q, %v", l.Value, err)
	}
}

// fixedReplies answers each key's release in its own way.
type fixedReplies struct {
	compat.Backend
	of map[string]error
}

func (b fixedReplies) Release(_ context.Context, _ func() time.Time, l compat.Grant) error {
	return b.of[l.Key]
}

// A set of which one key was lost and another may still be held is not released yet.
func TestOneLostAndOneOpen(t *testing.T) {
	l := compat.Grant{Lease: compat.Lease{Key: Join("a", "b", "c"), Value: "1,2,3"}}
	for _, c := range []struct {
		of   map[string]error
		want error
	}{
		{map[string]error{"b": compat.ErrLost}, compat.ErrLost},
		{map[string]error{"a": errors.New("no answer")}, compat.ErrUnknown},
		{map[string]error{"a": compat.ErrLost, "c": errors.New("no answer")}, compat.ErrUnknown},
		{map[string]error{"c": compat.ErrLost, "a": errors.New("no answer")}, compat.ErrUnknown},
	} {
		if err := (&inTurn{one: fixedReplies{of: c.of}}).Release(t.Context(), time.Now, l); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.of, err, c.want)
		}
	}
}
