package monitor

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"
)

// habits are a client's actions so far, in order.
type habits struct {
	done  []string
	looks bool // its last command looked at the key
}

func (h *habits) does(script bool, what string) {
	if script {
		what += ", in a script"
	}
	if !slices.Contains(h.done, what) {
		h.done = append(h.done, what)
	}
}

//go:embed known.txt
var knownText string

// known lists the locks with their habits, as a test saw them on a real server: a line each.
var known = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(knownText) {
		name, does, _ := strings.Cut(strings.TrimSpace(line), " | ")
		all[name] = strings.Split(does, " | ")
	}
	return all
})

func (r *run) follows() []Follows {
	var list []Follows
	for _, c := range r.clients {
		f := Follows{Client: c.name, Address: strings.Join(c.addresses, ", "), Does: append([]string{}, c.done...), Like: []string{}}
		for _, name := range slices.Sorted(maps.Keys(known())) {
			if len(f.Does) > 0 && !slices.ContainsFunc(f.Does, func(d string) bool { return !slices.Contains(known()[name], d) }) {
				f.Like = append(f.Like, name)
			}
		}
		list = append(list, f)
	}
	return list
}
