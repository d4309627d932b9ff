package dialect_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/internal/must"
)

// moment is the time in every format's examples: 1795238718.058123456.
var moment = time.Unix(1795238718, 58123456)

// Every format is complete: it has the fields that its kind needs, and reads its own examples but
// nothing shorter or longer.
func TestFormats(t *testing.T) {
	seen := map[string]bool{}
	kinds := map[dialect.Kind]int{}
	for _, f := range dialect.All() {
		lower := strings.ToLower(f.Name)
		if f.Name == "" || f.About == "" || strings.Contains(f.About, "\n") || strings.HasSuffix(f.About, ".") || seen[lower] {
			t.Errorf("%q: %q; want a unique name and one line", f.Name, f.About)
		}
		seen[lower] = true
		kinds[f.Kind]++
		if f.Release == "" || len(f.Examples) == 0 || strings.Count(f.KeyName, "NAME") != 1 {
			t.Errorf("%s: released by %q, %d examples, key %q", f.Name, f.Release, len(f.Examples), f.KeyName)
		}
		if f.Kind.Timed() == (f.Token != "") || (f.Kind.Timed() || f.Kind == dialect.TwoKeys) != (f.Win != "" && f.Stamp.Unit != 0) {
			t.Errorf("%s: %s with stamp %+v, win %q, token %q", f.Name, f.Kind, f.Stamp, f.Win, f.Token)
		}
		for _, v := range f.Examples {
			if !reads(f, v) {
				t.Errorf("%s does not read its own %q", f.Name, v)
			}
			if f.Token == dialect.TokenText || f.Token == dialect.TokenFlag {
				continue // any text, and the text "1"
			}
			for _, other := range []string{v + "x", "x" + v, v + "\n", " " + v, strings.Replace(v, "1", ":", 1)} {
				text := f.Token == dialect.TokenSpring && len(other) == len(v) // another host's
				if other != v && !text && reads(f, other) && f.Token != dialect.TokenHostPID && f.Token != dialect.TokenShedLock {
					t.Errorf("%s reads %q as well as %q", f.Name, other, v)
				}
			}
		}
		got, err := dialect.Lookup(strings.ToUpper(f.Name))
		if err != nil || got.Name != f.Name {
			t.Errorf("Lookup(%q): %q, %v", strings.ToUpper(f.Name), got.Name, err)
		}
	}
	for _, k := range []dialect.Kind{
		dialect.Seconds, dialect.FloatSeconds, dialect.Millis, dialect.Nanos, dialect.OwnedSeconds, dialect.OwnedMillis, dialect.BinSeconds,
		dialect.InAction, dialect.Python, dialect.Owned, dialect.Scripted, dialect.Flag, dialect.Watched, dialect.TwoKeys,
	} {
		if kinds[k] == 0 {
			t.Errorf("no client writes %s", k)
		}
	}
}

func reads(f dialect.Format, value string) bool {
	if f.Token != "" {
		_, ok := f.Token.Read(value)
		return ok
	}
	_, _, ok := f.Stamp.Parse(value)
	return ok
}

