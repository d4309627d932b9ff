package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A client is another language's lock, as published in its registry.
type client struct {
	name     string // its folder in .clients
	what     string // for the page
	registry string
	dialect  string // our name for its dialect
	driver   string // the program of drivers that runs it

	lease time.Duration // the shortest that it can be given
	poll  time.Duration
	slow  bool // waiting, it sleeps longer than poll: fewer sections
	extra bool // it needs Python 2.7, which few machines have: it may be missing even with "all"

	lockName string // the program's name for its lock; "" for "report"
	asks     string // the command with which it takes a free key; "" for SETNX
	listens  bool   // it waits to be told of a release, and does not ask again by itself

	// What it does when it is late. A test checks each of these facts.
	late       string // the takeover command that another client can precede
	overwrites bool   // it takes over by a SET without looking, so it holds although another client was faster
	gone       bool   // it treats a missing key as an expired lock
	removes    string // its release compares by one command, and deletes by this one
	deletes    bool   // a release after its lease deletes its successor's lock
	ends       string // the separate command that gives the key its TTL
	immortal   bool   // without that command the key never expires
}

// clients has one or more clients of each dialect T-s, T-f, T-ms, K-py and K-owner.
var clients = []client{
	{
		name: "node-resque", what: "node-resque 9.7.1, QueueLock", registry: "npm", dialect: "node-resque", driver: "node_resque.js",
		lease: time.Second, poll: 15 * time.Millisecond, lockName: `report:high:[1]`,
		late: "SET", overwrites: true, gone: true, deletes: true, ends: "EXPIRE",
	},
	{
		name: "redis-py-2.2.2", what: "redis-py 2.2.2, Lock", registry: "PyPI", dialect: "redis-py-2.2.3", driver: "redis_py_2_2.py",
		lease: time.Second, poll: 15 * time.Millisecond, extra: true,
		late: "GETSET", gone: true, deletes: true,
	},
	{
		name: "redis-py-2.9.1", what: "redis-py 2.9.1, Lock", registry: "PyPI", dialect: "redis-py-2.9", driver: "redis_py_2_9.py",
		lease: time.Second, poll: 15 * time.Millisecond,
		late: "GETSET", gone: true, deletes: true,
	},
	{
		name: "retools", what: "retools 0.3, Lock", registry: "PyPI", dialect: "retools-0.3", driver: "retools_lock.py",
		lease: time.Second, poll: 15 * time.Millisecond,
		late: "GETSET", ends: "EXPIRE",
	},
	{
		name: "redset", what: "redset 0.5.1, Lock", registry: "PyPI", dialect: "redset", driver: "redset_lock.py",
		lease: time.Second, poll: 15 * time.Millisecond,
		late: "GETSET", deletes: true,
	},
	{
		name: "npm-redis-lock", what: "redis-lock 0.0.8", registry: "npm", dialect: "npm-redis-lock-0.0", driver: "npm_redis_lock.js",
		lease: time.Second, poll: 15 * time.Millisecond,
		late: "GETSET",
	},
	{
		name: "jedis-lock", what: "jedis-lock 1.0.0", registry: "Maven Central", dialect: "jedis-lock", driver: "JedisLockDriver.java",
		lease: time.Second, poll: 15 * time.Millisecond, slow: true,
		late: "GETSET", deletes: true,
	},
	{
		name: "redis-py-2.10.6", what: "redis-py 2.10.6, Lock", registry: "PyPI", dialect: "redis-py-2.10", driver: "redis_py_2_10.py",
		lease: time.Second, poll: 15 * time.Millisecond,
		ends: "PEXPIRE", immortal: true,
	},
	{
		name: "python3-redis", what: "redis-py 4.3.4, Lock", registry: "Debian", dialect: "redis-py-3", driver: "redis_py_today.py",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "SET",
	},
	{
		name: "Beaker", what: "Beaker 1.10.0, ext:redis", registry: "PyPI", dialect: "Beaker", driver: "beaker_lock.py",
		lease: time.Second, poll: 15 * time.Millisecond,
		ends: "PEXPIRE", immortal: true,
	},
	{
		name: "locky", what: "locky 0.3.3", registry: "npm", dialect: "locky", driver: "locky.js",
		lease: time.Second, poll: 15 * time.Millisecond,
		deletes: true, ends: "EXPIRE", immortal: true,
	},
	{
		name: "rq-scheduler", what: "rq-scheduler 0.14.0, Scheduler", registry: "PyPI", dialect: "rq-scheduler", driver: "rq_scheduler_lock.py",
		lease: time.Second, poll: 15 * time.Millisecond, lockName: "scheduler_lock", asks: "SET",
		deletes: true,
	},
	{
		name: "python-redis-lock", what: "python-redis-lock 4.0.0", registry: "PyPI", dialect: "python-redis-lock", driver: "python_redis_lock.py",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "SET", listens: true,
	},
	{
		name: "redlock-py", what: "redlock-py 1.0.8, one server", registry: "PyPI", dialect: "redlock-py", driver: "redlock_py.py",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "SET",
	},
	{
		name: "npm-redlock", what: "redlock 4.2.0, one server", registry: "npm", dialect: "npm-redlock", driver: "npm_redlock.js",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "EVAL",
	},
	{
		name: "npm-redis-semaphore", what: "redis-semaphore 5.6.2, Mutex", registry: "npm", dialect: "npm-redis-semaphore", driver: "npm_redis_semaphore.js",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "SET",
	},
	{
		name: "Bull", what: "Bull 4.16.5, a job's lock", registry: "npm", dialect: "Bull", driver: "bull_job.js",
		lease: time.Second, poll: 15 * time.Millisecond, lockName: "mail:17", asks: "EVAL",
	},
	{
		name: "redsync", what: "redsync 4.18.1, one server", registry: "the Go proxy", dialect: "redsync", driver: "go",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "SET",
	},
	{
		name: "bsm-redislock", what: "bsm/redislock 0.9.4", registry: "the Go proxy", dialect: "bsm-redislock", driver: "go",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "EVAL",
	},
	{
		name: "rueidislock", what: "rueidislock 1.0.79, KeyMajority 1", registry: "the Go proxy", dialect: "rueidislock", driver: "go",
		lease: time.Second, poll: 15 * time.Millisecond, asks: "EVAL", listens: true,
	},
	{
		name: "spring-5", what: "Spring Integration 5.5.20, RedisLockRegistry", registry: "Maven Central", dialect: "spring-5", driver: "SpringDriver.java",
		lease: time.Second, poll: 15 * time.Millisecond, slow: true, lockName: "locks:report", asks: "EVAL",
		removes: "UNLINK",
	},
	{
		name: "spring-6", what: "Spring Integration 6.3.4, RedisLockRegistry", registry: "Maven Central", dialect: "spring-6", driver: "SpringDriver.java",
		lease: time.Second, poll: 15 * time.Millisecond, slow: true, lockName: "locks:report", asks: "EVAL",
	},
	{
		name: "ShedLock", what: "ShedLock 5.12.0, Jedis", registry: "Maven Central", dialect: "ShedLock", driver: "ShedLockDriver.java",
		lease: time.Second, poll: 15 * time.Millisecond, slow: true, lockName: "prod:report", asks: "SET",
		deletes: true,
	},
}

