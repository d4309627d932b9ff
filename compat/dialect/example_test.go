package dialect_test

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
)

// Milliseconds on a key whose clients write seconds, with a TTL that some other
// client gave it.
func ExampleRecognise() {
	now := time.Unix(1795238700, 0)
	for _, f := range dialect.Recognise("RedisMutex:report", "1795238718058", 5*time.Second, now) {
		fmt.Println(f.Kind, f.What, f.Status, f.Until.Sub(now))
		for _, w := range f.Wrong {
			fmt.Println("-", w)
		}
	}
	// Output:
	// T-ms integer milliseconds alive 18.058s
	// - the key has a TTL of 5s, which ends the lock before its deadline: a client repaired it as if it were a token
	// - integer milliseconds is not what keys of this name hold: redis-mutex (T-f)
}

// What a client writes, and how it calls the key.
func ExampleLookup() {
	f, err := dialect.Lookup("npm-redis-lock-0.0")
	fmt.Println(f.Kind, f.Key("report"), f.Plus, f.Inclusive, f.Win, err)
	_, err = dialect.Lookup("redis-py")
	fmt.Println(err)
	// Output:
	// T-ms lock.report 1ms true equal <nil>
	// setnxlock: no such dialect: "redis-py"; near it are redis-py-3, redis-py-2.9, redis-py-2.10, redis-py-2.2.3, redis-docs
}
