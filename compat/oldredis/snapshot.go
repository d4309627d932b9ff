package oldredis

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Snapshot is the state of a server at one moment: its keys, their deadlines, which of them are
// unreaped, the scripts that it knows, and the time. Connections are not part of it; see ConnState.
//
// It is meant for explorers: with a few keys, Snapshot and Restore cost about a microsecond, and
// equal states have equal Keys.
type Snapshot struct {
	nano    int64
	full    bool
	became  string  // the version that the server has become; "": it is the one it began as
	entries []entry // by database and key
	scripts map[string]string
}

// An entry is a key as a snapshot keeps it.
type entry struct {
	db       int
	key      string
	kind     string
	value    string   // of a string
	elements []string // of anything else; empty for an emptied list of 1.2
	deadline int64    // ms since 1970, or 0
}

// An Entry is one key of a Snapshot.
type Entry struct {
	DB   int
	Key  string
	Type string // "string", "list", "set", "zset" or "hash"

	// Value is that of a string.
	Value string

	// Elements are a list's, in order; a set's; a hash's fields, each
	// followed by its value; a sorted set's members, each followed by its
	// score. All but a list's are sorted, by text.
	Elements []string

	// Expires is the deadline, or zero. On versions with whole seconds the
	// key lives until the next second begins.
	Expires time.Time

	// Unreaped is set if the key has expired and is still in memory.
	Unreaped bool
}

// Snapshot returns the state of the server. It panics if there is a stream or a
// HyperLogLog, which no lock uses.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	snap := Snapshot{nano: s.nano, full: s.full, scripts: s.scripts}
	if s.name != s.born {
		snap.became = s.name
	}
	for _, db := range s.spaces[:s.used] {
		for _, key := range db.data.Keys() {
			e := entry{db: db.n, key: key, deadline: db.deadlines[key]}
			s.copyValue(db, &e)
			snap.entries = append(snap.entries, e)
		}
		if len(db.empty) > 0 {
			for key, kind := range db.empty {
				snap.entries = append(snap.entries, entry{db: db.n, key: key, kind: kind, deadline: db.deadlines[key]})
			}
			slices.SortFunc(snap.entries, entry.compare)
		}
	}
	return snap
}

func (e entry) compare(o entry) int {
	return cmp.Or(cmp.Compare(e.db, o.db), cmp.Compare(e.key, o.key))
}

// copyValue reads the value of e's key.
func (s *Server) copyValue(db *space, e *entry) {
	if v, err := db.data.Get(e.key); err == nil {
		e.kind, e.value = "string", v
		return
	}
	e.kind = db.data.Type(e.key)
	switch e.kind {
	case "list":
		e.elements, _ = db.data.List(e.key)
		e.elements = slices.Clone(e.elements)
	case "set":
		e.elements, _ = db.data.Members(e.key)
	case "hash":
		fields, _ := db.data.HKeys(e.key)
		for _, f := range fields {
			e.elements = append(e.elements, f, db.data.HGet(e.key, f))
		}
	case "zset":
		members, _ := db.data.ZMembers(e.key)
		for _, m := range members {
			score, _ := db.data.ZScore(e.key, m)
			e.elements = append(e.elements, m, strconv.FormatFloat(score, 'g', -1, 64))
		}
	default:
		panic("oldredis: snapshot of a " + e.kind)
	}
	e.sort()
}

// sort orders the elements by nothing but themselves.
func (e *entry) sort() {
	switch e.kind {
	case "set":
		slices.Sort(e.elements)
	case "hash", "zset":
		of := e.elements // names, each with its value or score behind it: few, and mostly in order
		for i := 2; i < len(of); i += 2 {
			for k := i; k > 0 && of[k] < of[k-2]; k -= 2 {
				of[k], of[k+1], of[k-2], of[k-1] = of[k-2], of[k-1], of[k], of[k+1]
			}
		}
	}
}

