package compat

// Settled takes apart the error of a step, for a Backend that is made of
// others: known says that err leaves nothing open, what was asked for was not
// done; why is err without the mark that NotDone put on it.
func Settled(err error) (why error, known bool) {
	known = err != nil && definite(err)
	for {
		marked, ok := err.(unsent)
		if !ok {
			return err, known
		}
		err = marked.error
	}
}

// NotDone marks err as the error of a step that is known not to have been done,
// whatever err is: a Locker then has nothing to settle.
func NotDone(err error) error { return unsent{err} }