// redisson is no client of ours: its locks are hashes. See TestInteropRedisson.
var redisson = client{
	name: "Redisson", what: "Redisson 3.37.0, RLock", registry: "Maven Central", driver: "RedissonDriver.java", lease: long, poll: time.Millisecond,
}

func (c client) format(t testing.TB) dialect.Format {
	t.Helper()
	return must.Get(dialect.Lookup(c.dialect))(t)
}

func (c client) nameOfLock() string {
	if c.lockName != "" {
		return c.lockName
	}
	return "report"
}

// key is the key that the client locks, according to package dialect.
func (c client) key(t testing.TB) string { return c.format(t).Key(c.nameOfLock()) }

// acquires is the command with which the client takes a free key.
func (c client) acquires() string {
	if c.asks == "" {
		return "SETNX"
	}
	return c.asks
}

// An algorithm is one of our locks in a client's dialect. lease is the longest lease in the fleet.
type algorithm struct {
	name    string
	new     func(lease time.Duration) protocol.Algorithm
	patient bool // takes over one lease after it first saw the value, not when it expires
}

// algorithms are our locks that can join a fleet of this client. The first is the one to use.
func (c client) algorithms(t testing.TB) []algorithm {
	t.Helper()
	f := c.format(t)
	if !f.Kind.Timed() {
		fleet := must.Get(txlock.Named(c.dialect))(t)
		list := []algorithm{{name: "txlock.Fleet", new: func(time.Duration) protocol.Algorithm { return fleet }}}
		switch { // clients that only ask whether the key is there can't tell our locks apart
		case f.Signal != "", c.slow:
			return list // only Fleet wakes waiters; and a JVM for each process is enough once
		case c.asks != "" && f.Kind != dialect.Python:
			return append(list, algorithm{name: "setlock.Lua", new: func(time.Duration) protocol.Algorithm { return setlock.Lua{} }})
		}
		list = append(list, []algorithm{
			{name: "txlock.Classic", new: func(time.Duration) protocol.Algorithm {
				return txlock.Classic{Options: fleet.Options, NoRepair: fleet.NoRepair}
			}},
			{name: "txlock.Renamed", new: func(time.Duration) protocol.Algorithm { return txlock.Renamed{Options: fleet.Options} }},
		}...)
		if f.Kind == dialect.Python {
			list = append(list,
				algorithm{name: "setlock.Lua", new: func(time.Duration) protocol.Algorithm { return setlock.Lua{} }},
				algorithm{name: "setlock.Watched", new: func(time.Duration) protocol.Algorithm { return setlock.Watched{} }})
		}
		return list
	}
	d := must.Get(getsetlock.Named(c.dialect))(t)
	o := getsetlock.Options{Dialect: d}
	list := []algorithm{
		{name: "getsetlock.Guarded", new: func(time.Duration) protocol.Algorithm { return getsetlock.Guarded{Options: o} }},
		{name: "getsetlock.Classic", new: func(time.Duration) protocol.Algorithm { return getsetlock.Classic{Options: o} }},
		{name: "getsetlock.Patient", patient: true, new: func(lease time.Duration) protocol.Algorithm {
			return getsetlock.Patient{Options: o, Lease: lease}
		}},
	}
	if d.Float {
		own := o
		own.Dialect.Nonce = true
		list = append(list, algorithm{name: "getsetlock.Guarded, Nonce", new: func(time.Duration) protocol.Algorithm { return getsetlock.Guarded{Options: own} }})
	}
	return list
}

