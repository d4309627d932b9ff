package oldredis

import (
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
)

// timed handles miniredis' commands that may read or change deadlines.
func timed(s *Server, c *session, args []string) any { return s.withTTLs(c, args) }

// withTTLs makes miniredis run a command, or a script, with the deadlines: it gives them to
// miniredis before and reads them back after.
func (s *Server) withTTLs(c *session, args []string) any {
	for _, db := range s.spaces[:s.used] {
		s.giveDeadlines(db)
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
		s.readDeadlines(db)
	}
	return reply
}

// giveDeadlines gives miniredis the deadlines of a database.
func (s *Server) giveDeadlines(db *space) {
	if len(db.deadlines) == 0 {
		return
	}
	s.reapSpace(db)
	for _, key := range slices.Sorted(maps.Keys(db.deadlines)) {
		// A key is alive at its deadline, but miniredis has no TTL of 0.
		left := max(time.Duration(db.deadlines[key]-s.ms)*time.Millisecond, 1)
		db.data.SetTTL(key, left)
	}
}

// readDeadlines reads the deadlines after a script.
func (s *Server) readDeadlines(db *space) {
	keys := db.data.Keys()
	clear(db.deadlines)
	for _, key := range keys {
		if left := db.data.TTL(key); left > 0 {
			db.deadlines[key] = s.ms + int64(left/time.Millisecond)
			s.dispatch(s.peerOf(db), []string{"PERSIST", key})
		}
	}
}

// inScript sees the commands of a script before they run, as miniredis' hook, and refuses those unknown to this
// version. It runs under miniredis' lock and must not access the data.
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
		p.WriteError(s.quirks.texts.full)
		return true
	}
	return false
}

// eval runs EVAL and EVALSHA: both know the same scripts.
func eval(s *Server, c *session, args []string) any {
	name := strings.ToLower(args[0])
	source, sha := args[1], strings.ToLower(args[1])
	if strings.HasPrefix(name, "evalsha") {
		known := false
		if source, known = s.scripts[sha]; !known {
			return redis.Error("NOSCRIPT No matching script. Please use EVAL.")
		}
	} else {
		sha = s.cacheScript(source)
	}
	run := slices.Clone(args)
	run[0] = "EVAL"
	if strings.HasSuffix(name, "_ro") {
		run[0] = "EVAL_RO"
	}
	if s.has(ttlBlind) {
		source = blindTTL + source
	}
	run[1] = source

	s.used = len(s.spaces) // a script may SELECT
	s.scripting++
	reply := s.withTTLs(c, run)
	s.scripting--
	if e, failed := reply.(redis.Error); failed {
		return s.scriptError(e, sha)
	}
	return reply
}

// blindTTL makes TTL in a script answer -1 for a missing key. It is one line, so that line numbers
// in errors stay right.
const blindTTL = `local redis=(function(r) local function blind(f) return function(c,...) local x=f(c,...) ` +
	`if x==-2 and (c:lower()=='ttl' or c:lower()=='pttl') then return -1 end return x end end ` +
	`return setmetatable({call=blind(r.call),pcall=blind(r.pcall)},{__index=r}) end)(redis) `

// cacheScript adds a script to the cache. Snapshots share the map, so cacheScript replaces it and never changes
// it.
func (s *Server) cacheScript(source string) (sha string) {
	sum := sha1.Sum([]byte(source))
	sha = hex.EncodeToString(sum[:])
	if _, known := s.scripts[sha]; !known {
		more := make(map[string]string, len(s.scripts)+1)
		maps.Copy(more, s.scripts)
		more[sha] = source
		s.scripts = more
	}
	return sha
}

// callFailed is how miniredis reports the error of a redis.call.
var callFailed = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^ERR Error compiling script \(new function\): [^:]*:(\d+): ([A-Z]+ .*?) stack traceback:`)
})

// scriptError gives the error of a redis.call its old or new form.
func (s *Server) scriptError(e redis.Error, sha string) any {
	m := callFailed().FindStringSubmatch(strings.ReplaceAll(string(e), "\n", " "))
	if m == nil {
		return e
	}
	line, text := m[1], string(s.translate(redis.Error(m[2])).(redis.Error))
	if s.has(scriptErrorWrapped) {
		return redis.Error("ERR Error running script (call to f_" + sha + "): @user_script:" + line + ": " + text)
	}
	return redis.Error(text + " script: " + sha + ", on @user_script:" + line + ".")
}

// scriptCommand runs SCRIPT LOAD, EXISTS and FLUSH.
func scriptCommand(s *Server, _ *session, args []string) any {
	switch sub := strings.ToLower(args[1]); {
	case sub == "load" && len(args) == 3:
		reply := s.dispatch(s.peerOf(s.spaces[0]), slices.Clone(args))
		if e, bad := reply.(redis.Error); bad {
			return e
		}
		return bulk(s.cacheScript(args[2]))
	case sub == "exists" && len(args) > 2:
		list := make([]any, len(args)-2)
		for i, sha := range args[2:] {
			list[i] = int64(0)
			if _, known := s.scripts[strings.ToLower(sha)]; known {
				list[i] = int64(1)
			}
		}
		return list
	case sub == "flush":
		s.scripts = nil
		return replyOK
	}
	return redis.Error("ERR Unknown SCRIPT subcommand or wrong # of args.")
}
