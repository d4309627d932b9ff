package ability

import (
	"fmt"

	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/listcas"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// lists runs the very commands of a lock: it tries each outcome, and looks at the rest.
func (q *Asker) lists() (string, error) {
	why, err := q.tryLists()
	if why != "" || err != nil {
		q.c.Do("DEL", q.a) //nolint:errcheck // the reason is reported
	}
	if answer.Lacks(err) || answer.SortDenied(err) {
		return "it does not run every command that ListCAS is made of (" + err.Error() + ")", nil
	}
	return why, err
}

func (q *Asker) tryLists() (why string, err error) {
	for _, try := range []struct {
		holds, next string // next "": it is removed
		done        bool
		left        string
		wrong       string
	}{
		{"other", "", false, "other", "another's value is deleted"},
		{"held", "", true, "", "an equal value is not deleted (on 1.2 an emptied list stays)"},
		{"other", "next", false, "other", "another's value is replaced"},
		{"held", "next", true, "next", "an equal value is not replaced"},
		{"", "next", false, "", "a value is put on a key that was not there"},
	} {
		q.Again() // the account of one try is enough
		done, left, err := q.tryOne(try.holds, try.next)
		if err != nil {
			return "", err
		}
		if done != try.done || left != try.left {
			return "lists don't compare there: " + try.wrong, nil
		}
	}
	return "", nil
}

// tryOne removes "held" from the scratch key, or replaces it by next. It reports whether the replies say "done", and
// the key's value then. All is one transaction, which makes the key and removes it: nobody ever sees it.
func (q *Asker) tryOne(holds, next string) (done bool, left string, err error) {
	begin := protocol.Cmd{"SET", q.a, holds}
	if holds == "" {
		begin = protocol.Cmd{"DEL", q.a}
	}
	all := listcas.Commands(protocol.Aux, q.a, "held", next, [][]any{{"GET", q.a}, {"DEL", q.a}})
	cmds := []protocol.Cmd{begin}
	for _, m := range all[1 : len(all)-1] { // between MULTI and EXEC
		cmds = append(cmds, m)
	}
	ran, err := q.exec(cmds...)
	if len(ran) != len(cmds) {
		return false, "", err
	}
	if err := answer.First(ran[:1]); err != nil {
		return false, "", err
	}
	if got := ran[len(ran)-3]; got != nil {
		left = fmt.Sprintf("%s", got) // an error, if it is a list
	}
	held, _, err := listcas.Read(ran[1:])
	return held && (next == "" || listcas.Set(ran[1:]) == int64(1)), left, err
}
