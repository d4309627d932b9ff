package oldredis

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A sorting is a SORT with its parsed arguments.
type sorting struct {
	by, store    string
	get          []string
	alpha, desc  bool
	start, count int64
}

// maxSortName is the longest key name, field included, that SORT looks up on versions with
// sortShortNames.
const maxSortName = 1024

func sortList(s *Server, c *session, args []string) any {
	o, answer := s.readSort(args)
	if answer != nil {
		return answer
	}
	db, key := s.spaces[c.db], args[1]
	if !s.lookupRead(db, key) && s.has(sortMissingStoresNothing) {
		if s.has(missingRangeNil) {
			return nilArray{}
		}
		return []any{}
	}
	list, answer := s.sortable(db, key)
	if answer != nil {
		return answer
	}
	if answer = s.sort(db, &o, list, s.kind(db, key)); answer != nil {
		return answer
	}
	list = o.limit(list)

	replies := make([]any, 0, len(list))
	for _, element := range list {
		for _, pattern := range o.get {
			replies = append(replies, s.sortLookup(db, pattern, element))
		}
		if len(o.get) == 0 {
			replies = append(replies, bulk(element))
		}
	}
	if o.store == "" {
		return replies
	}
	s.storeSorted(db, o.store, replies)
	return int64(len(replies))
}

// readSort parses the arguments, or returns the error reply.
func (s *Server) readSort(args []string) (o sorting, answer any) {
	o.count = -1
	o.by = "*" // the element itself
	rest := args[2:]
	for len(rest) > 0 {
		word := strings.ToUpper(rest[0])
		switch {
		case word == "ASC":
			o.desc = false
		case word == "DESC":
			o.desc = true
		case word == "ALPHA":
			o.alpha = true
		case word == "LIMIT" && len(rest) >= 3:
			for i, n := range []*int64{&o.start, &o.count} {
				v, ok := s.number(rest[1+i])
				if !ok && !s.has(sortLoose) {
					return o, redis.Error(s.quirks.texts.notInt)
				}
				if !ok {
					v = leadingNumber(rest[1+i])
				}
				*n = v
			}
			rest = rest[2:]
		case word == "STORE" && len(rest) >= 2:
			o.store, rest = rest[1], rest[1:]
		case word == "BY" && len(rest) >= 2:
			o.by, rest = rest[1], rest[1:]
		case word == "GET" && len(rest) >= 2:
			o.get, rest = append(o.get, rest[1]), rest[1:]
		default:
			return o, redis.Error("ERR syntax error")
		}
		rest = rest[1:]
	}
	return o, nil
}

// sortable returns the elements of a list, a set or a sorted set.
func (s *Server) sortable(db *space, key string) (list []string, answer any) {
	switch kind := s.kind(db, key); {
	case kind == "" || db.empty[key] != "":
	case kind == "list":
		list, _ = db.data.List(key)
	case kind == "set":
		list, _ = db.data.Members(key)
	case kind == "zset":
		list, _ = db.data.ZMembers(key)
	default:
		return nil, redis.Error(s.quirks.texts.wrongType)
	}
	return slices.Clone(list), nil
}

// sort puts list in order.
func (s *Server) sort(db *space, o *sorting, list []string, kind string) (answer any) {
	byElement := o.by == "*"
	if !strings.Contains(o.by, "*") {
		sorted := o.store != "" && (s.has(sortStoresSorted) || kind == "set")
		if !sorted {
			if o.desc && !s.has(sortNosortIgnoresDesc) && kind != "set" {
				slices.Reverse(list)
			}
			return nil
		}
		byElement, o.alpha = true, true
	}
	type weighted struct {
		element, text string
		score         float64
		missing       bool
	}
	all := make([]weighted, len(list))
	for i, element := range list {
		w := weighted{element: element, text: element}
		if !byElement {
			v, ok := s.sortLookup(db, o.by, element).([]byte)
			w.text, w.missing = string(v), !ok
		}
		if !o.alpha && !w.missing {
			f, err := strconv.ParseFloat(w.text, 64)
			if err != nil && !s.has(sortLoose) {
				return redis.Error("ERR One or more scores can't be converted into double")
			}
			if err != nil {
				f = float64(leadingNumber(w.text))
			}
			w.score = f
		}
		all[i] = w
	}
	slices.SortStableFunc(all, func(a, b weighted) int {
		order := cmp.Compare(a.score, b.score)
		if o.alpha && (a.missing || b.missing) {
			order = cmp.Compare(truth(b.missing), truth(a.missing))
		} else if o.alpha {
			order = strings.Compare(a.text, b.text)
		}
		if o.desc {
			return -order
		}
		return order
	})
	for i, w := range all {
		list[i] = w.element
	}
	return nil
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (o *sorting) limit(list []string) []string {
	n := int64(len(list))
	start, end := max(o.start, 0), n
	if o.count >= 0 && o.count < n {
		end = min(start+o.count, n)
	}
	if start >= end {
		return nil
	}
	return list[start:end]
}

// sortLookup returns the value of a BY or GET pattern of SORT, for one element.
func (s *Server) sortLookup(db *space, pattern, element string) any {
	if pattern == "#" {
		return bulk(element)
	}
	before, after, ok := strings.Cut(pattern, "*")
	if !ok || s.has(sortShortNames) && len(pattern)+len(element)-1 > maxSortName {
		return nil
	}
	name, field, ofHash := strings.Cut(after, "->")
	if !ofHash || field == "" || s.has(sortNoHash) {
		name, ofHash = after, false
	}
	key := before + element + name
	if !s.lookupRead(db, key) {
		return nil
	}
	if !ofHash {
		if v, err := s.getString(db, key); err == nil {
			return bulk(v)
		}
		return nil
	}
	if s.kind(db, key) != "hash" {
		return nil
	}
	fields, _ := db.data.HKeys(key)
	if !slices.Contains(fields, field) {
		return nil
	}
	return bulk(db.data.HGet(key, field))
}

// storeSorted makes a list of the replies; a missing one is the empty string.
func (s *Server) storeSorted(db *space, key string, replies []any) {
	there := s.exists(db, key)
	switch {
	case len(replies) > 0:
	case s.has(sortStoresEmpty):
	case s.has(sortStoreKeeps) || !there:
		return
	}
	when, volatile := db.deadlines[key]
	s.drop(db, key)
	if volatile && s.has(sortStoresEmpty) {
		db.deadlines[key] = when // replaced in place, as by RENAME
	}
	list := make([]string, len(replies))
	for i, r := range replies {
		v, _ := r.([]byte)
		list[i] = string(v)
	}
	if len(list) > 0 {
		db.data.Push(key, list...) //nolint:errcheck // the key does not hold another type
	} else if s.has(sortStoresEmpty) {
		db.keepEmpty(key, "list")
	}
	s.touch(db, key)
}
