package npm

import "testing"

// axe-core, and its package's checksum.
const (
	axeVersion = "4.14.1"
	axeSum     = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

// Axe is where axe-core lies, which finds what of a page is out of reach for some of its readers.
func Axe(t testing.TB) string {
	t.Helper()
	return File(t, "axe-core", axeVersion, axeSum, "package/axe.min.js")
}

// AxeFindings is JavaScript: a promise of the findings about a page, once axe-core has run in it.
const AxeFindings = `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 120) + " " + n.failureSummary).join("; ")))`
