package simulate

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	forSo = flag.Duration("for", 0, "simulate for so long")
	from  = flag.Uint64("seed", 1, "the first seed")
	step  = flag.Uint64("step", 1, "the next ones are so far apart")
	one   = flag.Bool("one", false, "that seed alone, with its trace")
)

func TestSeeds(t *testing.T) {
	var all Report
	began := time.Now()
	for i := uint64(0); ; i++ {
		if *forSo > 0 {
			if time.Since(began) > *forSo {
				break
			}
		} else if i == 300 {
			break
		}
		c := Draw(*from + i**step)
		c.Trace = *one
		if os.Getenv("V") != "" {
			fmt.Println(c)
		}
		r := Run(t, c)
		all.Add(r)
		if len(r.Broken) > 0 {
			t.Errorf("%v\n\t%d broken, the first: %s", c, len(r.Broken), r.Broken[0])
		}
		if *one {
			for _, l := range r.Lines {
				fmt.Println(l)
			}
			break
		}
	}
	t.Logf("in %v:\n%s", time.Since(began).Round(time.Second), all.Table())
}
