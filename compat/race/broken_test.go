package race

import "github.com/setnxlock/setnxlock/compat/race/catalogue/broken"

// brokenLocks are the locks that the explorer must catch.
func brokenLocks() Locks {
	all := Locks{}
	for _, l := range broken.Locks() {
		all[l.Name] = Lock{Says: l.Says, Bare: l.Bare, New: l.New}
	}
	return all
}
