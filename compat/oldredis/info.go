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

// clientCmd answers the CLIENT subcommands of clients that connect.
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

// settings returns the values for CONFIG GET and INFO.
func (s *Server) settings() [][2]string {
	memory, policy := "0", "noeviction"
	if s.full {
		memory = "1048576"
	}
	if s.has(evictsVolatile) {
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

// info reports only true facts of this server: the emulated version, the configuration, and the number of keys.
func info(s *Server, _ *session, args []string) any {
	r := report{flat: s.has(infoFlat)}
	if len(args) == 2 {
		switch section := strings.ToLower(args[1]); section {
		case "all", "default", "everything":
		default:
			r.section = section
		}
	}
	r.part("Server", append(s.release(), "arch_bits:64", "process_id:1", "uptime_in_seconds:1")...)
	r.part("Clients",
		"connected_clients:"+strconv.Itoa(len(s.sessions)),
		"blocked_clients:"+strconv.Itoa(len(s.waiters)))
	r.part("Memory", s.memoryInfo()...)
	r.part("Persistence", "loading:0", "aof_enabled:0")
	r.part("Replication", "role:master", "connected_slaves:0")
	r.part("Keyspace", s.keyspaceInfo()...)
	return bulk(r.text.String())
}

// release returns the version, as INFO has it.
func (s *Server) release() []string {
	lines := []string{"redis_version:" + s.quirks.redis}
	if v := s.quirks.valkey; v != "" {
		lines = append(lines, "server_name:valkey", "valkey_version:"+v)
	}
	return lines
}

func (s *Server) memoryInfo() []string {
	lines := []string{"used_memory:1048576"}
	if s.has(infoBrief) {
		return lines
	}
	for _, kv := range s.settings() {
		if strings.HasPrefix(kv[0], "maxmemory") {
			lines = append(lines, strings.ReplaceAll(kv[0], "-", "_")+":"+kv[1])
		}
	}
	return lines
}

func (s *Server) keyspaceInfo() []string {
	var lines []string
	for _, db := range s.spaces[:s.used] {
		if n := len(db.data.Keys()) + len(db.empty); n > 0 {
			lines = append(lines, fmt.Sprintf("db%d:keys=%d,expires=%d", db.n, n, len(db.deadlines)))
		}
	}
	return lines
}

// A report builds the text of INFO.
type report struct {
	text    strings.Builder
	section string // the only one asked for, or ""
	flat    bool
}

func (r *report) part(title string, lines ...string) {
	if r.section != "" && r.section != strings.ToLower(title) {
		return
	}
	if !r.flat {
		if r.text.Len() > 0 {
			r.text.WriteString("\r\n")
		}
		r.text.WriteString("# " + title + "\r\n")
	}
	for _, l := range lines {
		r.text.WriteString(l + "\r\n")
	}
}
