// Package verdict says what stands on a key: free, held, dead or foreign; whose it looks like, how
// sure that is, and why. inspect, survey, release, repair, and run where it waits, all ask here, so
// that they agree about every key.
//
//	free        the key does not exist
//	held        it has a lease that has not ended
//	dead        its time has passed and no TTL runs: clients that write such times take it over
//	persistent  held, and nothing but a release ends it
//	foreign     it is not a lock of this kind: it counts as held
//
// A verdict says what was seen. That a client died is never seen.
package verdict

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A Verdict judges one look at a key, or at several that are locked as one.
type Verdict struct {
	protocol.State

	// Obtainable says that an attempt now, by the lock that the key was read for, would have it.
	Obtainable bool

	Kind    string   // the kind of value, as docs/mixing.md calls it: "T-s"; "" if it has none
	Clients []string // that write so, as far as we know of them
	Sure    Sure     // that it is a lock of theirs
	Why     []string // the reasons for that, a phrase each
	Owner   string   // the holder, if the value names one
	Wrong   []string // what is wrong with it, a sentence each, without a full stop
	Else    []string // the other grammars that read the value, too
	Lock    Lock     // what can release it, if it is not the lock of one string
	Cut     bool     // a value is too long for a lock's: State has its beginning and its length

	vague  bool // any text is such a value, or every holder's is the same, or no client has such a one there
	unseen bool // Unseen was called
}

// Sure tells how sure it is that a value is a lock of certain clients.
type Sure string

const (
	Certain  Sure = "certain"  // the value says so itself
	Likely   Sure = "likely"   // the form is rare, or the key's name says so
	Possible Sure = "possible" // ordinary data look the same
)

// A Lock is a kind of lock of more than one string on one key.
type Lock string

const (
	Plain  Lock = ""         // one string on one key
	RW     Lock = "rw"       // readers and a writer
	Slots  Lock = "slots"    // a semaphore's
	Pair   Lock = "two keys" // an owner and a deadline
	Theirs Lock = "theirs"   // a hash or a sorted set of a client that we can't join, nor release: Clients has it
	NoLock Lock = "no lock"  // a list, a set, …
)

// A Lens is the lock for which a key is read. The zero Lens reads it by its form.
type Lens struct {
	Time   *getsetlock.Dialect // a lock of times, in this dialect
	Tokens bool                // a lock of tokens, which never looks at a value
}

// Judge judges c through the eyes of l's clients.
func (l Lens) Judge(c Content, now time.Time) Verdict {
	v := Verdict{State: protocol.State{Key: c.Key, Value: c.Value, Status: protocol.StatusFree, TTL: c.TTL}}
	switch {
	case c.Other != nil:
		v = FromState(*c.Other)
		v.Key, v.Lock = c.Key, c.Lock
		v.ofComposite()
	case c.Type == "none":
		v.Value, v.TTL = "", protocol.NoTTL
	case c.theirs != nil:
		v.ofTheirs(*c.theirs)
	case c.Type != "string":
		v.Status, v.Lock, v.Format = protocol.StatusForeign, NoLock, c.Type
	default:
		v.ofString(l, c, now)
	}
	v.Obtainable = v.Status == protocol.StatusFree || v.Status == protocol.StatusDead && l.takes(c, now) || c.Lock == Slots && c.Other.Open
	if c.length > 0 && c.Other == nil {
		v.Value, v.Cut = beginning(c.Value, c.length), true
	}
	return v
}

// takes reports whether the lock of l takes over a dead key.
func (l Lens) takes(c Content, now time.Time) bool {
	switch {
	case c.Lock == RW, l.Time != nil:
		return true
	case l.Tokens || c.Lock != Plain:
		return false
	}
	return c.Times && getsetlock.Float.Dead(c.Value, now)
}

// FromState judges a lock by its own State: of several keys or servers, or of readers.
func FromState(s protocol.State) Verdict {
	v := Verdict{State: s, Obtainable: s.Status == protocol.StatusFree || s.Status == protocol.StatusDead || s.Open}
	v.Holders = slices.Clone(s.Holders)
	owner, ok := dialect.OwnerOf(v.Value)
	values := []*string{&v.Value}
	for i := range v.Holders {
		values = append(values, &v.Holders[i].Value)
	}
	if !ok && len(v.Holders) > 0 { // of a quorum
		owner, ok = dialect.OwnerOf(v.Holders[0].Value)
		for _, h := range v.Holders {
			other, _ := dialect.OwnerOf(h.Value)
			ok = ok && other == owner
		}
	}
	if ok {
		v.Owner, v.Sure = owner, Certain
	}
	for i, value := range values {
		long := most
		if i == 0 {
			long *= max(len(v.Holders), 1) // a quorum's has a part of each
		}
		if len(*value) > long {
			*value, v.Cut = beginning(*value, len(*value)), true
		}
	}
	return v
}