// How each client names its key: clients with different names never meet.
func TestKeyNames(t *testing.T) {
	for name, want := range map[string]string{
		"redis-py-2.9": "report", "jedis-lock": "report", "npm-redis-lock-0.0": "lock.report", "redis-mutex": "RedisMutex:report",
		"redis-mutex-3": "Redis::Mutex:report", "redigolock": "L:{report}", "locky": "lock:resource:report", "ohm-0.1": "report:_lock",
		"Beaker": "beaker_lock:report", "redis-semaphore": "SEMAPHORE:report:release_locks", "mlanett-redis-lock": "lock:owner:report",
		"PredisLock": "lock:report", "redis-in-action": "lock:report", "warlock": "report:lock", "machinery": "machinery_lock_report",
	} {
		f, err := dialect.Lookup(name)
		if got := f.Key("report"); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if owner, deadline := dialect.Pair("report"); owner != "lock:owner:report" || deadline != "lock:expire:report" {
		t.Errorf("Pair: %q, %q", owner, deadline)
	}
}

func TestLookupNear(t *testing.T) {
	for name, want := range map[string]string{
		"redis-py": "redis-py-2.9", "redispy-2.9": "redis-py-2.9", "jedislock": "jedis-lock", "resque_lock": "resque-lock", "laravel": "laravel-5.5",
	} {
		_, err := dialect.Lookup(name)
		if !errors.Is(err, dialect.ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("Lookup(%q): %v, want %q in it", name, err, want)
		}
	}
}

// All returns a copy: changing it changes nothing.
func TestAllIsACopy(t *testing.T) {
	dialect.All()[0].Name = "changed"
	if dialect.All()[0].Name == "changed" {
		t.Error("All returns the table itself")
	}
}

// One moment, written in each form in the field. Rounding is up: the key must not expire before the
// lease ends.
func TestWrite(t *testing.T) {
	owned := map[dialect.Owner]string{}
	for _, o := range []dialect.Owner{dialect.OwnerPID, dialect.OwnerPIDThread, dialect.OwnerColonPID, dialect.OwnerUUID} {
		owned[o] = o.Make("000000000042")
	}
	for name, want := range map[string]string{
		"redis-py-2.2.3":               "1795238719",
		"redis-py-2.9":                 "1795238718.0581235",
		"jedis-lock":                   "1795238718059",
		"machinery":                    "1795238718058123456",
		"PT-redis-lock-0.1":            "1795238719-1000000000042",
		"PT-redis-lock":                "1795238719-10000-100000042",
		"PredisLock":                   "1795238719:1000000000042",
		"jedis-lock-1.0.1":             "00000000-0042-4000-8000-004200000000:1795238718059",
		"ServiceStack-DistributedLock": "\x3f\x2b\x01\x6b\x00\x00\x00\x00",
	} {
		f := must.Get(dialect.Lookup(name))(t)
		v := f.Stamp.Write(moment, owned[f.Stamp.Owner])
		if v != want {
			t.Errorf("%s writes %q, want %q", name, v, want)
		}
		until, owner, ok := f.Stamp.Parse(v)
		if !ok || owner != owned[f.Stamp.Owner] || until.Before(moment) || until.Sub(moment) > f.Stamp.Grain() {
			t.Errorf("%s reads %q as %v of %q, %v", name, v, until, owner, ok)
		}
	}
	floats := dialect.Stamp{Unit: time.Second, Float: true, Decimals: 7}
	for d, want := range map[time.Duration]string{0: "1795238718.0", 500 * time.Millisecond: "1795238718.5", 1: "1795238718.0000001"} {
		if v := floats.Write(time.Unix(1795238718, int64(d)), ""); v != want {
			t.Errorf("%v past the second is %q, want %q", d, v, want)
		}
	}
}

// The values of the field, in each reading: a timestamp in one unit is not one in another, and no
// token is a timestamp.
func TestParse(t *testing.T) {
	stamps := []string{"redis-py-2.2.3", "redis-py-2.9", "jedis-lock", "machinery", "PT-redis-lock", "PredisLock", "jedis-lock-1.0.1", "ServiceStack-DistributedLock"}
	for value, readers := range map[string]string{
		"1795238718":                 "redis-py-2.2.3 redis-py-2.9",
		"2147483649":                 "redis-py-2.2.3 redis-py-2.9",
		"1795238718.94":              "redis-py-2.9",
		"1795238718.058123456789012": "redis-py-2.9",
		"1310551200.0":               "redis-py-2.9",
		"2147483649.0":               "redis-py-2.9",
		"1795238718058":              "jedis-lock",
		"1795238718058123456":        "machinery",
		"9999999999999999999":        "",
		"1795238718-4711":            "PT-redis-lock",
		"1795238718-4711-70123":      "PT-redis-lock",
		"1795238718-4711-70123-1":    "",
		"1795238718-":                "",
		"1795238718:4711":            "PredisLock",
		"1795238718:":                "",
		"fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:1795238718058": "jedis-lock-1.0.1",
		"fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:1795238718":    "",
		"\x3e\x2b\x01\x6b\x00\x00\x00\x00":                   "ServiceStack-DistributedLock",
		"12345678":                                           "", // eight bytes of text
		"fb2d0a1e-3f44-4e2e-8f0a-0123456789ab":               "",
		"94213c24e0f911f0a9d30242ac120002":                   "",
		"9e99c1deadbeef00000000000000000":                    "",
		"95238718000000000000000000000000":                   "", // a token of digits alone
		"host.example:4711":                                  "",
		"1":                                                  "", "true": "", "": "", "locked": "", "NaN": "", "inf": "", "0x1p4": "", "1.795238718e9": "", "+795238718": "", "-795238718": "",
		"1795238718.": "", ".1795238718": "", "1795238718,5": "", "17952387180": "", "179523871": "", " 1795238718": "", "1795238718\n": "",
		"１７９５２３８７１８": "", "1_795_238_718": "", "1795238718.0000000000000000001": "",
	} {
		var got []string
		for _, name := range stamps {
			f := must.Get(dialect.Lookup(name))(t)
			if reads(f, value) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != readers {
			t.Errorf("%q is read by %q, want %q", value, got, readers)
		}
	}
}

// A token is written in the form that its clients read, each different, from any random text.
func TestTokens(t *testing.T) {
	for _, f := range dialect.All() {
		if f.Token == "" {
			continue
		}
		seen := map[string]bool{}
		for n := range 100 {
			random := dialect.Random()
			if n%2 == 1 {
				random = fmt.Sprint("client-", n)
			}
			v := f.Token.Write("report", moment, random)
			if seen[v] {
				t.Errorf("%s writes %q twice", f.Name, v)
			}
			seen[v] = true
			own := f.Token.Proves() && (f.Token != dialect.TokenHex || n%2 == 0)
			if own && !reads(f, v) {
				t.Errorf("%s does not read %q, which we write for it", f.Name, v)
			}
			if _, _, ok := (dialect.Stamp{Unit: time.Second, Float: true}).Parse(v); ok {
				t.Errorf("%s: %q could be a time", f.Name, v)
			}
		}
	}
	v := dialect.TokenSpring.Write(strings.Repeat("long", 100), moment, "me")
	if _, ok := dialect.TokenSpring.Read(v); !ok {
		t.Error("a key longer than a byte counts makes a value that is not read")
	}
}

// FuzzStamp: a value can be read in one unit at most; written again, it is read as a time that is
// not earlier.
func FuzzStamp(f *testing.F) {
	for _, format := range dialect.All() {
		for _, v := range format.Examples {
			f.Add(v, int64(1795238718058123456))
		}
	}
	for _, v := range []string{"9e99c1", "NaN", "inf", "0x1p4", "1795238718-4711-70123-", "1795238718:4711:1", ":", "-", ".", "1795238718.0.0"} {
		f.Add(v, int64(1e18))
	}
	var stamps []dialect.Stamp
	for _, format := range dialect.All() {
		if format.Kind.Timed() && !slices.Contains(stamps, format.Stamp) {
			stamps = append(stamps, format.Stamp)
		}
	}
	f.Fuzz(func(t *testing.T, value string, nanos int64) {
		units := map[string]string{}
		for _, s := range stamps {
			until, owner, ok := s.Parse(value)
			if !ok {
				continue
			}
			units[fmt.Sprintf("%v, binary %v", s.Unit, s.Binary)] = string(s.Owner)
			if trimmed := strings.Trim(value, "0123456789.-:abcdefABCDEF"); !s.Binary && trimmed != "" {
				t.Errorf("%+v read %q as a time", s, value)
			}
			if until.Year() < 2262 { // beyond it Unix nanoseconds end, and any lease
				again, o, ok := s.Parse(s.Write(until, owner))
				if !ok || o != owner || again.Before(until) || again.Sub(until) >= s.Grain() {
					t.Errorf("%+v: %q is %v of %q, written and read again %v of %q, %v", s, value, until, owner, again, o, ok)
				}
			}
		}
		if len(units) > 1 {
			t.Errorf("%q is a time in more than one unit: %v", value, units)
		}

		at := time.Unix(0, max(1e18, min(nanos, 9e18)))
		for _, s := range stamps {
			owner := s.Owner.Make("123456789012")
			v := s.Write(at, owner)
			until, o, ok := s.Parse(v)
			if !ok || o != owner || until.Before(at) || until.Sub(at) >= s.Grain() {
				t.Errorf("%+v wrote %v of %q as %q, and read %v of %q, %v", s, at, owner, v, until, o, ok)
			}
		}
		for _, finding := range dialect.Recognise("k", value, -1, at) {
			if finding.Kind == "" || finding.What == "" || finding.Status == "" || finding.Clock == "" {
				t.Errorf("%q: %+v says too little", value, finding)
			}
		}
	})
}
