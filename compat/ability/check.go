package ability

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A Need names an ability that a lock needs, another one that does in its place (Or), and the lock or server to use
// where both are missing.
type Need struct {
	Ability Ability
	Use     string
	Or      Ability // "": none
}

// Check asks for all needs of a lock, over c and on scratch keys in key's slot: use it as a lock's
// [protocol.Traits].Check. The error is [protocol.ErrUnsafeServer] (a [*protocol.UnsafeServerError]) if an answer
// proves that the server lacks something, or else the server's refusal or the connection's error. millis says that the
// lock counts TTLs in milliseconds.
func Check(c *protocol.Conn, key string, millis bool, needs ...Need) error {
	q := New(c, protocol.Aux(key, "check:"+protocol.NewToken()), protocol.Aux(key, "check:"+protocol.NewToken()), millis)
	for _, n := range needs {
		said, err := q.Ask(n.Ability)
		if n.Or != "" && answer.Lacks(err) {
			n.Ability = n.Or
			said, err = q.Ask(n.Ability)
		}
		switch {
		case err != nil:
			return n.refused(c, err)
		case said.Verdict == No:
			return c.Unsafe(said.Why, n.Use)
		}
	}
	return nil
}

// refused returns the error for the server's answer to a question. A command that it does not know may have come later,
// or may have been renamed: the version, if it is told, decides.
func (n Need) refused(c *protocol.Conn, err error) error {
	row := n.Ability.row()
	err = c.Lacks(err, row.lacks, n.Use)
	var unsafe *protocol.UnsafeServerError
	switch {
	case !errors.As(err, &unsafe) || unsafe.Reply == "":
	case Older(unsafe.Version, row.since):
		own := strings.FieldsFunc(string(n.Ability), func(r rune) bool { return r == ' ' || r == ',' })
		if unsafe.Command != "" && !slices.Contains(own, unsafe.Command) {
			unsafe.Why = "it has no " + unsafe.Command
		}
	default:
		unsafe.Why = fmt.Sprintf("it does not know a command that Redis has had since %s (%s): it was renamed or disabled (rename-command), or a proxy in between lacks it", row.since, short(unsafe.Reply))
		unsafe.Use += ", or give the command back its name"
		return renamed{unsafe}
	}
	return err
}

// A renamed error is that of a check that failed because the server does not know a command that its
// version has.
type renamed struct{ *protocol.UnsafeServerError }

func (e renamed) Unwrap() error { return e.UnsafeServerError }

// Renamed reports whether a check failed because the server does not know a command of its version: other clients, or
// this one later, may find it there.
func Renamed(err error) bool { return errors.As(err, new(renamed)) }

// short returns a server's reply without the arguments repeated in it.
func short(e redis.Error) string {
	s, _, _ := strings.Cut(string(e), ", with args")
	return strings.TrimSpace(s)
}

// Older reports whether version is before since. An unknown version ("") counts as older.
func Older(version, since string) bool {
	return slices.Compare(numbers(version), numbers(since)) < 0
}

// numbers returns the numbers of a version, up to the first unreadable one.
func numbers(version string) []int {
	var list []int
	for _, part := range strings.Split(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		list = append(list, n)
	}
	return list
}
