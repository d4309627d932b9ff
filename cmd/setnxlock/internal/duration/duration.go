// Package duration reads the durations of command lines: 90s and 5m as Go writes them, and plain seconds.
package duration

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Parse reads a duration: "1m30s", "90s", or "90" for seconds.
func Parse(s string) (time.Duration, error) {
	if s != "" && strings.Trim(s, "+-.0123456789") == "" {
		s += "s"
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("it must be a duration such as 90, 90s or 5m")
	}
	return d, nil
}

// Var gives flags a duration.
func Var(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*flag)(p), name, usage)
}

type flag time.Duration

func (d *flag) Type() string   { return "duration" }
func (d *flag) String() string { return time.Duration(*d).String() }

func (d *flag) Set(s string) error {
	v, err := Parse(s)
	if err == nil {
		*d = flag(v)
	}
	return err
}

// SliceVar gives flags a list of durations, with commas between.
func SliceVar(f *pflag.FlagSet, p *[]time.Duration, name, usage string) {
	f.Var((*list)(p), name, usage)
}

type list []time.Duration

func (l *list) Type() string { return "durations" }

func (l *list) String() string {
	var all []string
	for _, d := range *l {
		all = append(all, d.String())
	}
	return strings.Join(all, ",")
}

func (l *list) Set(s string) error {
	var all list
	for text := range strings.SplitSeq(s, ",") {
		d, err := Parse(text)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	*l = append(*l, all...)
	return nil
}
