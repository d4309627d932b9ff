package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// Refusal returns the objection of the algorithm's own Check to the server.
func Refusal(c *plan.Setup) (string, error) {
	s, err := oldredis.New(c.Server, oldredis.Options{})
	if err != nil {
		return "", err
	}
	defer s.Close()
	k := compat.NewOn(compat.Pooled(s), (&Agent{Setup: c}).Algorithm(0), compat.Options{})
	if _, err := k.TryLock(context.Background(), c.Key, c.TTL); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// Refuses returns an error if the lock refuses the server.
func Refuses(c *plan.Setup) error {
	why, err := Refusal(c)
	if err == nil && why != "" {
		err = fmt.Errorf("race: %s refuses Redis %s: %s", c.Algorithm, c.Server, strings.TrimPrefix(why, "setnxlock: "))
	}
	return err
}
