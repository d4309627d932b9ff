package server

// An Ability is something that a lock may need of a server, by the name that people read.
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

// abilities are in the order in which Redis got them.
var abilities = []struct {
	name  Ability
	since string
	what  string
	in    func(Report) bool
}{
	{Setnx, "1.0", "a held key refuses it", func(r Report) bool { return r.Setnx }},
	{Getset, "1.0", "returns the old value", func(r Report) bool { return r.Getset }},
	{Multi, "1.2", "several commands as one: fences", func(r Report) bool { return r.Multi }},
	{Setex, "2.0", "value and TTL in one", func(r Report) bool { return r.Setex }},
	{Lists, "2.0", "lists compare and delete", func(r Report) bool { return r.Lists }},
	{SetnxOnTTL, "2.2", "a held key refuses it", func(r Report) bool { return r.SetnxRespectsTTL }},
	{ExpireAgain, "2.2", "a lease can be renewed", func(r Report) bool { return r.ExpireAgain }},
	{Watch, "2.2", "a touched key aborts EXEC", func(r Report) bool { return r.Watch }},
	{Renamenx, "2.4", "the TTL travels with the name", func(r Report) bool { return r.RenamenxKeepsTTL && r.RenamenxRefuses }},
	{Milliseconds, "2.6", "milliseconds", func(r Report) bool { return r.Millis }},
	{Time, "2.6", "its clock can be read", func(r Report) bool { return r.Time }},
	{Scripts, "2.6", "compare and delete in one", func(r Report) bool { return r.Eval }},
	{SetNXPX, "2.6.12", "value and TTL on a free key", func(r Report) bool { return r.SetNXPX }},
}

// Abilities returns all of them, the oldest first.
func Abilities() []Ability {
	list := make([]Ability, len(abilities))
	for i, a := range abilities {
		list[i] = a.name
	}
	return list
}

// Since is the first Redis that has the ability; "" for a name that is none.
func (a Ability) Since() string {
	for _, known := range abilities {
		if known.name == a {
			return known.since
		}
	}
	return ""
}

// What says in a few words what the ability is good for.
func (a Ability) What() string {
	for _, known := range abilities {
		if known.name == a {
			return known.what
		}
	}
	return ""
}

// Can reports whether the server showed that it has the ability.
func (r Report) Can(a Ability) bool {
	for _, known := range abilities {
		if known.name == a {
			return known.in(r)
		}
	}
	return false
}
