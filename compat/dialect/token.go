package dialect

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Token is a way to write an owner on a key: the grammar of the K kinds.
type Token string

const (
	TokenHex      Token = "32 hexadecimal digits"
	TokenUUID     Token = "a UUID"
	TokenHostPID  Token = "host:pid"
	TokenBeaker   Token = "machine-pid-thread"      // Beaker: six hexadecimal digits of the host name's MD5 first
	TokenShedLock Token = "ADDED:time@host"         // ShedLock
	TokenSpring   Token = "host, key, thread, time" // Spring Integration: binary, each text after its length, then ms
	TokenFlag     Token = "a flag"                  // "1", "true", "locked" or nothing: the same for every holder
	TokenMillis   Token = "milliseconds"            // a timestamp that serves as a token: no client reads it
	TokenText     Token = "the caller's text"       // anything

	TokenStart     Token = "the time of its acquisition"           // float seconds, a token like any other: rq-scheduler
	TokenBase64    Token = "24 characters of base64"               // 18 bytes: python-redis-lock
	TokenBase64Pad Token = "22 characters of base64 and =="        // 16 bytes: redsync, warlock
	TokenBase64URL Token = "22 characters of base64 for addresses" // 16 bytes, '-' and '_': bsm/redislock
	TokenLetters   Token = "22 letters and digits"                 // redlock-py
	TokenLetters16 Token = "16 letters and digits"                 // Laravel since 5.8
	TokenHex24     Token = "24 hexadecimal digits"                 // a job of Sidekiq's
	TokenUUIDCount Token = "a UUID and a number"                   // UUID:0: BullMQ
	TokenPID       Token = "a process's number"                    // rq before 2
	TokenBytes     Token = "24 random bytes"                       // rueidislock
)

// Proves reports whether a value of this form is unique to one holder, so that reading it shows the holder. If it is
// not, Write writes another form.
func (t Token) Proves() bool {
	return t != TokenFlag && t != TokenMillis && t != TokenStart && t != TokenPID
}

// time reports whether the token can be read as a timestamp.
func (t Token) time() bool { return t == TokenMillis || t == TokenStart }

// Read reports whether the complete value is a token of this form. It returns the holder named in it, if any.
func (t Token) Read(value string) (owner string, ok bool) {
	switch t {
	case TokenHex:
		return value, len(value) == 32 && hexadecimal(value)
	case TokenUUID:
		return value, isUUID(value)
	case TokenHostPID:
		host, pid, ok := strings.Cut(value, ":")
		return value, ok && host != "" && !strings.ContainsAny(host, " \t\r\n") && digits(pid) && len(pid) <= 7
	case TokenBeaker:
		machine, rest, _ := strings.Cut(value, "-")
		pid, thread, _ := strings.Cut(rest, "-")
		return value, len(machine) == 6 && hexadecimal(machine) && id(pid) && id(thread)
	case TokenShedLock:
		added, ok := strings.CutPrefix(value, "ADDED:")
		at, host, two := strings.Cut(added, "@")
		return host, ok && two && host != "" && iso(at)
	case TokenSpring:
		return readSpring(value)
	case TokenFlag:
		return "", value == "1" || value == "true" || value == "locked" || value == ""
	case TokenMillis:
		_, _, ok := millis.Parse(value)
		return "", ok
	case TokenStart:
		_, _, ok := floats.Parse(value)
		return "", ok && strings.Contains(value, ".")
	case TokenBase64:
		_, err := base64.StdEncoding.Strict().DecodeString(value)
		return value, err == nil && len(value) == 24 && !strings.HasSuffix(value, "=")
	case TokenBase64Pad:
		_, err := base64.StdEncoding.Strict().DecodeString(value)
		return value, err == nil && len(value) == 24 && strings.HasSuffix(value, "==")
	case TokenBase64URL:
		_, err := base64.RawURLEncoding.Strict().DecodeString(value)
		return value, err == nil && len(value) == 22
	case TokenLetters:
		return value, len(value) == 22 && strings.Trim(value, lettersAndDigits) == ""
	case TokenLetters16:
		return value, len(value) == 16 && strings.Trim(value, lettersAndDigits) == "" && !digits(value) && strings.IndexFunc(value, unicode.IsUpper) >= 0 && strings.IndexFunc(value, unicode.IsLower) >= 0
	case TokenHex24:
		return value, len(value) == 24 && hexadecimal(value)
	case TokenUUIDCount:
		id, n, ok := strings.Cut(value, ":")
		return value, ok && isUUID(id) && digits(n) && len(n) <= 9
	case TokenPID:
		return value, digits(value) && len(value) <= 7
	case TokenBytes:
		return value, len(value) == 24 && strings.ContainsFunc(value, func(r rune) bool { return r == utf8.RuneError || r < ' ' })
	}
	return value, value != ""
}

