package oldredis

import (
	"strconv"
	"strings"
	"sync"
)

// commandTable says which commands each version has. There is one column per version: it holds the
// command's arity (the name counts; -3 means three or more), or a dot if the command does not
// exist.
//
// Flags: w writes, m is refused when memory is full, o was refused when memory was full before 2.6.
// Keys says which arguments are keys: 1-2 the first two, 1- all from the first, 1-- all but the
// last, /2 every second one, n1 and n2 a count of keys in that argument and the keys after it, d2
// the same with a destination in the first argument.
const commandTable = `
command              flags keys     1.2    2.0  2.2.5    2.2    2.4    2.6 2.6.12    2.8    3.0    5.0    7.0
acl                  -     -          .      .      .      .      .      .      .      .      .      .     -2
append               wm    1          3      3      3      3      3      3      3      3      3      3      3
auth                 -     -          2      2      2      2      2      2      2      2      2      2     -2
bgrewriteaof         -     -          1      1      1      1      1      1      1      1      1      1      1
bgsave               -     -          1      1      1      1      1      1      1      1      1     -1     -1
bitcount             -     1          .      .      .      .      .     -2     -2     -2     -2     -2     -2
bitfield             wm    1          .      .      .      .      .      .      .      .      .     -2     -2
bitfield_ro          -     1          .      .      .      .      .      .      .      .      .      .     -2
bitop                wm    2-         .      .      .      .      .     -4     -4     -4     -4     -4     -4
bitpos               -     1          .      .      .      .      .      .      .     -3     -3     -3     -3
blmove               wm    1-2        .      .      .      .      .      .      .      .      .      .      6
blmpop               w     n2         .      .      .      .      .      .      .      .      .      .     -5
blpop                w     1--       -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
brpop                w     1--       -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
brpoplpush           wm    1-2        .      .      4      4      4      4      4      4      4      4      4
bzmpop               w     n2         .      .      .      .      .      .      .      .      .      .     -5
bzpopmax             w     1--        .      .      .      .      .      .      .      .      .     -3     -3
bzpopmin             w     1--        .      .      .      .      .      .      .      .      .     -3     -3
client               -     -          .      .      .      .     -2     -2     -2     -2     -2     -2     -2
cluster              -     -          .      .      .      .      .      .      .      .     -2     -2     -2
command              -     -          .      .      .      .      .      .      .      0      0      0     -1
config               -     -          .     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
copy                 wm    1-2        .      .      .      .      .      .      .      .      .      .     -3
dbsize               -     -          1      1      1      1      1      1      1      1      1      1      1
debug                -     -         -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
decr                 wm    1          2      2      2      2      2      2      2      2      2      2      2
decrby               wm    1          3      3      3      3      3      3      3      3      3      3      3
del                  w     1-        -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
discard              -     -          1      1      1      1      1      1      1      1      1      1      1
dump                 -     1          .      .      .      .      .      2      2      2      2      2      2
echo                 -     -          2      2      2      2      2      2      2      2      2      2      2
eval                 -     n2         .      .      .      .      .     -3     -3     -3     -3     -3     -3
eval_ro              -     n2         .      .      .      .      .      .      .      .      .      .     -3
evalsha              -     n2         .      .      .      .      .     -3     -3     -3     -3     -3     -3
evalsha_ro           -     n2         .      .      .      .      .      .      .      .      .      .     -3
exec                 -     -          1      1      1      1      1      1      1      1      1      1      1
exists               -     1-         2      2      2      2      2      2      2      2     -2     -2     -2
expire               w     1          3      3      3      3      3      3      3      3      3      3     -3
expireat             w     1          3      3      3      3      3      3      3      3      3      3     -3
expiretime           -     1          .      .      .      .      .      .      .      .      .      .      2
failover             -     -          .      .      .      .      .      .      .      .      .      .     -1
fcall                -     n2         .      .      .      .      .      .      .      .      .      .     -3
fcall_ro             -     n2         .      .      .      .      .      .      .      .      .      .     -3
flushall             w     -          1      1      1      1      1      1      1      1      1     -1     -1
flushdb              w     -          1      1      1      1      1      1      1      1      1     -1     -1
function             -     -          .      .      .      .      .      .      .      .      .      .     -2
geoadd               wm    1          .      .      .      .      .      .      .      .      .     -5     -5
geodist              -     1          .      .      .      .      .      .      .      .      .     -4     -4
geohash              -     1          .      .      .      .      .      .      .      .      .     -2     -2
geopos               -     1          .      .      .      .      .      .      .      .      .     -2     -2
georadius            wm    1          .      .      .      .      .      .      .      .      .     -6     -6
georadius_ro         -     1          .      .      .      .      .      .      .      .      .      .     -6
georadiusbymember    wm    1          .      .      .      .      .      .      .      .      .     -5     -5
georadiusbymember_ro -     1          .      .      .      .      .      .      .      .      .      .     -5
geosearch            -     1          .      .      .      .      .      .      .      .      .      .     -7
geosearchstore       wm    1-2        .      .      .      .      .      .      .      .      .      .     -8
get                  -     1          2      2      2      2      2      2      2      2      2      2      2
getbit               -     1          .      .      3      3      3      3      3      3      3      3      3
getdel               w     1          .      .      .      .      .      .      .      .      .      .      2
getex                w     1          .      .      .      .      .      .      .      .      .      .     -2
getrange             -     1          .      .      4      4      4      4      4      4      4      4      4
getset               wm    1          3      3      3      3      3      3      3      3      3      3      3
hdel                 w     1          3      3      3      3     -3     -3     -3     -3     -3     -3     -3
hello                -     -          .      .      .      .      .      .      .      .      .      .     -1
hexists              -     1          3      3      3      3      3      3      3      3      3      3      3
hget                 -     1          3      3      3      3      3      3      3      3      3      3      3
hgetall              -     1          2      2      2      2      2      2      2      2      2      2      2
hincrby              wm    1          .      4      4      4      4      4      4      4      4      4      4
hincrbyfloat         wm    1          .      .      .      .      .      4      4      4      4      4      4
hkeys                -     1          2      2      2      2      2      2      2      2      2      2      2
hlen                 -     1          2      2      2      2      2      2      2      2      2      2      2
hmget                -     1          .     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
hmset                wm    1          .     -4     -4     -4     -4     -4     -4     -4     -4     -4     -4
hrandfield           -     1          .      .      .      .      .      .      .      .      .      .     -2
hscan                -     1          .      .      .      .      .      .      .     -3     -3     -3     -3
hset                 wm    1          4      4      4      4      4      4      4      4      4     -4     -4
hsetnx               wm    1          .      4      4      4      4      4      4      4      4      4      4
hstrlen              -     1          .      .      .      .      .      .      .      .      .      3      3
hvals                -     1          2      2      2      2      2      2      2      2      2      2      2
incr                 wm    1          2      2      2      2      2      2      2      2      2      2      2
incrby               wm    1          3      3      3      3      3      3      3      3      3      3      3
incrbyfloat          wm    1          .      .      .      .      .      3      3      3      3      3      3
info                 -     -          1      1      1      1      1     -1     -1     -1     -1     -1     -1
keys                 -     -          2      2      2      2      2      2      2      2      2      2      2
lastsave             -     -          1      1      1      1      1      1      1      1      1      1      1
latency              -     -          .      .      .      .      .      .      .     -2     -2     -2     -2
lcs                  -     1          .      .      .      .      .      .      .      .      .      .     -3
lindex               -     1          3      3      3      3      3      3      3      3      3      3      3
linsert              wm    1          .      .      5      5      5      5      5      5      5      5      5
llen                 -     1          2      2      2      2      2      2      2      2      2      2      2
lmove                wm    1-2        .      .      .      .      .      .      .      .      .      .      5
lmpop                w     n1         .      .      .      .      .      .      .      .      .      .     -4
lolwut               -     -          .      .      .      .      .      .      .      .      .     -1     -1
lpop                 w     1          2      2      2      2      2      2      2      2      2      2     -2
lpos                 -     1          .      .      .      .      .      .      .      .      .      .     -3
lpush                wm    1          3      3      3      3     -3     -3     -3     -3     -3     -3     -3
lpushx               wm    1          .      .      3      3      3      3      3      3      3     -3     -3
lrange               -     1          4      4      4      4      4      4      4      4      4      4      4
lrem                 w     1          4      4      4      4      4      4      4      4      4      4      4
lset                 wm    1          4      4      4      4      4      4      4      4      4      4      4
ltrim                w     1          4      4      4      4      4      4      4      4      4      4      4
memory               -     -          .      .      .      .      .      .      .      .      .     -2     -2
mget                 -     1-        -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
migrate              w     3          .      .      .      .      .      6      6      6     -6     -6     -6
module               -     -          .      .      .      .      .      .      .      .      .     -2     -2
monitor              -     -          1      1      1      1      1      1      1      1      1      1      1
move                 w     1          3      3      3      3      3      3      3      3      3      3      3
mset                 wm    1-/2      -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
msetnx               wm    1-/2      -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
multi                -     -          1      1      1      1      1      1      1      1      1      1      1
object               -     2          .      .     -2     -2     -2     -2     -2      3      3     -2     -2
persist              w     1          .      .      2      2      2      2      2      2      2      2      2
pexpire              w     1          .      .      .      .      .      3      3      3      3      3     -3
pexpireat            w     1          .      .      .      .      .      3      3      3      3      3     -3
pexpiretime          -     1          .      .      .      .      .      .      .      .      .      .      2
pfadd                wm    1          .      .      .      .      .      .      .     -2     -2     -2     -2
pfcount              -     1-         .      .      .      .      .      .      .     -2     -2     -2     -2
pfmerge              wm    1-         .      .      .      .      .      .      .     -2     -2     -2     -2
ping                 -     -          1      1      1      1      1      1      1     -1     -1     -1     -1
psetex               wm    1          .      .      .      .      .      4      4      4      4      4      4
psubscribe           -     -          .     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
psync                -     -          .      .      .      .      .      .      .      3      3      3     -3
pttl                 -     1          .      .      .      .      .      2      2      2      2      2      2
publish              -     -          .      3      3      3      3      3      3      3      3      3      3
pubsub               -     -          .      .      .      .      .      .      .     -2     -2     -2     -2
punsubscribe         -     -          .     -1     -1     -1     -1     -1     -1     -1     -1     -1     -1
quit                 -     -          .      .      .      .      .      .      .      .      .      .     -1
randomkey            -     -          1      1      1      1      1      1      1      1      1      1      1
readonly             -     -          .      .      .      .      .      .      .      .      1      1      1
readwrite            -     -          .      .      .      .      .      .      .      .      1      1      1
rename               w     1-2        3      3      3      3      3      3      3      3      3      3      3
renamenx             w     1-2        3      3      3      3      3      3      3      3      3      3      3
replconf             -     -          .      .      .      .     -1     -1     -1     -1     -1     -1     -1
replicaof            -     -          .      .      .      .      .      .      .      .      .      3      3
reset                -     -          .      .      .      .      .      .      .      .      .      .      1
restore              wm    1          .      .      .      .      .      4      4      4     -4     -4     -4
role                 -     -          .      .      .      .      .      .      .      1      1      1      1
rpop                 w     1          2      2      2      2      2      2      2      2      2      2     -2
rpoplpush            wm    1-2        3      3      3      3      3      3      3      3      3      3      3
rpush                wm    1          3      3      3      3     -3     -3     -3     -3     -3     -3     -3
rpushx               wm    1          .      .      3      3      3      3      3      3      3     -3     -3
sadd                 wm    1          3      3      3      3     -3     -3     -3     -3     -3     -3     -3
save                 -     -          1      1      1      1      1      1      1      1      1      1      1
scan                 -     -          .      .      .      .      .      .      .     -2     -2     -2     -2
scard                -     1          2      2      2      2      2      2      2      2      2      2      2
script               -     -          .      .      .      .      .     -2     -2     -2     -2     -2     -2
sdiff                o     1-        -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
sdiffstore           wm    1-        -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
select               -     -          2      2      2      2      2      2      2      2      2      2      2
sentinel             -     -          .      .      .      .      .      .      .      .      .      .     -2
set                  wm    1          3      3      3      3      3      3     -3     -3     -3     -3     -3
setbit               wm    1          .      .      4      4      4      4      4      4      4      4      4
setex                wm    1          .      4      4      4      4      4      4      4      4      4      4
setnx                wm    1          3      3      3      3      3      3      3      3      3      3      3
setrange             wm    1          .      .      4      4      4      4      4      4      4      4      4
shutdown             -     -          1      1      1      1      1     -1     -1     -1     -1     -1     -1
sinter               o     1-        -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
sintercard           -     n1         .      .      .      .      .      .      .      .      .      .     -3
sinterstore          wm    1-        -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
sismember            -     1          3      3      3      3      3      3      3      3      3      3      3
slaveof              -     -          3      3      3      3      3      3      3      3      3      3      3
slowlog              -     -          .      .      .     -2     -2     -2     -2     -2     -2     -2     -2
smembers             -     1          2      2      2      2      2      2      2      2      2      2      2
smismember           -     1          .      .      .      .      .      .      .      .      .      .     -3
smove                w     1-2        4      4      4      4      4      4      4      4      4      4      4
sort                 wm    1         -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
sort_ro              -     1          .      .      .      .      .      .      .      .      .      .     -2
spop                 w     1          2      2      2      2      2      2      2      2      2     -2     -2
spublish             -     -          .      .      .      .      .      .      .      .      .      .      3
srandmember          -     1          2      2      2      2      2     -2     -2     -2     -2     -2     -2
srem                 w     1          3      3      3      3     -3     -3     -3     -3     -3     -3     -3
sscan                -     1          .      .      .      .      .      .      .     -3     -3     -3     -3
ssubscribe           -     -          .      .      .      .      .      .      .      .      .      .     -2
strlen               -     1          .      .      2      2      2      2      2      2      2      2      2
subscribe            -     -          .     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
substr               -     1          4      4      4      4      4      4      4      4      4      4      4
sunion               o     1-        -2     -2     -2     -2     -2     -2     -2     -2     -2     -2     -2
sunionstore          wm    1-        -3     -3     -3     -3     -3     -3     -3     -3     -3     -3     -3
sunsubscribe         -     -          .      .      .      .      .      .      .      .      .      .     -1
swapdb               w     -          .      .      .      .      .      .      .      .      .      3      3
sync                 -     -          1      1      1      1      1      1      1      1      1      1      1
time                 -     -          .      .      .      .      .      1      1      1      1      1      1
touch                -     1          .      .      .      .      .      .      .      .      .     -2     -2
ttl                  -     1          2      2      2      2      2      2      2      2      2      2      2
type                 -     1          2      2      2      2      2      2      2      2      2      2      2
unlink               w     1-         .      .      .      .      .      .      .      .      .     -2     -2
unsubscribe          -     -          .     -1     -1     -1     -1     -1     -1     -1     -1     -1     -1
unwatch              -     -          .      .      1      1      1      1      1      1      1      1      1
wait                 -     -          .      .      .      .      .      .      .      .      3      3      3
watch                -     1-         .      .     -2     -2     -2     -2     -2     -2     -2     -2     -2
xack                 w     1          .      .      .      .      .      .      .      .      .     -4     -4
xadd                 wm    1          .      .      .      .      .      .      .      .      .     -5     -5
xautoclaim           w     1          .      .      .      .      .      .      .      .      .      .     -6
xclaim               w     1          .      .      .      .      .      .      .      .      .     -6     -6
xdel                 w     1          .      .      .      .      .      .      .      .      .     -3     -3
xgroup               -     2          .      .      .      .      .      .      .      .      .     -2     -2
xinfo                -     2          .      .      .      .      .      .      .      .      .     -2     -2
xlen                 -     1          .      .      .      .      .      .      .      .      .      2      2
xpending             -     1          .      .      .      .      .      .      .      .      .     -3     -3
xrange               -     1          .      .      .      .      .      .      .      .      .     -4     -4
xread                -     1          .      .      .      .      .      .      .      .      .     -4     -4
xreadgroup           w     1          .      .      .      .      .      .      .      .      .     -7     -7
xrevrange            -     1          .      .      .      .      .      .      .      .      .     -4     -4
xsetid               wm    1          .      .      .      .      .      .      .      .      .      3     -3
xtrim                w     1          .      .      .      .      .      .      .      .      .     -2     -4
zadd                 wm    1          4      4      4      4     -4     -4     -4     -4     -4     -4     -4
zcard                -     1          2      2      2      2      2      2      2      2      2      2      2
zcount               -     1          4      4      4      4      4      4      4      4      4      4      4
zdiff                -     n1         .      .      .      .      .      .      .      .      .      .     -3
zdiffstore           wm    d2         .      .      .      .      .      .      .      .      .      .     -4
zincrby              wm    1          4      4      4      4      4      4      4      4      4      4      4
zinter               -     n1         .      .      .      .      .      .      .      .      .      .     -3
zintercard           -     n1         .      .      .      .      .      .      .      .      .      .     -3
zinterstore          wm    d2         .     -4     -4     -4     -4     -4     -4     -4     -4     -4     -4
zlexcount            -     1          .      .      .      .      .      .      .      4      4      4      4
zmpop                w     n1         .      .      .      .      .      .      .      .      .      .     -4
zmscore              -     1          .      .      .      .      .      .      .      .      .      .     -3
zpopmax              w     1          .      .      .      .      .      .      .      .      .     -2     -2
zpopmin              w     1          .      .      .      .      .      .      .      .      .     -2     -2
zrandmember          -     1          .      .      .      .      .      .      .      .      .      .     -2
zrange               -     1         -4     -4     -4     -4     -4     -4     -4     -4     -4     -4     -4
zrangebylex          -     1          .      .      .      .      .      .      .     -4     -4     -4     -4
zrangebyscore        -     1         -4     -4     -4     -4     -4     -4     -4     -4     -4     -4     -4
zrangestore          wm    1-2        .      .      .      .      .      .      .      .      .      .     -5
zrank                -     1          3      3      3      3      3      3      3      3      3      3      3
zrem                 w     1          3      3      3      3     -3     -3     -3     -3     -3     -3     -3
zremrangebylex       w     1          .      .      .      .      .      .      .      4      4      4      4
zremrangebyrank      w     1          4      4      4      4      4      4      4      4      4      4      4
zremrangebyscore     w     1          4      4      4      4      4      4      4      4      4      4      4
zrevrange            -     1         -4     -4     -4     -4     -4     -4     -4     -4     -4     -4     -4
zrevrangebylex       -     1          .      .      .      .      .      .      .     -4     -4     -4     -4
zrevrangebyscore     -     1          .      .     -4     -4     -4     -4     -4     -4     -4     -4     -4
zrevrank             -     1          3      3      3      3      3      3      3      3      3      3      3
zscan                -     1          .      .      .      .      .      .      .     -3     -3     -3     -3
zscore               o     1          3      3      3      3      3      3      3      3      3      3      3
zunion               -     n1         .      .      .      .      .      .      .      .      .      .     -3
zunionstore          wm    d2         .     -4     -4     -4     -4     -4     -4     -4     -4     -4     -4
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
	// run is the command's handler. Without one, miniredis runs the command if passes is set. With
	// neither, oldredis does not emulate it.
	run    handler
	passes bool
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
func columns() map[string]map[string]*command {
	table.once.Do(func() { table.columns = readColumns() })
	return table.columns
}

// table is what columns returns. It is no sync.OnceValue, because the handlers use columns.
var table struct {
	once    sync.Once
	columns map[string]map[string]*command
}

func readColumns() map[string]map[string]*command {
	handlers, passed, quirks := handlers(), wordSet(passed), quirksOf()
	lines := strings.Split(strings.TrimSpace(commandTable), "\n")
	versions := strings.Fields(lines[0])[3:]
	all := make(map[string]map[string]*command, len(versions))
	for _, v := range versions {
		all[v] = make(map[string]*command)
	}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		for i, v := range versions {
			arity, err := strconv.Atoi(f[3+i])
			if err != nil {
				continue // a dot: not in this version
			}
			c := &command{
				name:   f[0],
				arity:  arity,
				keys:   parseKeySpec(f[2]),
				writes: strings.Contains(f[1], "w"),
				grows:  strings.Contains(f[1], "m") || strings.Contains(f[1], "o") && quirks[v].has(oldMemoryRules),
				run:    handlers[f[0]],
				passes: passed[f[0]],
			}
			all[v][f[0]] = c
			all[v][strings.ToUpper(f[0])] = c
		}
	}
	return all
}
