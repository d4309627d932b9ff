package main

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/spf13/pflag"
)

// line builds a command line of ours to be pasted into a shell: with the user's flags of all commands, and
// without passwords.
func (a *app) line(command string, args ...string) string {
	words := []string{"setnxlock", command}
	if a.flags != nil {
		a.flags.VisitAll(func(f *pflag.Flag) {
			switch {
			case !f.Changed || f.Name == "help" || f.Name == "verbose":
			case f.Name == "prefix" && command == "doctor" && a.key != "":
			case f.Name == "redis":
				user := ""
				for _, arg := range a.redis.list {
					words = append(words, "--redis", quoted(shown(arg)))
					if at, err := parseAddress(arg); err == nil && at.password != "" {
						user = at.user
					}
				}
				if user != "" && a.user == "" {
					words = append(words, "--user", quoted(user)) // who is asked for the password
				}
			case f.Name == "sentinel":
				words = append(words, "--sentinel", quoted(shownList(a.sentinel)))
			case f.Value.Type() == "bool":
				words = append(words, "--"+f.Name+"="+f.Value.String())
			default:
				words = append(words, "--"+f.Name, quoted(f.Value.String()))
			}
		})
	}
	if command == "doctor" && a.key != "" {
		words = append(words, "--prefix", quoted(a.key)) // a user may be let have these keys alone
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			words = append(words, "--")
			break
		}
	}
	for _, arg := range args {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a shell, in characters that a terminal can bear.
func quoted(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+"
	switch {
	case s != "" && strings.Trim(s, plain) == "":
		return s
	case screen.Escaped(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || strings.IndexByte(`%\'!`, c) >= 0 {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	if strings.HasSuffix(s, "\n") { // which $(…) drops; sh alone reads it only since POSIX of 2024
		return "$'" + b.String() + "'"
	}
	return `"$(printf '` + b.String() + `')"`
}

// shown returns an address for messages and hints: without user and password.
func shown(arg string) string {
	arg = strings.TrimRight(arg, "\r\n")
	from := 0
	if i := strings.Index(arg, "://"); i >= 0 {
		from = i + len("://")
	}
	if strings.HasPrefix(arg[from:], "/") { // a socket's path
		return arg
	}
	return arg[:from] + arg[from+strings.LastIndex(arg[from:], "@")+1:]
}

// shownList does as shown for addresses with commas between.
func shownList(arg string) string {
	list := strings.Split(arg, ",")
	for i := range list {
		list[i] = shown(list[i])
	}
	return strings.Join(list, ",")
}

// passwords finds where the passwords of the URLs in a text begin and end. A list item behind a URL, without
// a scheme, counts as a part of it: the comma may be one of the password or of the user's name.
func passwords(text string) (list [][2]int) {
	for from := 0; ; {
		i := strings.Index(text[from:], "://")
		if i < 0 {
			return list
		}
		from += i + len("://")
		end := from + endOfURL(text, from)
		if i := strings.Index(text[from:end], "://"); i >= 0 { // the next URL
			if i := strings.LastIndexAny(text[from:from+i], ",\"'"); i >= 0 {
				end = from + i
			}
		}
		if at := strings.LastIndex(text[from:end], "@"); at >= 0 {
			if colon := strings.Index(text[from:from+at], ":"); colon >= 0 {
				list = append(list, [2]int{from + colon + 1, from + at})
			} else if at > 0 { // redis://secret@host
				list = append(list, [2]int{from, from + at})
			}
		}
		from = end
	}
}

// endOfURL measures a URL whose host begins at from: to the end of its argument or its quotes; else to the
// next blank. A password that was pasted may have blanks.
func endOfURL(text string, from int) int {
	scheme := from - len("://")
	for scheme > 0 && (text[scheme-1] >= 'a' && text[scheme-1] <= 'z') {
		scheme--
	}
	rest := text[from:]
	if scheme > 0 && text[scheme-1] == '"' {
		for i := range len(rest) {
			if rest[i] == '"' && (i == 0 || rest[i-1] != '\\') {
				return i
			}
		}
	}
	if i := strings.IndexAny(rest, " \t\r\n"); i >= 0 && scheme > 0 {
		return i
	}
	return len(rest)
}

// scrubbed replaces the passwords of the URLs in a text.
func scrubbed(text string) string {
	var b strings.Builder
	done := 0
	for _, at := range passwords(text) {
		b.WriteString(text[done:at[0]])
		b.WriteString("***")
		done = at[1]
	}
	b.WriteString(text[done:])
	return b.String()
}

// conceal returns args as they are, and overwrites the passwords of the URLs in them where
// ps finds them: the strings of os.Args are the process's own arguments, not copies.
func conceal(args []string) []string {
	given := make([]string, len(args))
	for i, arg := range args {
		given[i] = strings.Clone(arg)
		for _, at := range passwords(given[i]) {
			for j := at[0]; j < at[1]; j++ {
				unsafe.Slice(unsafe.StringData(arg), len(arg))[j] = '*'
			}
		}
	}
	return given
}
