package monitor

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"
)

// What a client is seen to do.
const (
	takesSetnx      = "takes it with SETNX"
	takesSetNX      = "takes it with SET NX"
	takesSetNXTTL   = "takes it with SET NX and a TTL"
	takesRenamed    = "takes it with RENAMENX"
	takesGetset     = "takes it over with GETSET"
	takesWatched    = "takes it with WATCH and EXEC"
	takesMsetnx     = "takes it with MSETNX"
	takesOther      = "takes it with other commands"
	takesAnyway     = "sets it without a condition"
	inScript        = ", in a script"
	setsTTL         = "sets its TTL with a second command"
	extendsSet      = "extends it by writing it anew"
	extendsBare     = "extends it with EXPIRE"
	extendsWatched  = "extends it with WATCH and EXEC"
	extendsOther    = "extends it with other commands"
	repairs         = "sets a TTL on a key that has none"
	releasesBare    = "releases it with DEL, without looking"
	releasesLooked  = "releases it with GET, then DEL"
	releasesWatched = "releases it with WATCH and EXEC"
	releasesOther   = "releases it with other commands"
	releasesScript  = "releases it in a script"
)

// habits are what a client has been seen to do, in order.
type habits struct {
	done  []string
	looks bool // its last command looked at the key
}

func (h *habits) does(script bool, what string) {
	if script {
		what += inScript
	}
	if !slices.Contains(h.done, what) {
		h.done = append(h.done, what)
	}
}

//go:embed known.txt
var knownText string

// known are the locks by what each can be seen to do, as a test saw it on a real server: a line each.
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