const clientsDir = ".clients" // install.sh fills it

// missing explains that the client is not installed; it is "" if it is.
func (c client) missing() string {
	if _, err := os.Stat(filepath.Join(clientsDir, c.name)); err != nil {
		return c.what + " of " + c.registry + " is not installed"
	}
	return ""
}

// compiled has the drivers whose classes were compiled, once for all processes.
var compiled struct {
	sync.Mutex
	of map[string]bool
}

// compile compiles a Java driver against the client's own jars.
func (c client) compile(t testing.TB, dir, driver string) {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	if compiled.of[c.name] {
		return
	}
	cmd := exec.Command("javac", "-nowarn", "-cp", filepath.Join(dir, "*"), "-sourcepath", "drivers", "-d", filepath.Join(dir, "driver"), driver)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("javac %s: %v\n%s", driver, err, out)
	}
	if compiled.of == nil {
		compiled.of = map[string]bool{}
	}
	compiled.of[c.name] = true
}

// command returns the driver's command without its arguments.
func (c client) command(t testing.TB) *exec.Cmd {
	t.Helper()
	dir := must.Get(filepath.Abs(filepath.Join(clientsDir, c.name)))(t)
	driver := filepath.Join("drivers", c.driver)
	switch filepath.Ext(c.driver) {
	case "":
		return exec.Command(filepath.Join(dir, "driver"), c.name)
	case ".py":
		python := "python3"
		if _, err := os.Stat(filepath.Join(dir, "python")); err == nil {
			python = filepath.Join(dir, "python") // a client for Python 2.7 brings its interpreter
		}
		cmd := exec.Command(python, "-B", driver)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONWARNINGS=ignore") // code written for Python 2 causes warnings
		return cmd
	case ".js":
		cmd := exec.Command("node", driver)
		cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
		return cmd
	}
	path := filepath.Join(dir, "*") + string(filepath.ListSeparator) + filepath.Join(dir, "driver")
	c.compile(t, dir, driver)
	return exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", path, strings.TrimSuffix(c.driver, ".java"))
}
