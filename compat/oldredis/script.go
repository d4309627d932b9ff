package oldredis

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// A script sees the keys through miniredis, with their deadlines: they are given
// to it before the script and taken back after it.
func script(s *Server, c *session, args []string) any {
	return s.withTTLs(c, args)
}

// withTTLs has miniredis run a command that may see or change deadlines.
func (s *Server) withTTLs(c *session, args []string) any {
	for _, db := range s.spaces[:s.used] {
		s.lend(db)
	}
	var probes []probe
	if s.watching > 0 {
		for _, db := range s.spaces[:s.used] {
			for _, key := range slices.Sorted(maps.Keys(db.watchers)) {
				probes = append(probes, s.probe(db, key))
			}
		}
	}
	reply := s.translate(s.dispatch(s.peerOf(s.spaces[c.db]), slices.Clone(args)))
	for _, p := range probes {
		if s.changed(p) {
			s.touch(p.db, p.key)
		}
	}
	for _, db := range s.spaces[:s.used] {
		s.takeBack(db)
	}
	return reply
}

// lend gives miniredis the deadlines of a database.
func (s *Server) lend(db *space) {
	if len(db.dies) == 0 {
		return
	}
	s.reapSpace(db)
	for _, key := range slices.Sorted(maps.Keys(db.dies)) {
		// A key is alive at its deadline; miniredis knows no TTL of 0.
		left := max(time.Duration(db.dies[key]-s.ms)*time.Millisecond, 1)
		db.data.SetTTL(key, left)
	}
}

// takeBack reads the deadlines after a script.
func (s *Server) takeBack(db *space) {
	keys := db.data.Keys()
	clear(db.dies)
	for _, key := range keys {
		if left := db.data.TTL(key); left > 0 {
			db.dies[key] = s.ms + int64(left/time.Millisecond)
			s.dispatch(s.peerOf(db), []string{"PERSIST", key})
		}
	}
}

// inScript is miniredis' hook: it sees the commands of a script before they
// run, and refuses what this version does not know. It runs under miniredis'
// lock and may not look at the data.
func (s *Server) inScript(p *server.Peer, name string, args ...string) bool {
	if s.scripting == 0 {
		return false
	}
	cmd := s.commands[strings.ToLower(name)]
	switch {
	case cmd == nil:
		p.WriteError("ERR Unknown Redis command called from Lua script")
		return true
	case !cmd.accepts(len(args) + 1):
		p.WriteError("ERR Wrong number of args calling Redis command From Lua script")
		return true
	case s.full && cmd.grows:
		p.WriteError(s.manners.words.full)
		return true
	}
	return false
}

func eval(s *Server, c *session, args []string) any {
	s.used = len(s.spaces) // a script may SELECT
	s.scripting++
	defer func() { s.scripting-- }()
	return s.withTTLs(c, args)
}