// Restore puts the server into the state of a snapshot, of this server or of another of the same
// version. A server with a Clock continues from the snapshot's time at the Clock's pace. It touches
// no WATCH and serves no blocked client.
func (s *Server) Restore(snap Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock != nil {
		s.offset += time.Duration(snap.nano - s.clock.Now().Add(s.offset).UnixNano())
	} else {
		s.stepped = time.Unix(0, snap.nano)
	}
	if is := cmp.Or(snap.became, s.born); is != s.name {
		s.become(is) //nolint:errcheck // a server was one
	}
	s.readClock()
	s.ticked = s.nano / int64(s.quirks.cron)
	s.full, s.scripts = snap.full, snap.scripts
	entries := snap.entries
	if n := len(entries); n > 0 {
		s.used = max(s.used, entries[n-1].db+1)
	}
	for _, db := range s.spaces[:s.used] {
		n := 0
		for n < len(entries) && entries[n].db == db.n {
			n++
		}
		s.restoreSpace(db, entries[:n])
		entries = entries[n:]
	}
}

func (s *Server) restoreSpace(db *space, entries []entry) {
	for _, key := range db.data.Keys() {
		if _, kept := slices.BinarySearchFunc(entries, key, func(e entry, key string) int {
			return strings.Compare(e.key, key)
		}); !kept {
			db.data.Del(key)
		}
	}
	clear(db.deadlines)
	clear(db.empty)
	for i := range entries {
		e := &entries[i]
		if e.deadline != 0 {
			db.deadlines[e.key] = e.deadline
		}
		if e.kind == "string" {
			if v, err := db.data.Get(e.key); err != nil || v != e.value {
				s.putString(db, e.key, e.value)
			}
			continue
		}
		s.restoreValue(db, e)
	}
}

func (s *Server) restoreValue(db *space, e *entry) {
	db.data.Del(e.key)
	if len(e.elements) == 0 {
		db.keepEmpty(e.key, e.kind)
		return
	}
	switch e.kind {
	case "list":
		db.data.Push(e.key, e.elements...) //nolint:errcheck // the key is not there
	case "set":
		db.data.SetAdd(e.key, e.elements...) //nolint:errcheck // likewise
	case "hash":
		db.data.HSet(e.key, e.elements...)
	case "zset":
		for i := 0; i < len(e.elements); i += 2 {
			score, _ := strconv.ParseFloat(e.elements[i+1], 64)
			db.data.ZAdd(e.key, score, e.elements[i]) //nolint:errcheck // likewise
		}
	}
}

// Now returns the time of the snapshot.
func (snap Snapshot) Now() time.Time { return time.Unix(0, snap.nano) }

// At returns the snapshot as of another time: the same keys with the same
// deadlines. Nothing is reaped in between.
func (snap Snapshot) At(t time.Time) Snapshot {
	snap.nano = t.UnixNano()
	return snap
}

// Rename returns the snapshot with f applied to every key and every text. f must map different keys
// to different keys. Explorers use it to treat states as equal that differ only in the names of
// clients.
func (snap Snapshot) Rename(f func(string) string) Snapshot {
	entries := slices.Clone(snap.entries)
	for i := range entries {
		e := &entries[i]
		e.key, e.value = f(e.key), f(e.value)
		e.elements = slices.Clone(e.elements)
		for k, el := range e.elements {
			e.elements[k] = f(el)
		}
		e.sort()
	}
	slices.SortFunc(entries, entry.compare)
	snap.entries = entries
	return snap
}

// Entries returns the keys, by database and name. s is the server, or one of the same version; it
// decides which keys have expired.
func (snap Snapshot) Entries(s *Server) []Entry {
	list := make([]Entry, len(snap.entries))
	for i, e := range snap.entries {
		list[i] = Entry{DB: e.db, Key: e.key, Type: e.kind, Value: e.value, Elements: slices.Clone(e.elements)}
		if e.deadline != 0 {
			list[i].Expires = time.UnixMilli(e.deadline)
			list[i].Unreaped = s.quirks.dead(e.deadline, snap.nano/int64(time.Millisecond))
		}
	}
	return list
}

// Key returns a string to compare: snapshots are equal, the time included, if and only if their Keys are. It is binary:
// use it as a map key.
func (snap Snapshot) Key() string {
	b := make([]byte, 0, 64+48*len(snap.entries))
	return string(snap.appendContent(strconv.AppendInt(b, snap.nano, 36)))
}

