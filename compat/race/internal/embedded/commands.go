package embedded

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// encode turns a readable value into its bytes: t=-2s is a timestamp, «C3» a token.
func encode(s string) string {
	if by, ok := strings.CutPrefix(s, "t="); ok {
		if d, err := time.ParseDuration(by); err == nil {
			return getsetlock.Float.Format(plan.Epoch.Add(d), nil)
		}
	}
	if inner, ok := strings.CutPrefix(s, "«C"); ok {
		if n, err := strconv.Atoi(strings.TrimSuffix(inner, "»")); err == nil && n > 0 && n < 10 {
			return plan.Token(n-1, 0, 1)
		}
	}
	return s
}

// Refusable reports whether a server without memory may refuse the command: each write, and EXEC.
func Refusable(cmd []string) bool {
	switch strings.ToUpper(cmd[0]) {
	case "MULTI", "DISCARD", "WATCH", "UNWATCH", "GET", "MGET", "EXISTS", "TYPE", "TTL", "PTTL", "TIME", "ZCARD", "ZSCORE", "ZRANGE", "ZRANGEBYSCORE":
		return false
	}
	return true
}

// RunRefusing runs commands, of which the server refuses one, counted from 1; 0: none.
func RunRefusing(s *oldredis.Server, c *oldredis.Conn, cmds [][]string, refused int) ([]any, error) {
	if refused > 0 {
		n := 0
		s.SetFault(func(int, int, []string) oldredis.Fault {
			if n++; n == refused {
				return oldredis.Refuse
			}
			return oldredis.None
		})
		defer s.SetFault(nil)
	}
	return runCommands(c, cmds)
}

// runCommands sends cmds over one connection.
func runCommands(c *oldredis.Conn, cmds [][]string) ([]any, error) {
	for _, cmd := range cmds {
		args := make([]any, len(cmd)-1)
		for n, a := range cmd[1:] {
			args[n] = a
		}
		if err := c.Send(cmd[0], args...); err != nil {
			return nil, err
		}
	}
	return redis.Values(c.Do(""))
}

// Given runs the commands of Config.Given.
func Given(c *plan.Setup, s *oldredis.Server) error {
	conn := s.Dial()
	defer conn.Close()
	for _, g := range c.Given {
		fields := strings.Fields(strings.ReplaceAll(g, "{key}", c.Key))
		if len(fields) == 0 {
			continue
		}
		args := make([]any, 0, len(fields)-1)
		for _, f := range fields[1:] {
			args = append(args, encode(f))
		}
		if _, err := conn.Do(fields[0], args...); err != nil {
			return fmt.Errorf("race: given %q: %w", g, err)
		}
	}
	return nil
}
