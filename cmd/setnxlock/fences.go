package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/spf13/cobra"
)

const fencesHelp = `Lists the counters of fences (setnxlock run --fence), and when each was last used, if the
server knows: Redis before 2.2 does not, nor one that evicts by LFU. With KEYs it lists
the counters of these locks. Each slot of a semaphore has its own: name it as the full
list does, "import:1:{import}".

A counter has no TTL and stays for ever: before 2.2 an INCR deletes a key that has a TTL,
later servers may evict such a key, and a storage that has seen 900 refuses 1 for ever.
So a lock with a date in its name leaves a counter each day. --remove shows the numbers
of the KEYs' counters, asks, and removes them: the next fence of such a lock is 1.`

const fencesExamples = `  setnxlock fences
  setnxlock fences --remove nightly-2026-11-01 nightly-2026-11-02`

func (a *app) fencesCommand() *cobra.Command {
	var remove, yes, asJSON bool
	cmd := &cobra.Command{
		Use:         "fences [KEY...]",
		Short:       "List the counters of fences, or remove some",
		Long:        fencesHelp,
		Example:     fencesExamples,
		Annotations: map[string]string{"status": "  0      The counters were listed or removed; also if there is none.\n  1      --remove was answered with no.\n" + statusHelp + "\n  76     A fence was drawn since its counter was shown: that one is still there."},
		Args:        cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case remove && len(args) == 0:
				return exit.Usage(cmd, errors.New("fences --remove needs a KEY"))
			case remove && asJSON:
				return exit.Usage(cmd, errors.New("--json lists, and --remove asks"))
			}
			return a.fences(context.Background(), args, fencesDo{remove, yes, asJSON})
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the counters of these KEYs, after asking")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// fencesDo holds the flags of fences.
type fencesDo struct{ remove, yes, asJSON bool }

// A counter counts the fences of a lock.
type counter struct {
	key, name string        // the lock's, and the counter's own
	idle      time.Duration // since it was last used; -1: the server doesn't say
	number    string        // the last one, if it was looked at
}

func (a *app) fences(ctx context.Context, keys []string, do fencesDo) error {
	if err := a.oneServer(); err != nil {
		return err
	}
	p, c, err := a.session(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	defer c.Close()
	if do.remove {
		if err := a.mayChange(ctx, p.one(), a.prefix+keys[0]); err != nil {
			return err
		}
	}
	all, err := a.counters(c, keys, do.yes)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(x, y *counter) int { return cmp.Or(cmp.Compare(y.idle, x.idle), cmp.Compare(x.key, y.key)) })
	switch {
	case do.remove:
		return a.removeCounters(c, all, do.yes)
	case do.asJSON:
		return a.printJSON(countersJSON(p.one().name, all))
	}
	return a.printCounters(all)
}

// counters returns the counters of the named locks, or all.
func (a *app) counters(c redis.Conn, keys []string, yes bool) (all []*counter, err error) {
	if len(keys) == 0 {
		told := map[string]bool{} // SCAN may tell a key twice
		err = a.eachKeys(c, "*:fence*", yes, &verdict.Server{}, func(names []string) error {
			for _, name := range names {
				if key, kind := verdict.Beside(name); kind == "fence" && !told[name] {
					told[name] = true
					all = append(all, &counter{key: key, name: name})
				}
			}
			return nil
		})
	}
	for _, k := range keys {
		key, err := a.onServer(k)
		if err != nil {
			return nil, err
		}
		all = append(all, &counter{key: key, name: protocol.Aux(key, "fence")})
	}
	if err == nil {
		err = ages(c, all)
	}
	if len(keys) > 0 { // a name need not have one
		all = slices.DeleteFunc(all, func(c *counter) bool { return c.idle == absent })
	}
	return all, err
}

const (
	unknown = -time.Second // idle, where the server doesn't tell
	absent  = -time.Hour   // idle of a counter that there is none of
)

// ages asks how long each counter was idle, by a command that does not touch it: a read would.
func ages(c redis.Conn, all []*counter) error {
	conn := protocol.NewConn(c)
	for part := range slices.Chunk(all, batch) {
		var cmds []protocol.Cmd
		for _, one := range part {
			cmds = append(cmds, protocol.Cmd{"EXISTS", one.name}, protocol.Cmd{"OBJECT", "IDLETIME", one.name})
		}
		replies, err := conn.Pipe(cmds...)
		if err != nil {
			return err
		}
		for i := range part {
			exists, err := redis.Bool(replies[2*i], nil)
			if err != nil {
				return conn.Denied(part[i].name, err)
			}
			seconds, err := redis.Int64(replies[2*i+1], nil)
			switch part[i].idle = time.Duration(seconds) * time.Second; {
			case !exists:
				part[i].idle = absent
			case err != nil: // no such command, a policy that keeps no such times, an ACL
				part[i].idle = unknown
			}
		}
	}
	return nil
}

func (a *app) printCounters(all []*counter) error {
	var page strings.Builder
	w := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0)
	numbers := len(all) > 0 && all[0].number != ""
	switch {
	case numbers:
		fmt.Fprintln(w, "KEY\tLAST DRAWN\tLAST NUMBER")
	case len(all) > 0:
		fmt.Fprintln(w, "KEY\tLAST DRAWN")
	}
	for _, one := range all {
		fmt.Fprintf(w, "%s\t%s", printable(one.key), ago(one.idle))
		if numbers {
			fmt.Fprintf(w, "\t%s", one.number)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return a.print(page.String() + counted(len(all)) + "\n")
}

func counted(n int) string {
	if n == 1 {
		return "1 counter of fences"
	}
	return fmt.Sprintf("%d counters of fences", n)
}

// ago puts an age into words, in its largest unit.
func ago(idle time.Duration) string {
	if idle < 0 {
		return "the server doesn't say"
	}
	for _, u := range []struct {
		long time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		switch n := int(idle / u.long); {
		case n == 1:
			return "1 " + u.name + " ago"
		case n > 1:
			return strconv.Itoa(n) + " " + u.name + "s ago"
		}
	}
	return "less than a minute ago"
}

// removeCounters shows the numbers, asks, and removes the counters that still have them.
func (a *app) removeCounters(c redis.Conn, all []*counter, yes bool) error {
	conn := protocol.NewConn(c)
	for i := range all {
		number, err := redis.String(c.Do("GET", all[i].name))
		if _, odd := strconv.ParseInt(number, 10, 64); odd != nil && c.Err() == nil && conn.Denied("", err) == err {
			return exit.Because(statusForeign, fmt.Errorf("%q is no counter: nothing was removed", all[i].name), "look at it with redis-cli")
		}
		if err != nil {
			return conn.Denied(all[i].name, err)
		}
		all[i].number = number
	}
	if err := a.printCounters(all); err != nil || len(all) == 0 {
		return err
	}
	if !yes {
		if err := a.confirm("The next fence of these locks is 1. A storage that remembers a higher one\nrefuses every holder until they have passed it. Remove the counters?"); err != nil {
			return err
		}
	}
	for _, one := range all {
		removed, err := one.remove(conn)
		if err != nil {
			return err
		}
		if !removed {
			return exit.Because(statusLost, fmt.Errorf("a fence of %q was drawn since its counter was shown: it was not removed", one.key), "")
		}
		if err := a.print(printable(one.key) + ": fence removed\n"); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the counter if it still has the shown number. Without WATCH (before 2.2, and proxies) it
// takes two steps, and a fence that is drawn in between is forgotten.
func (c *counter) remove(conn *protocol.Conn) (bool, error) {
	number, exists, err := conn.Watch(c.name)
	bare := errors.Is(conn.Lacks(err, "it has no WATCH", ""), protocol.ErrUnsafeServer)
	if bare {
		number, err = redis.String(conn.Do("GET", c.name))
		exists = err == nil
	}
	if err != nil && !errors.Is(err, redis.ErrNil) {
		return false, conn.Denied(c.name, err)
	}
	if !exists || number != c.number {
		if !bare {
			conn.Unwatch()
		}
		return false, nil
	}
	if bare {
		_, err = conn.Do("DEL", c.name)
		return err == nil, err
	}
	replies, err := conn.Exec(protocol.Cmd{"DEL", c.name})
	return replies != nil, err
}

// A jsonCounter is a counter as machines get it.
type jsonCounter struct {
	Key      string `json:"key"`
	KeyBytes string `json:"key_base64,omitempty"`
	Counter  string `json:"counter"`
	Idle     *int64 `json:"idle_seconds,omitempty"`
}

func countersJSON(server string, all []*counter) any {
	list := []jsonCounter{}
	for _, one := range all {
		j := jsonCounter{Key: one.key, KeyBytes: raw(one.key), Counter: one.name}
		if seconds := int64(one.idle / time.Second); seconds >= 0 {
			j.Idle = &seconds
		}
		list = append(list, j)
	}
	return struct {
		Server string        `json:"server"`
		Fences []jsonCounter `json:"fences"`
	}{server, list}
}
