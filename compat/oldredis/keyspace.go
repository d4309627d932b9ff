package oldredis

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

func del(s *Server, c *session, args []string) any {
	db, deleted := s.spaces[c.db], int64(0)
	for _, key := range args[1:] {
		if !s.has(delSeesUnreaped) {
			s.reap(db, key)
		}
		if s.exists(db, key) {
			s.drop(db, key)
			s.touch(db, key)
			deleted++
		}
	}
	return deleted
}

func exists(s *Server, c *session, args []string) any {
	db, found := s.spaces[c.db], int64(0)
	for _, key := range args[1:] {
		if s.lookupRead(db, key) {
			found++
		}
	}
	return found
}

func typeOf(s *Server, c *session, args []string) any {
	db := s.spaces[c.db]
	s.reap(db, args[1])
	if t := s.kind(db, args[1]); t != "" {
		return t
	}
	return "none"
}

// renaming handles RENAME, or RENAMENX, by what they answer when it is done.
func renaming(nx bool, done any) handler {
	return func(s *Server, c *session, args []string) any {
		return cmp.Or(s.rename(c, args, nx), done)
	}
}

// rename moves args[1] to args[2]. It returns nil on success, else the error or 0.
func (s *Server) rename(c *session, args []string, nx bool) (answer any) {
	db, from, to := s.spaces[c.db], args[1], args[2]
	if from == to && s.has(sameKeyRefused) {
		return redis.Error("ERR source and destination objects are the same")
	}
	if !s.lookupWrite(db, from) {
		return redis.Error("ERR no such key")
	}
	if from == to {
		if nx {
			return int64(0)
		}
		return replyOK
	}
	held := s.has(renameSeesUnreaped) && s.exists(db, to) || s.lookupWrite(db, to)
	if held && nx {
		return int64(0)
	}

	when, volatile := db.deadlines[from]
	if s.has(renameDropsTTL) {
		// Before 2.4.0 the destination is replaced in place and keeps its old deadline.
		when, volatile = db.deadlines[to]
	}
	s.move(db, from, to)
	if volatile {
		db.deadlines[to] = when
	}
	s.touch(db, from)
	s.touch(db, to)
	return nil
}

// move renames the value. Neither name has a deadline afterwards.
func (s *Server) move(db *space, from, to string) {
	if kind := db.empty[from]; kind != "" {
		s.drop(db, to)
		db.keepEmpty(to, kind)
	} else if v, err := db.data.Get(from); err == nil {
		s.putString(db, to, v)
	} else {
		delete(db.empty, to)
		s.dispatch(s.peerOf(db), []string{"RENAME", from, to})
	}
	delete(db.deadlines, to)
	s.drop(db, from)
}

func moveTo(s *Server, c *session, args []string) any {
	n, ok := s.number(args[2])
	if !ok || n < 0 || n >= int64(len(s.spaces)) {
		return redis.Error("ERR index out of range")
	}
	from, to, key := s.spaces[c.db], s.spaces[n], args[1]
	if from == to {
		return redis.Error("ERR source and destination objects are the same")
	}
	if !s.lookupWrite(from, key) || s.lookupWrite(to, key) {
		return int64(0)
	}
	s.used = max(s.used, to.n+1)
	when, volatile := from.deadlines[key]
	if kind := from.empty[key]; kind != "" {
		to.keepEmpty(key, kind)
	} else {
		s.dispatch(s.peerOf(from), []string{"MOVE", key, strconv.Itoa(to.n)})
	}
	if volatile && !s.has(moveDropsTTL) {
		to.deadlines[key] = when
	}
	s.drop(from, key)
	s.touch(from, key)
	s.touch(to, key)
	return int64(1)
}

// reapSpace reaps all keys, as a command on every key does.
func (s *Server) reapSpace(db *space) {
	for _, key := range slices.Sorted(maps.Keys(db.deadlines)) {
		s.reap(db, key)
	}
}

func keys(s *Server, c *session, args []string) any {
	db := s.spaces[c.db]
	s.reapSpace(db)
	list, ok := s.dispatch(s.peerOf(db), []string{"KEYS", args[1]}).([]any)
	if !ok {
		return []any{}
	}
	for _, key := range slices.Sorted(maps.Keys(db.empty)) {
		list = append(list, bulk(key)) // 1.2 only; the pattern is ignored
	}
	return list
}

func randomkey(s *Server, c *session, _ []string) any {
	db := s.spaces[c.db]
	s.reapSpace(db)
	return s.dispatch(s.peerOf(db), []string{"RANDOMKEY"})
}

func scan(s *Server, c *session, args []string) any {
	db := s.spaces[c.db]
	s.reapSpace(db)
	return s.translate(s.dispatch(s.peerOf(db), slices.Clone(args)))
}

// dbsize also counts unreaped keys.
func dbsize(s *Server, c *session, _ []string) any {
	db := s.spaces[c.db]
	return int64(len(db.data.Keys()) + len(db.empty))
}

func flushdb(s *Server, c *session, _ []string) any {
	s.flush(s.spaces[c.db])
	return replyOK
}

func flushall(s *Server, _ *session, _ []string) any {
	for _, db := range s.spaces {
		s.flush(db)
	}
	return replyOK
}

func selectDB(s *Server, c *session, args []string) any {
	n, ok := s.number(args[1])
	if s.has(looseIndex) {
		n, ok = leadingNumber(args[1]), true
	}
	if !ok || n < 0 || n >= int64(len(s.spaces)) {
		return redis.Error(s.quirks.texts.noDB)
	}
	c.db = int(n)
	s.used = max(s.used, c.db+1)
	return replyOK
}
