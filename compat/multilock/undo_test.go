package multilock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// silent does not answer for one key.
type silent struct {
	compat.Backend
	key string
}

func (s silent) Release(_ context.Context, _ func() time.Time, l compat.Lease) error {
	if l.Key == s.key {
		return errors.New("no answer")
	}
	return nil
}

// What is left of a set that was given up is what could not be released, and nothing else.
func TestWhatIsLeftIsNamed(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		parts := []compat.Lease{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: "3"}}
		b := &inTurn{one: silent{key: key}}
		if _, err := b.giveUp(t.Context(), time.Now, Join("a", "b", "c"), parts, 2, errors.New("why")); err == nil {
			t.Error("no error")
		}
		for _, p := range parts {
			if (p.Value != "") != (p.Key == key) {
				t.Errorf("%s was not released: %s has the value %q", key, p.Key, p.Value)
			}
		}
	}
}
