// Package multilock locks several keys at once: all of them, or none.
//
//	locks := compat.New(pool, multilock.Tx{}, compat.Options{Prefix: "stock:"})
//	lock, err := locks.Lock(ctx, multilock.Join("apples", "pears"), 30*time.Second)
//
// One lock stands for all keys: it is extended, renewed, handed off and released as one. Each
// key holds what a lock of that key alone would, so that the locks of sets and those of single
// keys exclude each other, as long as both are of one kind:
//
//	single keys         several at once                               from
//	txlock, setlock     Tx: one EXEC under WATCH                      2.2
//	getsetlock.Guarded  GetSet: one MSETNX, or one EXEC under WATCH   2.2
//	getsetlock          GetSetClassic: one MSETNX, or one EXEC        1.2
//	any                 New: one key after the other                  as the algorithm
//
// Each of the first three is a [compat.Algorithm], on one server: there is no moment at which
// a part of the set is held. New's Backend takes the keys one by one, in the order of their
// bytes, over any Source: on a cluster, where no command has keys of different slots, and
// through proxies. It is the only one that a crash can leave with a part of its keys, until
// their time runs out. Over readers (rwlock.Read) it is a lock for readers of sets.
//
// MSETNX makes all keys or none, and can give none of them a TTL: so it serves getsetlock,
// whose keys have none, and not txlock.
//
// None waits for a key while it holds another, so there is no deadlock, whatever the order in
// which others take theirs. The price: a set is obtained only at a moment at which all of it is
// free, so that among busy single locks of its keys a large set can wait for long. Where the
// order can be chosen and holding some keys while waiting for others is right, take single
// locks one after the other; where the sets are always the same, lock one key that stands for
// all.
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
// A set of which one key is lost is lost: Extend and Release return ErrLost, and have released
// the other keys.
//
// # Fences
//
// The fence of the lock is the fence of each of its keys: one number, higher than any that was
// drawn for any of them before, and lower than all that will be. Each key's counter is drawn
// from, and those that are behind the highest are raised to it: one round trip more when they
// were apart, none after.
package multilock
