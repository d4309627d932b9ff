package workbench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
)

// absent are the commands that the page's Redis does without, for what has to be loaded: no lock sends them.
const absent = "bitcount bitop bitpos geoadd geodist geopos geosearch getbit getrange hincrbyfloat hrandfield hscan incrbyfloat " +
	"linsert lmove lpos lset object pfadd pfcount pfmerge sdiff sdiffstore setbit setrange sinter sintercard sinterstore smove spop " +
	"srandmember sscan sunion sunionstore xadd xdel xlen xrange xrevrange xtrim zinter zinterstore zlexcount zmscore zpopmax zpopmin " +
	"zrandmember zrangebylex zremrangebylex zrevrangebylex zscan zunion"

// present says that neither what a schedule gives nor a lock that is written out in it sends an absent command.
func present(c race.Config) error {
	sent := slices.Clone(c.Given)
	for name := range strings.SplitSeq(c.Algorithm, "+") {
		if lines, ok := strings.CutPrefix(name, "form/"); ok {
			sent = append(sent, strings.Split(strings.ReplaceAll(lines, ",", " "), ";")...)
		}
	}
	for _, cmd := range sent {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(cmd)), " ")
		if slices.Contains(strings.Fields(absent), name) {
			return fmt.Errorf("race: the workbench's Redis has no %s: setnxlock race explore has it", strings.ToUpper(name))
		}
	}
	return nil
}
