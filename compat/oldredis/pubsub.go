package oldredis

import (
	"path"
	"slices"
)

// whileSubscribed reports whether a subscriber may still send a command.
func whileSubscribed(name string) bool {
	switch name {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ping":
		return true
	}
	return false
}

func (c *session) subscribed() bool { return len(c.channels)+len(c.patterns) > 0 }

func subscribe(s *Server, c *session, args []string) any {
	return s.join(c, &c.channels, "subscribe", args[1:])
}

func psubscribe(s *Server, c *session, args []string) any {
	return s.join(c, &c.patterns, "psubscribe", args[1:])
}

func unsubscribe(s *Server, c *session, args []string) any {
	return s.leave(c, &c.channels, "unsubscribe", args[1:])
}

func punsubscribe(s *Server, c *session, args []string) any {
	return s.leave(c, &c.patterns, "punsubscribe", args[1:])
}

func (s *Server) join(c *session, list *[]string, verb string, names []string) any {
	for _, n := range names {
		if !slices.Contains(*list, n) {
			*list = append(*list, n)
		}
		s.push(c, []any{bulk(verb), bulk(n), c.subscriptions()})
	}
	return noReply{}
}

func (s *Server) leave(c *session, list *[]string, verb string, names []string) any {
	if len(names) == 0 {
		names = slices.Clone(*list)
	}
	if len(names) == 0 {
		return []any{bulk(verb), nil, c.subscriptions()}
	}
	for _, n := range names {
		*list = slices.DeleteFunc(*list, func(o string) bool { return o == n })
		s.push(c, []any{bulk(verb), bulk(n), c.subscriptions()})
	}
	return noReply{}
}

func (c *session) subscriptions() any { return int64(len(c.channels) + len(c.patterns)) }

// publish delivers to the sessions in the order in which they connected.
func publish(s *Server, _ *session, args []string) any {
	channel, message, received := args[1], args[2], int64(0)
	for _, c := range s.inOrder() {
		if slices.Contains(c.channels, channel) {
			s.push(c, []any{bulk("message"), bulk(channel), bulk(message)})
			received++
		}
		for _, p := range c.patterns {
			if ok, _ := path.Match(p, channel); ok {
				s.push(c, []any{bulk("pmessage"), bulk(p), bulk(channel), bulk(message)})
				received++
			}
		}
	}
	return received
}
