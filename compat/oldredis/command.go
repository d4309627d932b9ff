package oldredis

import (
	"strconv"
	"strings"
	"sync"
)

// commandTable says which commands there are: their flags and keys, from which version on they have which arity (the
// name counts; -3 means three or more; 0: no more), and the names of all that are alike in that.
//
// Flags: w writes, m is refused when memory is full, o was refused when memory was full before 2.6, x is not emulated.
// Keys says which arguments are keys: 1-2 the first two, 1- all from the first, 1-- all but the
// last, /2 every second one, n1 and n2 a count of keys in that argument and the keys after it, d2
// the same with a destination in the first argument.
const commandTable = `
wm 1    1.2:3 append decrby getset incrby setnx
-  -    1.2:2 7.0:-2 auth
-  1    2.6:-2 bitcount
wm 2-   2.6:-4 bitop
-  1    2.8:-3 bitpos hscan sscan zscan
w  1--  1.2:-3 blpop brpop
wm 1-2  2.2.5:4 brpoplpush
-  -    2.4:-2 client
-  -    2.0:-2 config psubscribe subscribe
wm 1-2  7.0:-3 copy
-  -    1.2:1 dbsize discard exec lastsave multi randomkey
wm 1    1.2:2 decr incr
w  1-   1.2:-2 del
w  1    8.6:-2 valkey-8.1:0 delex
w  1    valkey-9.1:3 delifeq
-  -    1.2:2 echo keys select
-  n2   2.6:-3 eval evalsha
-  n2   7.0:-3 eval_ro evalsha_ro
-  1-   1.2:2 3.0:-2 exists
w  1    1.2:3 7.0:-3 expire expireat
-  1    7.0:2 expiretime pexpiretime
w  -    1.2:1 5.0:-1 flushall flushdb
wm 1    5.0:-5 geoadd xadd
-  1    5.0:-4 geodist xrange xrevrange
-  1    5.0:-2 geopos touch
-  1    7.0:-7 geosearch
-  1    1.2:2 get hgetall hkeys hlen hvals llen scard smembers ttl type zcard
-  1    2.2.5:3 getbit
w  1    7.0:2 getdel
w  1    7.0:-2 getex
-  1    2.2.5:4 getrange
w  1    1.2:3 2.4:-3 hdel srem zrem
-  1    1.2:3 hexists hget lindex sismember zrank zrevrank
wm 1    2.0:4 hincrby hsetnx setex
wm 1    2.6:4 hincrbyfloat psetex
-  1    2.0:-3 hmget
wm 1    2.0:-4 hmset
-  1    7.0:-2 hrandfield zrandmember
wm 1    1.2:4 5.0:-4 hset
-  1    5.0:3 hstrlen
wm 1    2.6:3 incrbyfloat
-  -    1.2:1 2.6:-1 info
wm 1    2.2.5:5 linsert
wm 1-2  7.0:5 lmove
w  1    1.2:2 7.0:-2 lpop rpop
-  1    7.0:-3 lpos smismember zmscore
wm 1    1.2:3 2.4:-3 lpush rpush sadd
wm 1    2.2.5:3 5.0:-3 lpushx rpushx
-  1    1.2:4 lrange substr zcount
w  1    1.2:4 lrem ltrim zremrangebyrank zremrangebyscore
wm 1    1.2:4 lset zincrby
-  1-   1.2:-2 mget
w  1    1.2:3 move
wm 1-/2 1.2:-3 mset msetnx
-  2    2.2.5:-2 2.8:3 5.0:-2 object
w  1    2.2.5:2 persist
w  1    2.6:3 7.0:-3 pexpire pexpireat
wm 1    2.8:-2 pfadd
-  1-   2.8:-2 pfcount
wm 1-   2.8:-2 pfmerge
-  -    1.2:1 2.8:-1 ping
-  1    2.6:2 pttl
-  -    2.0:3 publish
-  -    2.0:-1 punsubscribe unsubscribe
w  1-2  1.2:3 rename renamenx
wm 1-2  1.2:3 rpoplpush
-  -    2.8:-2 scan
-  -    2.6:-2 script
o  1-   1.2:-2 sdiff sinter sunion
wm 1-   1.2:-3 sdiffstore sinterstore sunionstore
wm 1    1.2:3 2.6.12:-3 set
wm 1    2.2.5:4 setbit setrange
-  n1   7.0:-3 sintercard zinter zunion
w  1-2  1.2:4 smove
wm 1    1.2:-2 sort
w  1    1.2:2 5.0:-2 spop
-  1    1.2:2 2.6:-2 srandmember
-  1    2.2.5:2 strlen
-  -    2.6:1 time
w  1-   5.0:-2 unlink
-  -    2.2.5:1 unwatch
-  1-   2.2.5:-2 watch
w  1    5.0:-3 xdel
-  1    5.0:2 xlen
w  1    5.0:-2 7.0:-4 xtrim
wm 1    1.2:4 2.4:-4 zadd
wm d2   2.0:-4 zinterstore zunionstore
-  1    2.8:4 zlexcount
w  1    5.0:-2 zpopmax zpopmin
-  1    1.2:-4 zrange zrangebyscore zrevrange
-  1    2.8:-4 zrangebylex zrevrangebylex
w  1    2.8:4 zremrangebylex
-  1    2.2.5:-4 zrevrangebyscore
o  1    1.2:3 zscore
x  -    7.0:-1 acl bitfield_ro blmove blmpop bzmpop failover fcall fcall_ro function georadius_ro
x  -    7.0:-1 georadiusbymember_ro geosearchstore hello lcs lmpop quit reset sentinel sort_ro spublish
x  -    7.0:-1 ssubscribe sunsubscribe xautoclaim zdiff zdiffstore zintercard zmpop zrangestore
x  -    1.2:-1 bgrewriteaof bgsave debug monitor save shutdown slaveof sync
x  -    5.0:-1 bitfield bzpopmax bzpopmin geohash georadius georadiusbymember lolwut memory module replicaof
x  -    5.0:-1 swapdb xack xclaim xgroup xinfo xpending xread xreadgroup xsetid
x  -    3.0:-1 cluster readonly readwrite wait
x  -    2.8:-1 command latency psync pubsub role
x  -    2.6:-1 dump migrate restore
x  -    2.4:-1 replconf
x  -    2.2:-1 slowlog
`

