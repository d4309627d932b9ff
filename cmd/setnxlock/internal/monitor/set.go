package monitor

import (
	"strconv"
	"strings"
	"time"
)

// A setting is the options of a SET, SETEX or PSETEX.
type setting struct {
	lease time.Duration
	nx    bool    // only if there is no key
	xx    bool    // only if there is one
	same  *string // only if it holds this value: IFEQ
	get   bool    // it answers with the value before, whatever it did
	keeps bool    // the TTL stays
}

func (r *run) options(args []string) setting {
	var o setting
	switch strings.ToUpper(args[0]) {
	case "SETEX":
		o.lease = r.lease(args[2], "EX")
		return o
	case "PSETEX":
		o.lease = r.lease(args[2], "PX")
		return o
	}
	for i := 3; i < len(args); i++ {
		word, value := strings.ToUpper(args[i]), ""
		if i+1 < len(args) {
			value = args[i+1]
		}
		switch word {
		case "NX":
			o.nx = true
		case "XX":
			o.xx = true
		case "GET":
			o.get = true
		case "KEEPTTL":
			o.keeps = true
		case "IFEQ":
			o.same, i = &value, i+1
		case "EX", "PX", "EXAT", "PXAT":
			o.lease, i = r.lease(value, word), i+1
		}
	}
	return o
}

// done reports by the answer whether it has written. With GET the answer is the value before, and only the
// condition tells.
func (o setting) done(answer any) bool {
	if !o.get {
		return answer == "OK"
	}
	before, had := answer.([]byte)
	switch {
	case o.nx:
		return !had
	case o.xx:
		return had
	case o.same != nil:
		return had && string(before) == *o.same
	}
	return true
}

// lease converts a number in a command's unit to a duration from now.
func (r *run) lease(n, unit string) time.Duration {
	d, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		return 0
	}
	switch unit {
	case "EX":
		return time.Duration(d) * time.Second
	case "PX":
		return time.Duration(d) * time.Millisecond
	case "EXAT":
		return time.Unix(d, 0).Sub(r.now)
	default:
		return time.UnixMilli(d).Sub(r.now)
	}
}
