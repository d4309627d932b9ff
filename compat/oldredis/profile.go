package oldredis

import (
	"strings"
	"sync"
)

// A profile is a server that is not a Redis of one version.
type profile struct {
	version string
	refuse  []string
	// serves lists the only commands that do not end the connection; nil means all.
	serves map[string]bool
}

var profileOf = sync.OnceValue(func() map[string]*profile {
	return map[string]*profile{
		"twemproxy": {version: "2.8", serves: wordSet(twemproxyServes)},
		"noscript": {version: "7.0", refuse: []string{
			"eval", "evalsha", "eval_ro", "evalsha_ro", "script", "fcall", "fcall_ro", "function",
		}},
	}
})

// twemproxyServes are the commands of twemproxy 0.2.4. It closes the connection on any other
// command, and on a wrong number of arguments.
const twemproxyServes = `
	del exists expire expireat persist pexpire pexpireat pttl ttl type
	append bitcount decr decrby dump get getbit getrange getset incr incrby incrbyfloat
	mget psetex restore set setbit setex setnx setrange sort
	hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hset hsetnx hvals
	lindex linsert llen lpop lpush lpushx lrange lrem lset ltrim rpop rpoplpush rpush rpushx
	sadd scard sdiff sdiffstore sinter sinterstore sismember smembers smove spop srandmember srem
	sunion sunionstore
	zadd zcard zcount zincrby zinterstore zrange zrangebyscore zrank zrem zremrangebyrank
	zremrangebyscore zrevrange zrevrangebyscore zrevrank zscore zunionstore
	eval evalsha
`

func wordSet(list string) map[string]bool {
	set := make(map[string]bool)
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// closes reports whether the profile's server ends the connection instead of
// answering.
func (p *profile) closes(args []string, cmd *command) bool {
	switch {
	case p.serves == nil:
		return false
	case cmd == nil || !p.serves[cmd.name] || !cmd.accepts(len(args)):
		return true
	case cmd.name == "set":
		return len(args) != 3 // SET NX PX came with 0.3.0
	case cmd.name == "eval" || cmd.name == "evalsha":
		return args[2] != "1" // the key says which server
	}
	return false
}
