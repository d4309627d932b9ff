package compat_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

var (
	indefinite = regexp.MustCompile(`\b([Tt]hat|[Ww]hich|[Ww]ho|[Ww]hose|[Ww]hom|[Ww]hat|[Ww]hoever|[Ww]hatever|[Ss]omebody|[Nn]obody|[Aa]nybody|[Tt]hose)\b`)
	reporting  = regexp.MustCompile(`\b(report|say|tell|note|know|check|see|find|show|mean|ensure|require|promise|assume|prove)(s|ed|ing)? that\b`)
	copula     = regexp.MustCompile(`^\S+ (is|are|has|have|says?)\b`)
)

// A comment of a function names things and says what the function does: few of a package's first sentences have a pronoun
// without a name, and few begin with "Name is". Packages with up to four such comments are not judged.
func TestCommentsNameThingsAndAct(t *testing.T) {
	judged := 0
	for _, dir := range packagesBut(t, func(string) bool { return false }) {
		sentences, pronouns, copulas := 0, 0, 0
		for _, f := range parse(t, dir) {
			for _, d := range f.file.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Doc == nil {
					continue
				}
				first, _, _ := strings.Cut(strings.Join(strings.Fields(fn.Doc.Text()), " "), ". ")
				sentences++
				pronouns += len(indefinite.FindAllString(reporting.ReplaceAllString(first, ""), -1))
				if copula.MatchString(first) {
					copulas++
				}
			}
		}
		if sentences <= 4 {
			continue
		}
		judged++
		p, c := float64(pronouns)/float64(sentences), float64(copulas)/float64(sentences)
		if p > 0.25 || c > 0.15 {
			t.Errorf("%s: %.2f pronouns a comment, want 0.25 at most; %.0f %% begin with \"Name is\", want 15 at most", dir, p, 100*c)
		}
	}
	if judged < 40 {
		t.Errorf("%d packages are judged: where are the others?", judged)
	}
}