func (v *Verdict) ofComposite() {
	switch v.Lock {
	case RW:
		v.Kind, v.Clients, v.Sure = "rw", []string{"setnxlock rw"}, Certain
		v.Why = []string{"the sorted set beside the key, or the writer's token, is of this lock"}
		v.Wrong = append(v.Wrong, "a plain lock on the same key does not see the readers: use --algorithm rw:read or rw:write")
		if v.Status == protocol.StatusFree {
			v.Wrong, v.Clients, v.Why, v.Kind, v.Sure = nil, nil, nil, "", ""
		}
	case Slots:
		v.Kind, v.Clients, v.Sure = "semaphore", []string{"setnxlock semaphore"}, Certain
		v.Why = []string{"the limit and the slots beside the key are of this lock"}
	case Pair:
		v.Kind, v.Clients, v.Sure = string(dialect.TwoKeys), []string{"mlanett-redis-lock"}, Likely
		v.Why = []string{"the key's name is as this client writes it"}
		v.Owner = v.Value
	}
}

// ofTheirs judges a hash or a sorted set of another client.
func (v *Verdict) ofTheirs(f dialect.Finding) {
	v.Status, v.Lock, v.Format, v.Kind = protocol.StatusForeign, Theirs, f.What, string(f.Kind)
	v.Clients, v.Sure, v.Why, v.Wrong = f.Formats(), Likely, f.Candidates[0].Reasons, slices.Clone(f.Wrong)
	if v.Clients[0] == dialect.Redisson {
		v.Format = "Redisson's hash"
		v.Wrong = append(v.Wrong, "no lock of ours excludes Redisson's clients, nor they ours: use another key")
	}
	v.Until, v.Clock = f.Until, f.Clock
	for _, holder := range strings.Fields(f.Owner) {
		v.Holders = append(v.Holders, protocol.Holder{Value: holder, Until: v.Until})
		v.Value, v.Owner = holder, holder
	}
}

// ofString judges a string: its status through l, and its likely clients.
func (v *Verdict) ofString(l Lens, c Content, now time.Time) {
	v.recognise(c, now)
	switch {
	case l.Time != nil:
		v.asTime(*l.Time, now)
	case l.Tokens || !dialect.Kind(v.Kind).Timed():
		v.asToken(now)
	case c.Times && v.Until.Before(now):
		d := getsetlock.Float // what this server's lock writes
		if _, ok := d.Parse(c.Value); ok {
			format := v.Format
			v.asTime(d, now)
			v.Format = format
		}
	}
}

// asToken sets the status for clients who know the TTL alone.
func (v *Verdict) asToken(now time.Time) {
	v.Status, v.Clock, v.Until = protocol.StatusHeld, "server", now.Add(v.TTL)
	if v.TTL == protocol.NoTTL {
		v.Status, v.Until = protocol.StatusPersistent, time.Time{}
	}
	if v.Format == "" || dialect.Kind(v.Kind).Timed() {
		v.Format = "token"
	}
}

// asTime sets the status for clients of d.
func (v *Verdict) asTime(d getsetlock.Dialect, now time.Time) {
	until, ok := d.Parse(v.Value)
	v.Format, v.Until, v.Clock, v.Status = d.Name, until, "clients", protocol.StatusHeld
	switch {
	case !ok:
		v.Status, v.Until, v.Clock, v.Format = protocol.StatusForeign, time.Time{}, "", "not "+d.Name
	case d.Dead(v.Value, now):
		v.Status = protocol.StatusDead
	}
}

