package pages

import "flag"

var update = flag.Bool("update", false, "rewrite the tables in docs")

// renders has the traces that are drawn.
const renders = "../../../../compat/race/view/testdata/render"
