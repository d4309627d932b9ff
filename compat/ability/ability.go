// Package ability is what a lock may need of a server: each ability with its name, the Redis that
// brought it, and the question that finds out whether a server has it. This is the only such table:
// a lock's own check (protocol.Traits.Check), package probe and the command all read it and ask its
// questions.
//
//	func (k Lock) check(c *protocol.Conn, key string) error {
//		return ability.Check(c, key, false, ability.Need{Ability: ability.Watch, Use: "another lock"})
//	}
//
// A question is asked on scratch keys. Each has a TTL from the moment it exists, or exists only
// inside one transaction or script: wherever the connection breaks, no key is left that never
// expires.
package ability

import "github.com/setnxlock/setnxlock/compat/internal/answer"

// An Ability is something that a lock may need of a server; the text is its name for people.
type Ability string

// The abilities that locks need.
const (
	Setnx        Ability = "SETNX"
	Getset       Ability = "GETSET"
	GetsetAndTTL Ability = "GETSET drops a TTL"
	Incr         Ability = "INCR"
	Multi        Ability = "MULTI"
	Setex        Ability = "SETEX"
	Lists        Ability = "SORT, LREM in MULTI"
	SetnxOnTTL   Ability = "SETNX on a key with a TTL"
	ExpireAgain  Ability = "EXPIRE again"
	Watch        Ability = "WATCH"
	Renamenx     Ability = "RENAMENX"
	Milliseconds Ability = "PSETEX, PEXPIRE, PTTL"
	Time         Ability = "TIME"
	Scripts      Ability = "EVAL"
	SetNXPX      Ability = "SET NX PX"
	SetIfEq      Ability = "SET IFEQ"
	DelIfEq      Ability = "DELIFEQ"
	DelEx        Ability = "DELEX"
)

// An ability is a row of the table.
type ability struct {
	name  Ability
	since string
	what  string
	lacks string // of a server that does not know the commands
	question
}