// recognise finds the likely clients of a string, and the status in their eyes.
func (v *Verdict) recognise(c Content, now time.Time) {
	if owner, ok := dialect.OwnerOf(c.Value); ok {
		v.Kind, v.Format, v.Clients, v.Owner = string(dialect.Python), "token", []string{"setnxlock"}, owner
		v.Sure, v.Why = Certain, []string{"the value says setnxlock, and who"}
		return
	}
	all := dialect.Recognise(c.Key, c.Value, c.TTL, now)
	if len(all) == 0 {
		return
	}
	f := all[0]
	v.Kind, v.Format, v.Clients, v.Owner = string(f.Kind), f.What, f.Formats(), f.Owner
	v.vague = f.What == string(dialect.TokenText) || f.Kind == dialect.Flag || f.Confidence() == dialect.Unlikely && !f.Kind.Timed()
	v.Wrong = append(v.Wrong, f.Wrong...)
	for _, other := range all[1:] {
		if !slices.Contains(v.Else, other.What) && other.What != f.What {
			v.Else = append(v.Else, other.What)
		}
	}
	if !f.Kind.Timed() {
		v.Status, v.Until, v.Clock = protocol.StatusHeld, f.Until, f.Clock
	} else {
		v.ofTime(f, now)
	}
	v.weigh(c, f)
	if v.Owner == c.Value {
		v.Owner = "" // a random text names nobody
		if f.What == string(dialect.TokenHostPID) || f.What == string(dialect.TokenBeaker) {
			v.Owner = c.Value
		}
	}
}

// ofTime sets the status of a time for its own clients. While a TTL runs the key is held, whatever the time
// says: an expired time is then no deadline, but, say, the beginning of a job.
func (v *Verdict) ofTime(f dialect.Finding, now time.Time) {
	v.Status, v.Until, v.Clock = protocol.StatusHeld, f.Until, "clients"
	past := !f.Until.After(now)
	if v.TTL == protocol.NoTTL {
		if past {
			v.Status = protocol.StatusDead
		}
		return
	}
	if end := now.Add(v.TTL); past || end.Before(f.Until) {
		v.Until, v.Clock = end, "server"
	}
	if past {
		v.Wrong = []string{fmt.Sprintf("its time passed at %s, but its TTL runs: it is held until that ends, and the time is no deadline", Moment(f.Until))}
	}
}

// weigh sets how likely f's clients wrote the value as a lock, and why.
func (v *Verdict) weigh(c Content, f dialect.Finding) {
	if ownStamp().MatchString(c.Value) {
		v.Sure, v.Clients = Likely, []string{"setnxlock getset"}
		if c.TTL != protocol.NoTTL {
			v.Clients = []string{"setnxlock bridge"}
		}
		v.Why = []string{"fifteen decimals, as setnxlock writes its times and no other client that we know of"}
		return
	}
	best := f.Candidates[0]
	v.Sure, v.Why = Possible, slices.Clone(best.Reasons)
	if len(f.Candidates) > 1 {
		v.Why[0] = strings.Replace(v.Why[0], "it ", best.Format+" ", 1)
	}
	switch {
	case best.Confidence == dialect.Likely:
		v.Sure = Likely
	case saysLock().MatchString(c.Key):
		v.Sure = Likely
		v.Why = append(v.Why, "the key's name says that it is a lock")
	case f.What == string(dialect.TokenText):
		v.Why = append(v.Why, "any text can be a lock, and need not be")
	case best.Confidence == dialect.Possible:
		v.Why = append(v.Why, "ordinary data have this form, too")
	}
}

var (
	saysLock = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(^|[^a-z])(un)?(lock|locks|locked|mutex|semaphore)([^a-z]|$)`)
	})
	ownStamp = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9]{10}\.[0-9]{15}$`)
	})
)

// IsLock reports whether a survey lists the key. anyText says that a text or a flag counts which
// nothing else speaks for.
func (v Verdict) IsLock(anyText bool) bool {
	if base, _ := Beside(v.Key); base != "" || v.Status == protocol.StatusFree || v.Lock == NoLock || dialect.IsPart(v.Key) {
		return false
	}
	if _, deadline, pair := dialect.PairOf(v.Key); pair && v.Key == deadline {
		return false // the second of two keys
	}
	return v.Kind != "" && (!v.vague || anyText || v.Sure != Possible)
}

