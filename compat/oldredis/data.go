package oldredis

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
)

// miniredis holds the values and runs the commands that do not differ between versions. It knows no
// TTLs, except while it runs a script.

func (s *Server) newPeer(db *space) *server.Peer {
	p := server.NewPeer(bufio.NewWriter(&s.out))
	if db.n != 0 {
		s.dispatch(p, []string{"SELECT", strconv.Itoa(db.n)})
	}
	return p
}

// dispatch makes miniredis run a command and returns its reply. miniredis keeps args: do not reuse
// it.
func (s *Server) dispatch(p *server.Peer, args []string) any {
	s.out.Reset()
	s.mini.SetTime(time.Unix(0, s.nano))
	s.mini.Server().Dispatch(p, args)
	p.Flush()
	reply, err := parseReply(&s.out)
	if err != nil {
		return redis.Error("ERR oldredis: reply of miniredis to " + args[0] + ": " + err.Error())
	}
	return reply
}

// exists reports whether the key is in memory, expired or not.
func (s *Server) exists(db *space, key string) bool {
	return db.empty[key] != "" || db.data.Exists(key)
}

// kind returns the type of the key's value, or "".
func (s *Server) kind(db *space, key string) string {
	if t := db.empty[key]; t != "" {
		return t
	}
	return db.data.Type(key)
}

// getString returns the key's string. If there is none, the error is miniredis.ErrKeyNotFound or
// miniredis.ErrWrongType.
func (s *Server) getString(db *space, key string) (string, error) {
	if db.empty[key] != "" {
		return "", miniredis.ErrWrongType
	}
	return db.data.Get(key)
}

// putString replaces the value of key, and leaves its deadline.
func (s *Server) putString(db *space, key, value string) {
	delete(db.empty, key)
	if db.data.Set(key, value) != nil {
		db.data.Del(key)
		db.data.Set(key, value) //nolint:errcheck // nothing of another type is there any more
	}
}

// drop removes the key and its deadline. The caller decides whether to touch the sessions that
// WATCH it.
func (s *Server) drop(db *space, key string) {
	delete(db.deadlines, key)
	delete(db.empty, key)
	db.data.Del(key)
}

// flush empties a database. Only keys that exist are touched.
func (s *Server) flush(db *space) {
	for key := range db.watchers {
		if s.exists(db, key) {
			s.drop(db, key)
			s.touch(db, key)
		}
	}
	db.data.FlushDB()
	clear(db.deadlines)
	clear(db.empty)
}

// overwrites reports whether a command replaces its destination, whose old TTL is lost.
func overwrites(name string) bool {
	switch name {
	case "sinterstore", "sunionstore", "sdiffstore", "zinterstore", "zunionstore", "geosearchstore":
		return true
	}
	return false
}

// forward makes miniredis run a command common to all versions.
func (s *Server) forward(c *session, cmd *command, args []string) any {
	db := s.spaces[c.db]
	var buf [8]int
	positions := cmd.keys.in(args, buf[:0])
	for _, i := range positions {
		if cmd.writes {
			s.lookupWrite(db, args[i])
		} else {
			s.lookupRead(db, args[i])
		}
	}
	var before []string
	if s.has(emptyStays) || len(db.empty) > 0 {
		var answer any
		if before, answer = s.emptied(db, cmd, args, positions); answer != nil {
			return answer
		}
	}
	own := append(make([]string, 0, len(args)), args...)
	if len(positions) > 0 && db.empty[args[positions[0]]] == "list" {
		switch cmd.name { // miniredis treats an empty list as missing
		case "lpushx", "rpushx":
			own[0] = cmd.name[:len("push")+1]
		case "linsert":
			return int64(-1)
		}
	}
	if cmd.writes {
		reply := s.watched(db, cmd, positions, own)
		s.tidy(db, cmd, args, positions, before, reply)
		return reply
	}
	reply := s.translate(s.dispatch(s.peerOf(db), own))
	if s.has(missingRangeNil) && readsRange(cmd.name) {
		for _, i := range positions {
			if !s.exists(db, args[i]) {
				return nilArray{}
			}
		}
	}
	return reply
}

// watched makes miniredis run a write and touches the keys that it changed.
func (s *Server) watched(db *space, cmd *command, positions []int, args []string) any {
	var probes []probe
	if s.watching > 0 {
		for _, i := range positions {
			if len(db.watchers[args[i]]) > 0 {
				probes = append(probes, s.probe(db, args[i]))
			}
		}
	}
	reply := s.translate(s.dispatch(s.peerOf(db), args))
	for _, p := range probes {
		idle := quiet(cmd.name) || overwrites(cmd.name) && !p.there
		if s.changed(p) && !(idle && nothingDone(reply)) {
			s.touch(p.db, p.key)
		}
	}
	return reply
}

