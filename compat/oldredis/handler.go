package oldredis

// handlers returns the commands with differences between versions, and all about deadlines, watches or connections:
// this package manages those. miniredis runs the rest.
func handlers() map[string]handler {
	return map[string]handler{
		"get": get, "set": set, "setnx": setnx,
		"setex": in(inSeconds, (*Server).setExpiring), "psetex": in(inMillis, (*Server).setExpiring), "getset": getset,
		"mget": mget, "mset": mset, "msetnx": msetnx, "append": appendTo, "substr": substr,
		"incr": adding(1), "decr": adding(-1), "incrby": adding(1), "decrby": adding(-1),
		"getdel": timed, "getex": timed, "copy": timed,

		"expire": in(inSeconds, (*Server).expire), "expireat": in(atSecond, (*Server).expire),
		"pexpire": in(inMillis, (*Server).expire), "pexpireat": in(atMilli, (*Server).expire),
		"ttl": in(inSeconds, (*Server).ttl), "pttl": in(inMillis, (*Server).ttl), "persist": persist,
		"expiretime": in(inSeconds, (*Server).expiretime), "pexpiretime": in(inMillis, (*Server).expiretime),

		"del": del, "unlink": del, "delifeq": delifeq, "delex": delex, "exists": exists, "type": typeOf,
		"rename": renaming(false, replyOK), "renamenx": renaming(true, int64(1)),
		"move": moveTo, "keys": keys, "scan": scan, "randomkey": randomkey, "dbsize": dbsize,
		"flushdb": flushdb, "flushall": flushall, "select": selectDB,

		"multi": multi, "exec": exec, "discard": discard, "watch": watchKeys, "unwatch": unwatchKeys,
		"eval": eval, "evalsha": eval, "eval_ro": eval, "evalsha_ro": eval, "script": scriptCommand,
		"sort": sortList, "blpop": popping("LPOP"), "brpop": popping("RPOP"), "brpoplpush": brpoplpush,
		"subscribe": subscribe, "psubscribe": psubscribe, "unsubscribe": unsubscribe,
		"punsubscribe": punsubscribe, "publish": publish,

		"ping": ping, "echo": echo, "time": timeNow, "info": info, "config": config, "client": clientCmd,
		"lastsave": lastsave, "auth": auth,
	}
}
