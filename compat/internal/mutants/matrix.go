package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A column of the matrix is a named net. It takes a minute at most on two idle cores.
type column struct {
	name string
	net
}

// engine returns the mutants of compat, of protocol and of their internal packages, by their indices in the table.
func engine() (all []int) {
	for i, m := range table {
		if d := dir(m.in); d == "compat" || d == "compat/protocol" || strings.HasPrefix(d, "compat/internal/") {
			all = append(all, i)
		}
	}
	return all
}

// cells reads and keeps the cells of a matrix in a file, one line of JSON each.
type cells struct {
	file string
	mu   sync.Mutex
	of   map[[2]string]cell // by mutant and net
}

func read(file string) (*cells, error) {
	m := &cells{file: file, of: map[[2]string]cell{}}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var c cell
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", file, err, line)
		}
		m.of[[2]string{c.Mutant, c.Net}] = c
	}
	return m, nil
}

func (m *cells) get(mutant string, c column) cell {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[[2]string{mutant, c.String()}]
}

func (m *cells) keep(c cell) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[[2]string{c.Mutant, c.Net}] = c
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(m.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// fill runs the nets on the mutants without a verdict in the file, net after net, and prints the matrix.
func (m *cells) fill(ctx context.Context, b *builder) error {
	var failed []error
	for _, c := range columns {
		var open []int
		for _, i := range engine() {
			had := m.get(table[i].name, c)
			again := had.Verdict == "" || had.Verdict == timeout && had.Seconds < limit.Seconds()
			if again && with.MatchString(c.String()) && only.MatchString(table[i].name) {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %s: %d to run\n", time.Now().Format(time.TimeOnly), c.name, len(open))
		failed = append(failed, m.fillColumn(ctx, b, c, open))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	m.print()
	return errors.Join(failed...)
}

func (m *cells) fillColumn(ctx context.Context, b *builder, n column, open []int) error {
	if err := b.build(ctx, n.dir); err != nil {
		return err
	}
	clean := m.get("", n)
	if clean.Tests == nil {
		var err error
		if clean, err = n.calls(ctx, b); err != nil {
			return err
		}
		if err := m.keep(clean); err != nil {
			return err
		}
	}
	return parallel(ctx, open, func(i int) error {
		c := cell{Mutant: table[i].name, Net: n.String(), Verdict: apart}
		if tests := clean.Tests[table[i].in]; len(tests) > 0 {
			c = n.only(tests...).try(ctx, b, i, *limit)
			c.Net = n.String()
		}
		if ctx.Err() != nil {
			return ctx.Err() // the net was stopped
		}
		return m.keep(c)
	})
}

// only is the part of the net with these tests.
func (n net) only(tests ...string) net {
	n.run = "^(" + strings.Join(tests, "|") + ")$"
	return n
}

// calls runs each test of the net alone, without a mutant, and notes the called functions. A mutant of another function
// can't make the test fail.
func (n net) calls(ctx context.Context, b *builder) (cell, error) {
	out, err := exec.CommandContext(ctx, b.bins[n.dir], "-test.list", cmp.Or(n.run, ".")).Output()
	if err != nil {
		return cell{}, fmt.Errorf("%s: its tests: %w", n, err)
	}
	tests := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return strings.HasPrefix(name, "Benchmark") })
	all := cell{Net: n.String(), Verdict: survived, Tests: map[string][]string{}}
	var mu sync.Mutex
	err = parallel(ctx, tests, func(test string) error {
		alone := n.only(test)
		alone.ran = filepath.Join(b.tmp, strings.ReplaceAll(n.dir, "/", "-")+"."+test)
		c := alone.try(ctx, b, -1, *limit)
		if c.Saw == noTests { // its args skip the test
			return nil
		}
		if err := unbroken(c); err != nil {
			return err
		}
		ran, err := os.ReadFile(alone.ran)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all.Seconds += c.Seconds
		for _, in := range slices.Compact(slices.Sorted(strings.FieldsSeq(string(ran)))) {
			all.Tests[in] = append(all.Tests[in], test)
		}
		return nil
	})
	if all.Seconds == 0 && err == nil {
		err = fmt.Errorf("%s: no test ran", n)
	}
	return all, err
}

// print writes the matrix as markdown.
func (m *cells) print() {
	mark := map[string]string{killed: "x", survived: "", timeout: "t", unclear: "u", apart: "·", "": "?"}
	fmt.Print("x: the net kills the mutant; t: it ran out of time; u: it ended otherwise; " +
		"·: it does not call the mutant's function; ?: not yet run.\n\n| mutant |")
	for _, c := range columns {
		fmt.Printf(" %s |", c.name)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("---|", len(columns)))
	kills, alone := map[string]int{}, map[string][]string{}
	var none []string
	open := 0
	for _, i := range engine() {
		name := table[i].name
		var by []column
		complete := true
		fmt.Printf("| %s |", name)
		for _, c := range columns {
			v := m.get(name, c).Verdict
			fmt.Printf(" %s |", mark[v])
			if v == killed {
				by = append(by, c)
				kills[c.name]++
			}
			complete = complete && v != ""
		}
		fmt.Println()
		switch {
		case !complete:
			open++
		case len(by) == 0:
			none = append(none, name)
		case len(by) == 1:
			saw := strings.TrimPrefix(m.get(name, by[0]).Saw, "--- FAIL: ")
			alone[by[0].name] = append(alone[by[0].name], fmt.Sprintf("%s (%s)", name, saw))
		}
	}
	fmt.Print("\n| net | command | unbroken, s | kills | it alone kills |\n|---|---|--:|--:|---|\n")
	for _, c := range columns {
		fmt.Printf("| %s | `%s` | %.1f | %d | %s |\n", c.name, strings.ReplaceAll(c.String(), "|", `\|`),
			m.get("", c).Seconds, kills[c.name], strings.Join(alone[c.name], "; "))
	}
	m.printTests()
	fmt.Printf("\nKilled by no net: %d. %s\n", len(none), strings.Join(none, "; "))
	if open > 0 {
		fmt.Printf("\nNot tried by every net, and so not in the lists above: %d.\n", open)
	}
}

// printTests writes which tests kill what.
func (m *cells) printTests() {
	type test struct{ net, name string }
	kills, alone := map[test]int{}, map[test][]string{}
	for _, i := range engine() {
		var by []test
		for _, c := range columns {
			for _, name := range m.get(table[i].name, c).By {
				by = append(by, test{c.name, name})
				kills[test{c.name, name}]++
			}
		}
		if len(by) == 1 {
			alone[by[0]] = append(alone[by[0]], table[i].name)
		}
	}
	fmt.Print("\n| net | test | kills | it alone kills |\n|---|---|--:|---|\n")
	for _, c := range columns {
		names := map[string]bool{}
		for _, tests := range m.get("", c).Tests {
			for _, name := range tests {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			t := test{c.name, name}
			fmt.Printf("| %s | %s | %d | %s |\n", t.net, t.name, kills[t], strings.Join(alone[t], "; "))
		}
	}
}