// A command describes one command of one version.
type command struct {
	name  string // lower case, as error replies spell it
	arity int    // as in commandTable
	keys  keySpec
	// writes is set for commands that may change a key.
	writes bool
	// grows is set for commands that this version refuses when memory is full.
	grows bool
	// run is nil if oldredis does not emulate the command.
	run handler
}

// A handler runs a command; args includes the name. It returns a reply in redigo's types (see
// reply.go).
type handler func(s *Server, c *session, args []string) any

// accepts reports whether n arguments, the name included, satisfy the arity.
func (c *command) accepts(n int) bool {
	if c.arity >= 0 {
		return n == c.arity
	}
	return n >= -c.arity
}

// A keySpec finds the keys among a command's arguments.
type keySpec struct {
	first, last, step int // last counts from the end if negative
	count             int // the argument that counts the keys, or 0
	dest              bool
}

// in returns the positions of the keys in args.
func (k keySpec) in(args []string, buf []int) []int {
	first, last := k.first, k.last
	if k.count > 0 {
		if len(args) <= k.count {
			return buf
		}
		n, err := strconv.Atoi(args[k.count])
		if err != nil || n < 0 {
			return buf
		}
		if k.dest {
			buf = append(buf, 1)
		}
		first, last = k.count+1, k.count+n
	}
	if first == 0 {
		return buf
	}
	if last < 0 {
		last += len(args)
	}
	for i := first; i <= last && i < len(args); i += k.step {
		buf = append(buf, i)
	}
	return buf
}

func parseKeySpec(s string) keySpec {
	k := keySpec{step: 1}
	switch {
	case s == "-":
		return k
	case s[0] == 'n' || s[0] == 'd':
		k.count, k.dest = int(s[1]-'0'), s[0] == 'd'
		return k
	}
	s, step, stepped := strings.Cut(s, "/")
	if stepped {
		k.step = int(step[0] - '0')
	}
	k.first = int(s[0] - '0')
	switch rest := s[1:]; rest {
	case "":
		k.last = k.first
	case "-":
		k.last = -1
	case "--":
		k.last = -2
	default:
		k.last = int(rest[1] - '0')
	}
	return k
}

// columns maps each version to its commands by name, in lower and in upper case: nearly all clients
// write one of the two.
var columns = sync.OnceValue(func() map[string]map[string]*command {
	handlers, quirks := handlers(), quirksOf()
	table := make(map[string]map[string]*command, len(all))
	for _, v := range all {
		table[v] = make(map[string]*command)
	}
	for line := range strings.Lines(strings.TrimSpace(commandTable)) {
		f := strings.Fields(line)
		flags, keys := f[0], parseKeySpec(f[1])
		arities := make(map[string]int)
		names := f[2:]
		for ; strings.Contains(names[0], ":"); names = names[1:] {
			since, arity, _ := strings.Cut(names[0], ":")
			arities[since], _ = strconv.Atoi(arity)
		}
		arity := 0 // before there is such a command
		for _, v := range all {
			if changed, ok := arities[v]; ok {
				arity = changed
			}
			if arity == 0 {
				continue
			}
			for _, name := range names {
				c := &command{
					name:   name,
					arity:  arity,
					keys:   keys,
					writes: strings.Contains(flags, "w"),
					grows:  strings.Contains(flags, "m") || strings.Contains(flags, "o") && quirks[v].has(oldMemoryRules),
					run:    handlers[name],
				}
				if c.run == nil && flags != "x" {
					c.run = func(s *Server, ss *session, args []string) any { return s.forward(ss, c, args) }
				}
				table[v][name], table[v][strings.ToUpper(name)] = c, c
			}
		}
	}
	return table
})
