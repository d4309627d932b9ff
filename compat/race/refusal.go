package race

import (
	"context"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// refusal is what the algorithm's own Check says of the server.
func refusal(c *setup) (string, error) {
	s, err := oldredis.New(c.Server, oldredis.Options{})
	if err != nil {
		return "", err
	}
	defer s.Close()
	k := compat.NewOn(compat.Pooled(s), (&agent{c: c}).algorithm(0), compat.Options{})
	if _, err := k.TryLock(context.Background(), c.Key, c.TTL); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// refuses is an error if the lock refuses the server.
func refuses(c *setup) error {
	why, err := refusal(c)
	if err == nil && why != "" {
		err = fmt.Errorf("race: %s refuses Redis %s: %s", c.Algorithm, c.Server, strings.TrimPrefix(why, "setnxlock: "))
	}
	return err
}