// OnlyText reports a lock with no sign of one but being a string: it may as well be a page, a profile or a
// counter. Of the values on several servers, and of readers, one such text is enough.
func (v Verdict) OnlyText(now time.Time) bool {
	switch {
	case v.Status == protocol.StatusFree:
		return false
	case v.Lock == RW:
		return slices.ContainsFunc(v.Holders, func(h protocol.Holder) bool {
			return !strings.HasPrefix(h.Value, "r:") && !strings.HasPrefix(h.Value, "w:")
		})
	case v.Lock != Plain:
		return false
	case len(v.Holders) > 0:
		return slices.ContainsFunc(v.Holders, func(h protocol.Holder) bool {
			return slices.ContainsFunc(strings.Split(h.Value, ","), func(value string) bool { // of several keys
				return Verdict{State: protocol.State{Key: v.Key, Status: v.Status, Value: value, TTL: v.TTL}}.OnlyText(now)
			})
		})
	}
	if v.Why == nil { // a lock has looked itself, which reads any text
		v = Lens{}.Judge(Content{Key: v.Key, Type: "string", Value: v.Value, TTL: v.TTL}, now)
	}
	return v.Kind == "" || v.vague && v.Sure == Possible
}

// Random reports whether no two clients write the value: it is random, and not theirs for several locks.
func (v Verdict) Random() bool {
	return slices.Contains([]dialect.Token{
		dialect.TokenHex, dialect.TokenUUID, dialect.TokenUUIDCount, dialect.TokenBase64, dialect.TokenBase64Pad, dialect.TokenBase64URL,
		dialect.TokenLetters, dialect.TokenLetters16, dialect.TokenBytes,
	}, dialect.Token(v.Format))
}

// Moment writes a time for people, always with its date and zone.
func Moment(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }

// Together joins the verdicts on several keys that are locked as one: the key that keeps others out longest,
// with all holders. Its value is that of all keys, if they have the same.
func Together(key string, all []Verdict) Verdict {
	v := Verdict{State: protocol.State{Status: protocol.StatusFree, TTL: protocol.NoTTL}}
	var holders []protocol.Holder
	var wrong []string
	same, obtainable, owner := true, true, ""
	for _, one := range all {
		if rank[one.Status] > rank[v.Status] || rank[one.Status] == rank[v.Status] && one.Until.After(v.Until) {
			v = one
		}
		of := one.Holders
		if len(of) == 0 && one.Status != protocol.StatusFree {
			of = []protocol.Holder{{Value: one.Value, Until: one.Until}}
		}
		holders = append(holders, of...)
		for _, w := range one.Wrong {
			wrong = append(wrong, fmt.Sprintf("%q: %s", one.Key, w))
		}
		same = same && one.Value == all[0].Value
		obtainable = obtainable && one.Obtainable
		if owner == "" {
			owner = one.Owner
		}
	}
	v.Key, v.Holders, v.Wrong, v.Obtainable, v.Owner, v.Lock = key, holders, wrong, obtainable, owner, Plain
	if !same { // what one of them looks like is not what all of them are
		v.Value, v.Kind, v.Format, v.Clients, v.Sure, v.Why, v.Else = "", "", "", nil, "", nil, nil
	}
	return v
}

// rank orders the statuses by how long they keep others out.
var rank = map[protocol.Status]int{
	protocol.StatusFree: 0, protocol.StatusDead: 1, protocol.StatusHeld: 2, protocol.StatusForeign: 3, protocol.StatusPersistent: 4,
}

// Unseen notes that readers or slots may hold a missing key nevertheless: they stand beside it, and could not be read.
func (v *Verdict) Unseen(why string) {
	v.unseen, v.Wrong = true, append(v.Wrong, "whether others share it can't be seen: "+why)
}

// IsUnseen reports a key that Unseen was called for.
func (v Verdict) IsUnseen() bool { return v.unseen }

// Refusal tells why a key was asked for in vain: the rest of a sentence that begins with its name.
func (v Verdict) Refusal() string {
	text := "is held by another client"
	switch {
	case v.Status == protocol.StatusDead:
		return fmt.Sprintf("holds a time that passed at %s: clients that write such times take it over, and this lock does not", Moment(v.Until))
	case v.Status == protocol.StatusPersistent && dialect.Kind(v.Kind).Timed():
		return "holds what reads as a time, without a TTL: clients that write such times take it over when it has passed, and this lock never does"
	case v.Status == protocol.StatusPersistent:
		text += ", and nothing ends it but a release"
	case v.Status == protocol.StatusForeign:
		text += ", in another format"
	case !v.Until.IsZero():
		text += fmt.Sprintf(" until %s (unless it is renewed)", Moment(v.Until))
	}
	if v.Owner != "" {
		text += "; its owner is " + screen.Escaped(v.Owner)
	}
	return text
}
