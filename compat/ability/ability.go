// Package ability is what a lock may need of a server: each ability with its name, the Redis that
// brought it, and the question that finds out whether a server has it. This is the only such table:
// a lock's own check (protocol.Traits.Check), package probe and the command all read
// it and ask its questions.
//
//	func (k Lock) check(c *protocol.Conn, key string) error {
//		return ability.Check(c, key, false, ability.Need{ability.Watch, "another lock"})
//	}
//
// A question is asked on scratch keys. Each has a TTL from the moment it exists, or exists only
// inside one transaction or script: wherever the connection breaks, no key is left that never
// expires.
package ability

// An Ability is something that a lock may need of a server; the text is its name for people.
type Ability string

// The abilities that locks need.
const (
	Setnx        Ability = "SETNX"
	Getset       Ability = "GETSET"
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
)

// An ability is a row of the table.
type ability struct {
	name  Ability
	since string
	what  string
	lacks string // of a server that does not know the commands
	ask   func(*Asker) (why string, err error)
}

// table is in the order in which Redis got them.
var table []ability

func init() { // the questions ask for other abilities
	table = []ability{
		{Setnx, "1.0", "a held key refuses it", "it has no SETNX", (*Asker).setnx},
		{Getset, "1.0", "returns the old value", "it has no GETSET", (*Asker).getset},
		{Multi, "1.2", "several commands as one: fences", "it has no MULTI (it came with 1.2)", (*Asker).multi},
		{Setex, "2.0", "value and TTL in one", "it has no SETEX (it came with 2.0)", (*Asker).setex},
		{Lists, "2.0", "lists compare and delete", "it lacks a list command (they came with 2.0)", (*Asker).lists},
		{SetnxOnTTL, "2.2", "a held key refuses it", "it has no SETNX, or no SETEX", (*Asker).setnxOnTTL},
		{ExpireAgain, "2.2", "a lease can be renewed", "it has no EXPIRE", (*Asker).expireAgain},
		{Watch, "2.2", "a touched key aborts EXEC", "it has no WATCH (it came with 2.2)", (*Asker).watch},
		{Renamenx, "2.4", "the TTL travels with the name", "it has no RENAMENX", (*Asker).renamenx},
		{Milliseconds, "2.6", "milliseconds", "it counts in whole seconds (milliseconds came with 2.6)", (*Asker).milliseconds},
		{Time, "2.6", "its clock can be read", "it does not tell the time (TIME came with 2.6)", (*Asker).time},
		{Scripts, "2.6", "compare and delete in one", "it does not let us run scripts (they came with 2.6)", (*Asker).scripts},
		{SetNXPX, "2.6.12", "value and TTL on a free key", noSetNXPX, (*Asker).setNXPX},
	}
}

// All returns all abilities, the oldest first.
func All() []Ability {
	list := make([]Ability, len(table))
	for i, a := range table {
		list[i] = a.name
	}
	return list
}

// row is the ability's; the zero row for a name that is none.
func (a Ability) row() ability {
	for _, known := range table {
		if known.name == a {
			return known
		}
	}
	return ability{}
}

// Since is the first Redis that has the ability; "" for a name that is none.
func (a Ability) Since() string { return a.row().since }

// What says in a few words what the ability is good for.
func (a Ability) What() string { return a.row().what }
