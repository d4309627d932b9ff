package oldredis

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

func ping(_ *Server, c *session, args []string) any {
	switch {
	case len(args) > 2:
		return redis.Error("ERR wrong number of arguments for 'ping' command")
	case c.subscribed():
		message := ""
		if len(args) == 2 {
			message = args[1]
		}
		return []any{bulk("pong"), bulk(message)}
	case len(args) == 2:
		return bulk(args[1])
	}
	return "PONG"
}

func echo(_ *Server, _ *session, args []string) any { return bulk(args[1]) }

func timeNow(s *Server, _ *session, _ []string) any {
	micro := s.nano / 1000
	return []any{
		bulk(strconv.FormatInt(micro/1e6, 10)),
		bulk(strconv.FormatInt(micro%1e6, 10)),
	}
}

func lastsave(s *Server, _ *session, _ []string) any { return s.nano / 1e9 }

func auth(_ *Server, _ *session, _ []string) any {
	return redis.Error("ERR Client sent AUTH, but no password is set")
}

// clientCmd knows what clients send when they connect.
func clientCmd(s *Server, c *session, args []string) any {
	switch strings.ToLower(args[1]) {
	case "setname":
		if len(args) == 3 {
			c.name = args[2]
			return replyOK
		}
	case "getname":
		if c.name == "" {
			return nil
		}
		return bulk(c.name)
	case "id":
		return int64(c.number + 1)
	case "list":
		return bulk(s.clientList())
	case "setinfo":
		return replyOK
	}
	return redis.Error("ERR Syntax error, try CLIENT (LIST | KILL ip:port)")
}

func (s *Server) clientList() string {
	var b strings.Builder
	for _, c := range s.inOrder() {
		fmt.Fprintf(&b, "id=%d addr=in-process:%d name=%s db=%d multi=%d\n", c.number+1, c.number, c.name, c.db, len(c.queue))
	}
	return b.String()
}

// settings are what CONFIG GET and INFO say of the server.
func (s *Server) settings() [][2]string {
	memory, policy := "0", "noeviction"
	if s.full {
		memory = "1048576"
	}
	if s.manners.evictsVolatile {
		policy = "volatile-lru"
	}
	return [][2]string{
		{"appendonly", "no"},
		{"databases", strconv.Itoa(len(s.spaces))},
		{"maxmemory", memory},
		{"maxmemory-policy", policy},
		{"save", "900 1 300 10 60 10000"},
		{"timeout", "0"},
	}
}

func config(s *Server, _ *session, args []string) any {
	if !strings.EqualFold(args[1], "get") || len(args) != 3 {
		return redis.Error("ERR oldredis emulates CONFIG GET only")
	}
	list := []any{}
	for _, kv := range s.settings() {
		if ok, _ := path.Match(strings.ToLower(args[2]), kv[0]); ok {
			list = append(list, bulk(kv[0]), bulk(kv[1]))
		}
	}
	return list
}

// info says what there is to say truthfully: the version whose manners these
// are, and the configuration.
func info(s *Server, _ *session, args []string) any {
	section := ""
	if len(args) == 2 {
		section = strings.ToLower(args[1])
		if section == "all" || section == "default" || section == "everything" {
			section = ""
		}
	}
	set := make(map[string]string)
	for _, kv := range s.settings() {
		set[kv[0]] = kv[1]
	}
	var b strings.Builder
	part := func(title string, lines ...string) {
		if section != "" && section != strings.ToLower(title) {
			return
		}
		if !s.manners.infoFlat {
			if b.Len() > 0 {
				b.WriteString("\r\n")
			}
			b.WriteString("# " + title + "\r\n")
		}
		for _, l := range lines {
			b.WriteString(l + "\r\n")
		}
	}
	part("Server",
		"redis_version:"+s.manners.redis,
		"arch_bits:64",
		"process_id:1",
		"uptime_in_seconds:1")
	part("Clients",
		"connected_clients:"+strconv.Itoa(len(s.sessions)),
		"blocked_clients:"+strconv.Itoa(len(s.waiters)))
	memory := []string{"used_memory:1048576"}
	if !s.manners.infoBrief {
		memory = append(memory, "maxmemory:"+set["maxmemory"], "maxmemory_policy:"+set["maxmemory-policy"])
	}
	part("Memory", memory...)
	part("Persistence", "loading:0", "aof_enabled:0")
	part("Replication", "role:master", "connected_slaves:0")
	var spaces []string
	for _, db := range s.spaces {
		if n := len(db.data.Keys()) + len(db.empty); n > 0 {
			spaces = append(spaces, fmt.Sprintf("db%d:keys=%d,expires=%d", db.n, n, len(db.dies)))
		}
	}
	part("Keyspace", spaces...)
	return bulk(b.String())
}
