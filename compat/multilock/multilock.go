// Package multilock locks several keys at once: all of them, or none.
//
//	locks := compat.New(pool, multilock.Tx{}, compat.Options{Prefix: "stock:"})
//	lock, err := locks.Lock(ctx, multilock.Join("apples", "pears"), 30*time.Second)
//
// One lock stands for all keys: it is extended, renewed, handed off and released as one. Each key
// holds what a lock of that key alone would hold, so locks of sets and locks of single keys exclude
// each other if both are of one kind:
//
//	single keys         several at once                               from
//	txlock, setlock     Tx: one EXEC under WATCH                      2.2
//	getsetlock.Guarded  GetSet: one MSETNX, or one EXEC under WATCH   2.2
//	getsetlock          GetSetClassic: one MSETNX, or one EXEC        1.2
//	any                 New: one key after the other                  as the algorithm
//
// Each of the first three is a [protocol.Algorithm], on one server: at no moment is only a part of
// the set held. The Backend of [New] takes the keys one by one, in the order of their bytes, over
// any Source: on a cluster, where no command may have keys of different slots, and through proxies.
// With it alone, a crash can leave a part of the keys held, until their leases end. Over
// rwlock.Read it is a lock for readers of sets.
//
// MSETNX makes all keys or none, but can't give them a TTL: so it serves getsetlock, whose keys
// have none, and not txlock.
//
// None of them waits for a key while it holds another, so there is no deadlock, in whatever order
// other clients take their keys. The price: a client gets the set only at a moment when all its
// keys are free, so a large set of busy keys may have to wait for long. If the same sets are always
// locked, lock one key that stands for all. If you may hold some keys while you wait for others,
// take single locks one after the other, always in the same order.
//
// # Cost
//
// Round trips for n keys, when all are free:
//
//	               acquire        refused   extend   release
//	Tx             2              2         2        2
//	GetSet         1              3         2        2
//	GetSetClassic  1              2         2        2
//	New            n × the algorithm's, and as many again to undo a refusal by the last
//
// # Losing one
//
// If one key is lost, the set is lost: Extend and Release return [protocol.ErrLost], and have
// released the other keys.
//
// # Fences
//
// The lock has one fence, which is each key's fence: higher than any that was drawn for one of the
// keys before, and lower than all that will be. It draws from each key's counter and raises the
// counters that are behind the highest: one round trip more if they differed, none the next time.
package multilock