// tidy drops the deadlines of keys emptied by a write, or on 1.2 keeps the empty keys. before is what emptied returned.
func (s *Server) tidy(db *space, cmd *command, args []string, positions []int, before []string, reply any) {
	store := overwrites(cmd.name) && len(positions) > 0
	if store {
		// SINTERSTORE of a missing set deletes its destination on 1.2 too.
		lacking := cmd.name == "sinterstore" && slices.ContainsFunc(args[2:], func(key string) bool {
			return !s.exists(db, key)
		})
		s.overwritten(db, args[positions[0]], reply, s.has(emptyStays) && !lacking)
	}
	for n, i := range positions {
		key := args[i]
		switch {
		case db.data.Exists(key):
			if before != nil {
				delete(db.empty, key)
			}
		case before != nil && before[n] != "" && !store && s.has(emptyStays):
			delete(db.deadlines, key)
			db.keepEmpty(key, before[n])
		case db.empty[key] != "" && !s.has(emptyStays) && !endsEmpty(cmd.name):
		default:
			delete(db.deadlines, key)
			if !s.has(emptyStays) {
				delete(db.empty, key)
			}
		}
	}
}

// endsEmpty reports whether a command deletes an empty list of SORT's.
func endsEmpty(name string) bool { return name == "lrem" || name == "ltrim" }

// quiet reports whether a command aborts no WATCH when its reply says that it did nothing.
// miniredis raises the key's version all the same.
func quiet(name string) bool {
	switch name {
	case "lrem", "linsert", "lpushx", "rpushx", "sadd", "srem", "smove", "zrem", "zremrangebyrank",
		"zremrangebyscore", "zremrangebylex", "hdel", "hsetnx", "pfadd", "xdel", "xtrim":
		return true
	}
	return false
}

func nothingDone(reply any) bool {
	n, ok := reply.(int64)
	return ok && n <= 0
}

// overwritten fixes the destination of a STORE: it drops the old deadline, and the key if there was
// nothing to store, unless emptied keys stay (miniredis keeps an empty set).
func (s *Server) overwritten(db *space, key string, reply any, stays bool) {
	if n, ok := reply.(int64); ok {
		delete(db.deadlines, key)
		if n == 0 {
			db.data.Del(key)
			if stays {
				db.keepEmpty(key, "set")
			}
		}
	}
}

// readsRange reports whether 1.2 answers a command with nil for a missing key.
func readsRange(name string) bool {
	switch name {
	case "lrange", "zrange", "zrevrange", "zrangebyscore", "hgetall", "hkeys", "hvals", "smembers", "sinter":
		return true
	}
	return false
}

// emptied returns the types of the keys of a command before it runs, for a
// version on which they survive being emptied. If one of them is empty and of
// another type than the command's, it returns the error instead.
func (s *Server) emptied(db *space, cmd *command, args []string, positions []int) (before []string, answer any) {
	before = make([]string, len(positions))
	for n, i := range positions {
		before[n] = s.kind(db, args[i])
		if t := db.empty[args[i]]; t != "" && t != typeServed(cmd.name) {
			return nil, redis.Error(s.quirks.texts.wrongType)
		}
		if before[n] == "string" {
			before[n] = ""
		}
	}
	return before, nil
}

// typeServed returns the type that a command of 1.2 works on.
func typeServed(name string) string {
	switch {
	case strings.HasPrefix(name, "z"):
		return "zset"
	case strings.HasPrefix(name, "h"):
		return "hash"
	case name[0] == 's' && name != "substr" && !strings.HasPrefix(name, "set"):
		return "set"
	case name[0] == 'l' || strings.HasPrefix(name, "rp"):
		return "list"
	}
	return "string"
}

func (db *space) keepEmpty(key, kind string) {
	if db.empty == nil {
		db.empty = make(map[string]string)
	}
	db.empty[key] = kind
}

// translate turns miniredis' error texts, the newest, into the version's.
func (s *Server) translate(reply any) any {
	e, ok := reply.(redis.Error)
	if !ok {
		return reply
	}
	switch string(e) {
	case wrongTypeNow:
		return redis.Error(s.quirks.texts.wrongType)
	case notIntNow:
		return redis.Error(s.quirks.texts.notInt)
	}
	return e
}

// A probe is a client of miniredis that watches a key: its EXEC tells whether a
// command changed the key.
type probe struct {
	db    *space
	key   string
	peer  *server.Peer
	zset  map[string]float64
	there bool // the key, before the command
}

func (s *Server) probe(db *space, key string) probe {
	zset, _ := db.data.SortedSet(key)
	p := probe{db, key, s.newPeer(db), zset, s.exists(db, key)}
	s.dispatch(p.peer, []string{"WATCH", key})
	return p
}

func (s *Server) changed(p probe) bool {
	s.dispatch(p.peer, []string{"MULTI"})
	if !isNil(s.dispatch(p.peer, []string{"EXEC"})) {
		return false
	}
	// A ZADD of the score that a member already has is not a change, except to miniredis.
	zset, _ := p.db.data.SortedSet(p.key)
	return zset == nil || !maps.Equal(zset, p.zset)
}

// parseReply reads one reply of RESP2.
func parseReply(b *bytes.Buffer) (any, error) {
	line, err := b.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, io.ErrUnexpectedEOF
	}
	kind, line := line[0], line[1:]
	switch kind {
	case '+':
		return line, nil
	case '-':
		return redis.Error(line), nil
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil || kind == ':' {
		return n, err
	}
	switch {
	case n < 0 && kind == '*':
		return nilArray{}, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		p := append([]byte{}, b.Next(int(n))...)
		b.Next(2)
		return p, nil
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = parseReply(b); err != nil {
			return nil, err
		}
	}
	return list, nil
}