// ContentKey returns a Key without the time: it is equal for two snapshots that hold the same keys with the same
// deadlines and know the same scripts.
func (snap Snapshot) ContentKey() string {
	return string(snap.appendContent(make([]byte, 0, 48*len(snap.entries))))
}

func (snap Snapshot) appendContent(b []byte) []byte {
	if snap.full {
		b = append(b, '!')
	}
	b = append(b, snap.became...)
	if len(snap.scripts) > 0 {
		for _, sha := range slices.Sorted(maps.Keys(snap.scripts)) {
			b = append(append(b, '$'), sha...)
		}
	}
	for i := range snap.entries {
		e := &snap.entries[i]
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(e.db), 36)
		b = append(b, e.kind...)
		b = appendText(b, e.key)
		b = appendText(b, e.value)
		b = strconv.AppendInt(b, int64(len(e.elements)), 36)
		for _, el := range e.elements {
			b = appendText(b, el)
		}
		b = append(b, '@')
		b = strconv.AppendInt(b, e.deadline, 36)
	}
	return b
}

// appendText appends s with its length, for an unambiguous end.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	b = strconv.AppendInt(b, int64(len(s)), 36)
	b = append(b, ':')
	return append(b, s...)
}

// A ConnState is what the server knows about a connection.
type ConnState struct {
	DB      int
	Multi   bool       // between MULTI and EXEC
	Aborted bool       // EXEC will answer EXECABORT
	Dirty   bool       // a watched key was touched
	Queue   [][]string // the commands since MULTI
	Watched []WatchedKey
}

// A WatchedKey is a key that a connection watches.
type WatchedKey struct {
	DB  int
	Key string
	// Unreaped is set if the key had expired when WATCH saw it, and has not been reaped since.
	Unreaped bool
}

// Key returns a string to compare: states are equal if and only if their Keys are.
func (st ConnState) Key() string {
	b := make([]byte, 0, 64)
	b = strconv.AppendInt(b, int64(st.DB), 36)
	for _, set := range []bool{st.Multi, st.Aborted, st.Dirty} {
		b = strconv.AppendBool(b, set)
	}
	for _, args := range st.Queue {
		b = append(b, ';')
		for _, a := range args {
			b = appendText(b, a)
		}
	}
	for _, w := range st.Watched {
		b = append(b, '@')
		b = strconv.AppendInt(b, int64(w.DB), 36)
		b = appendText(b, w.Key)
		b = strconv.AppendBool(b, w.Unreaped)
	}
	return string(b)
}

// Dirty reports whether a watched key of the connection was touched.
func (c *Conn) Dirty() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.session.dirty
}

// State returns the server's knowledge of the connection. Replies not yet received and commands not yet flushed are on
// the client's side and not part of it.
func (c *Conn) State() ConnState {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ss := c.session
	st := ConnState{DB: ss.db, Multi: ss.multi, Aborted: ss.aborted, Dirty: ss.dirty}
	for _, q := range ss.queue {
		st.Queue = append(st.Queue, q.args)
	}
	for _, w := range ss.watches {
		st.Watched = append(st.Watched, WatchedKey{w.db.n, w.key, w.expired})
	}
	return st
}

// SetState puts the connection into a state from State; the zero ConnState is a new connection's. A connection that was
// cut or closed is open again, under its old number. What it had sent or not received is gone.
func (c *Conn) SetState(st ConnState) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	s, ss := c.s, c.session
	s.unwatch(ss)
	s.stopWaiting(ss)
	c.buffer, c.pending, c.err = c.buffer[:0], 0, nil
	ss.out, ss.backlog, ss.dead = ss.out[:0], nil, nil
	if s.closed {
		ss.dead = errClosed
		return
	}
	s.sessions[ss.number] = ss
	ss.db, ss.multi, ss.aborted, ss.dirty = st.DB, st.Multi, st.Aborted, st.Dirty
	ss.queue = nil
	for _, args := range st.Queue {
		if cmd := s.commands[strings.ToLower(args[0])]; cmd != nil {
			ss.queue = append(ss.queue, queued{cmd, args})
		}
	}
	for _, w := range st.Watched {
		s.watch(ss, s.spaces[w.DB], w.Key, w.Unreaped)
	}
}
