package workbench

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/mixing"
)

// known are all locks that a schedule can name here, as for the command.
var known = sync.OnceValue(func() race.Locks {
	all := maps.Clone(catalogue.Locks())
	maps.Copy(all, mixing.Locks())
	return all
})

// parties are the fleets that can share a key.
func parties() []Named {
	var list []Named
	for _, p := range mixing.Parties() {
		list = append(list, Named{p.Name, p.Says, p.Ours})
	}
	return list
}

// A Paired is what two fleets on one key do to each other.
type Paired struct {
	Safe   bool    `json:"safe"`
	States int     `json:"states"`
	Says   []Shown `json:"says"`
}

// A Shown is a sentence, and the schedule that shows it.
type Shown struct {
	Text     string `json:"text"`
	Schedule string `json:"schedule"`
}

func pair(ctx context.Context, names [2]string) (Paired, error) {
	a, err := mixing.Find(names[0])
	if err != nil {
		return Paired{}, err
	}
	b, err := mixing.Find(names[1])
	if err != nil {
		return Paired{}, err
	}
	v, err := mixing.Pair(ctx, a, b)
	if err != nil {
		return Paired{}, err
	}
	p := Paired{Safe: v.Safe(), States: v.States, Says: []Shown{}}
	if c := v.Clash; c != nil {
		p.Says = append(p.Says, Shown{fmt.Sprintf("Two clients hold the lock %s, with %s, in %d steps.", c.Grade, v.Takes(), c.Steps), c.Schedule})
	}
	for _, s := range v.Stuck {
		p.Says = append(p.Says, Shown{fmt.Sprintf("%s never gets a key that %s has left: %s.", bare(s.By), bare(s.Of), s.When), s.Schedule})
	}
	return p, nil
}

func bare(party string) string { return strings.TrimSuffix(party, "/among") }