// table is in the order in which Redis got them.
var table = []ability{
	{Setnx, "1.0", "a held key refuses it", "it has no SETNX",
		question{how: asOne, cmds: "SETNX a held; SETNX a taken; DEL a", known: "SETNX",
			means: []meaning{{"1 0 *", ""}, {"", "SETNX sets a key that is held"}}}},
	{Getset, "1.0", "returns the old value", "it has no GETSET",
		question{how: asOne, cmds: "SETNX a old; GETSET a new; DEL a", known: "GETSET",
			means: []meaning{{`* "old" *`, ""}, {"", "GETSET does not return the old value"}}}},
	{GetsetAndTTL, "1.0", "a key that is taken over has no TTL", "it has no GETSET",
		question{how: asOne, cmds: "+ a old; GETSET a newer; TTL a; DEL a",
			means: []meaning{{"+ * -1 *", ""}, {"", "GETSET keeps the TTL"}}}},
	{Incr, "1.0", "numbers that grow: fences", "it has no INCR",
		question{how: asOne, cmds: "INCR a; INCR a; DEL a", means: []meaning{{"1 2 *", ""}, {"", "INCR does not count"}}}},
	{Multi, "1.2", "several commands as one", "it has no MULTI (it came with 1.2)",
		question{how: inMulti, cmds: "GET a; DEL a", means: []meaning{{"nil 0", ""}, {"", "MULTI runs other commands than were sent"}}}},
	{Setex, "2.0", "value and TTL in one", "it has no SETEX (it came with 2.0)",
		question{cmds: "SETEX a 60 x; TTL a; DEL a",
			means: []meaning{{"OK 1..60 *", ""}, {"OK -1 *", "SETEX does not give the key its TTL" + forever}}}},
	{Lists, "2.0", "lists compare and delete", "it lacks a list command (they came with 2.0)", question{by: (*Asker).lists}},
	{SetnxOnTTL, "2.2", "a held key refuses it", "it has no SETNX, or no SETEX",
		question{how: asOne, cmds: "+ a held; SETNX a taken; DEL a",
			means: []meaning{{"+ 0 *", ""}, {"", "SETNX deletes a key that has a TTL and takes it (mended in 2.2)"}}}},
	{ExpireAgain, "2.2", "a lease can be renewed", "it has no EXPIRE",
		question{cmds: "+ a x; EXPIRE a 120; TTL a; DEL a", means: []meaning{{"+ 1 61..120 *", ""},
			{"", "EXPIRE does not move the end of a key that has one (mended in 2.2), so no lease can be extended"}}}},
	{Watch, "2.2", "a touched key aborts EXEC", "it has no WATCH (it came with 2.2)", question{by: (*Asker).watch}},
	{Renamenx, "2.4", "the TTL travels with the name", "it has no RENAMENX",
		question{how: asOne, cmds: "+ a x; RENAMENX a b; TTL b; DEL b; + b held; + a y; RENAMENX a b; DEL a; DEL b", spares: answer.NoKey,
			means: []meaning{{"+ 1 1..60 * + + 0 * *", ""}, {"+ 1 1..60 * + + * * *", "RENAMENX renames onto a key that is held"},
				{"", "RENAMENX drops the TTL (it travels with the name since 2.4)" + forever}}}}, // 1.2 finds no source that has one
	{Milliseconds, "2.6", "milliseconds", "it counts in whole seconds (milliseconds came with 2.6)",
		question{cmds: "PSETEX a 60000 x; PEXPIRE a 120000; PTTL a; DEL a", means: []meaning{{"OK 1 60001..120000 *", ""}}}},
	{Time, "2.6", "its clock can be read", "it does not tell the time (TIME came with 2.6)", question{by: (*Asker).time}},
	{Scripts, "2.6", "compare and delete in one", "it does not let us run scripts (they came with 2.6)", question{by: (*Asker).scripts}},
	{SetNXPX, "2.6.12", "value and TTL on a free key", noSetNXPX,
		question{cmds: "SET a held NX PX 60000; SET a taken NX PX 120000; PTTL a; DEL a", spares: answer.Misused,
			means: []meaning{{"OK nil 1..60000 *", ""}, {"OK OK ? ?", "SET … NX sets a key that is held"},
				{"OK nil * *", "SET … PX does not give the key its TTL" + forever}, {"! ? ? ?", noSetNXPX}}}},
	{SetIfEq, "8.4", "compare and extend in one", noSetIfEq,
		question{cmds: "SET a held NX PX 60000; SET a next IFEQ other PX 120000 GET; SET b next IFEQ other PX 60000 GET; GET a; PTTL a; EXISTS b; " +
			"SET a next IFEQ held PX 120000 GET; GET a; PTTL a; DEL a; DEL b", spares: answer.Misused,
			means: []meaning{{`OK "held" nil "held" 1..60000 0 "held" "next" 60001..120000 * *`, ""}, {"? ! ! ? ? ? ! ? ? ? ?", noSetIfEq},
				{`OK "held" nil "held" 1..60000 0 * * * * *`, "SET … IFEQ does not set value and TTL"}, {"", "SET … IFEQ sets what it is not to set"}}}},
	{DelIfEq, "Valkey 9.0", "compare and delete in one", "it has no DELIFEQ (Valkey 9.0 has it)",
		question{cmds: "+ a held; DELIFEQ a other; GET a; DELIFEQ a held; EXISTS a; DEL a",
			means: []meaning{{`+ 0 "held" 1 0 *`, ""}, {`+ * "held" * 1 *`, "DELIFEQ does not delete an equal value"}, {"", "DELIFEQ deletes another's value"}}}},
	{DelEx, "8.4", "compare and delete in one", "it has neither DELEX nor DELIFEQ (they came with Redis 8.4 and Valkey 9.0)",
		question{cmds: "+ a held; DELEX a IFEQ other; GET a; DELEX a IFEQ held; EXISTS a; DEL a",
			means: []meaning{{`+ 0 "held" 1 0 *`, ""}, {`+ * "held" * 1 *`, "DELEX … IFEQ does not delete an equal value"}, {"", "DELEX … IFEQ deletes another's value"}}}},
}

const (
	noSetIfEq = "it has no SET … IFEQ (it came with Redis 8.4 and Valkey 8.1)"
	noSetNXPX = "it has no SET … NX PX (it came with 2.6.12)"
	forever   = ", so a dead holder's lock would last for ever"
)

// All returns all abilities, the oldest first.
func All() []Ability {
	list := make([]Ability, len(table))
	for i, a := range table {
		list[i] = a.name
	}
	return list
}

// row returns the ability's row; the zero row for an unknown name.
func (a Ability) row() ability {
	for _, known := range table {
		if known.name == a {
			return known
		}
	}
	return ability{}
}

// Since returns the first Redis with the ability, or another server with its name; "" for an unknown name.
func (a Ability) Since() string { return a.row().since }

// What describes the use of the ability in a few words.
func (a Ability) What() string { return a.row().what }