// Write returns a unique token in this form; random is 32 hexadecimal digits. A flag, or a
// timestamp that no client reads, or the number of a process, cannot serve as a token: a release
// could not tell its own lock from its successor's. Their clients check only whether the key exists,
// or whether it holds what they wrote, so Write returns random itself.
func (t Token) Write(key string, now time.Time, random string) string {
	host, pid := here()
	if t != TokenHex && t != TokenText {
		random = even(random)
	}
	switch t {
	case TokenUUID:
		return uuid(random)
	case TokenHostPID: // the process is not enough: two goroutines are two clients
		return host + "-" + random + ":" + pid
	case TokenBeaker:
		return random[:6] + "-" + pid + "-" + decimal(random[6:])
	case TokenShedLock:
		return "ADDED:" + now.UTC().Format("2006-01-02T15:04:05.000Z") + "@" + host + "-" + random
	case TokenSpring:
		return writeSpring(host, key, "setnxlock-"+random, now)
	case TokenBase64:
		return base64.StdEncoding.EncodeToString(digest(random)[:18])
	case TokenBase64Pad:
		return base64.StdEncoding.EncodeToString(unhex(random))
	case TokenBase64URL:
		return base64.RawURLEncoding.EncodeToString(unhex(random))
	case TokenLetters:
		return letters(unhex(random))
	case TokenLetters16:
		return "La" + letters(unhex(random))[8:] // its letters are of both cases
	case TokenHex24:
		return random[:24]
	case TokenUUIDCount:
		return uuid(random) + ":0"
	case TokenBytes:
		return string(digest(random)[:23]) + "\x00" // text of 24 characters is not theirs
	}
	return random
}

const lettersAndDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// letters writes 16 bytes as a number of 22 digits to the base 62, and leaves zeros in b. package math/big would
// be a part of every program that locks.
func letters(b []byte) string {
	text := make([]byte, 22)
	for i := len(text) - 1; i >= 0; i-- {
		rest := 0
		for k, digit := range b { // long division, in place
			rest = rest<<8 | int(digit)
			b[k] = byte(rest / len(lettersAndDigits))
			rest %= len(lettersAndDigits)
		}
		text[i] = lettersAndDigits[rest]
	}
	return string(text)
}

// unhex returns the sixteen bytes of 32 hexadecimal digits.
func unhex(random string) []byte {
	b, _ := hex.DecodeString(random) //nolint:errcheck // even saw to it
	return b
}

// digest makes more bytes of a token than it has.
func digest(random string) []byte {
	sum := sha256.Sum256([]byte(random))
	return sum[:]
}

// even returns a token as it is if it is 32 hexadecimal digits, and hashes any other to 32 digits.
func even(random string) string {
	if len(random) == 32 && hexadecimal(random) {
		return random
	}
	return hex.EncodeToString(digest(random)[:16])
}

// uuid makes a version 4 UUID from random digits.
func uuid(random string) string {
	for len(random) < 32 {
		random += random
	}
	r := []byte(random[:32])
	r[12], r[16] = '4', '8'
	return string(r[:8]) + "-" + string(r[8:12]) + "-" + string(r[12:16]) + "-" + string(r[16:20]) + "-" + string(r[20:])
}

func isUUID(s string) bool {
	parts := strings.Split(s, "-")
	if len(s) != 36 || len(parts) != 5 {
		return false
	}
	for i, n := range []int{8, 4, 4, 4, 12} {
		if len(parts[i]) != n || !hexadecimal(parts[i]) {
			return false
		}
	}
	return true
}

func hexadecimal(s string) bool {
	_, err := hex.DecodeString(s + strings.Repeat("0", len(s)%2))
	return err == nil && s != ""
}

// decimal returns the first sixteen hexadecimal digits as a decimal number, like a thread ID.
func decimal(random string) string {
	n, _ := strconv.ParseUint(random[:min(16, len(random))], 16, 64)
	return strconv.FormatUint(n, 10)
}

// iso reports whether s is a time as Java prints an Instant or a date without a zone.
func iso(s string) bool {
	for _, layout := range []string{"2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02T15:04Z07:00"} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}

func writeSpring(host, key, thread string, at time.Time) string {
	var b []byte
	for _, text := range []string{host, key, thread} {
		text = text[:min(len(text), 127)] // the length is one signed byte
		b = append(append(b, byte(len(text))), text...)
	}
	return string(binary.BigEndian.AppendUint64(b, uint64(at.UnixMilli())))
}

func readSpring(value string) (owner string, ok bool) {
	var texts []string
	rest := value
	for range 3 {
		if rest == "" || rest[0] > 127 || len(rest) < 1+int(rest[0]) {
			return "", false
		}
		texts = append(texts, rest[1:1+int(rest[0])])
		rest = rest[1+int(rest[0]):]
	}
	if len(rest) != 8 {
		return "", false
	}
	ms := binary.BigEndian.Uint64([]byte(rest))
	return texts[0] + " " + texts[2], ms < beyond*1000
}

// here returns the host and the ID of this process.
var here = sync.OnceValues(func() (host, pid string) {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsAny(host, ": \t\r\n") {
		host = "localhost"
	}
	return host, strconv.Itoa(os.Getpid())
})

// Random returns 32 random hexadecimal digits.
func Random() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
