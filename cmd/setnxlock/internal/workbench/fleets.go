package workbench

import (
	"context"
	"maps"
	"sync"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/mixing"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// Locks are those of the catalogue and the fleets.
var Locks = sync.OnceValue(func() race.Locks {
	all := maps.Clone(catalogue.Locks())
	maps.Copy(all, mixing.Locks())
	return all
})

// parties lists the fleets with a common key.
func parties() []Named {
	var list []Named
	for _, p := range mixing.Parties() {
		list = append(list, Named{p.Name, p.Says, p.Ours})
	}
	return list
}

// A Paired is what two fleets on one key do to each other.
type Paired struct {
	Safe   bool         `json:"safe"`
	States int          `json:"states"`
	Says   []mixing.Way `json:"says"`
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
	return Paired{v.Safe(), v.States, v.Ways()}, err
}
