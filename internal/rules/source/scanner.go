// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// segment is a piece of an expression's text with what it may be replaced by.
type segment struct {
	// choices has one element for text that stands as it is.
	choices []string
	// all says that each of the choices is what the dashboard asks at some
	// time. Otherwise they are guesses, and the first that parses is taken.
	all bool
	// marker is set where the first guess is a number, and the variable may as
	// well name a metric.
	marker string
	// variable ties segments together that have the same value.
	variable string
}

// scanner goes through an expression before it can be parsed, and tells by what
// stands around a variable what it may be.
type scanner struct {
	text string
	vars []variable
	used []string

	out   []segment
	plain strings.Builder
	// parens has, for each open parenthesis, whether it holds label names.
	parens   []bool
	brackets int
	braces   int
	quote    byte
	word     string // The identifier read last, if nothing but space follows it.
}

func (s *scanner) scan() []segment {
	for at := 0; at < len(s.text); {
		rest := s.text[at:]
		if m := referenceAt(rest); m != nil {
			name := m[1] + m[2] + m[3]
			if s.isVariable(name) {
				s.replace(name, at, at+len(m[0]))
				at += len(m[0])
				continue
			}
		}
		at += s.plainText(rest)
	}
	s.flush()
	return s.out
}

// referenceAt returns the parts of the reference that the text begins with, or nil.
func referenceAt(text string) []string {
	if text[0] != '$' && text[0] != '[' {
		return nil
	}
	return reference.FindStringSubmatch(text[:min(len(text), maxReference)])
}

// readable puts the variables' names back into an error.
func (s *scanner) readable(err error) error {
	text := err.Error()
	for i, name := range s.used {
		text = strings.ReplaceAll(text, Marker(i), "$"+name)
	}
	return errors.New(text)
}

// isVariable reports whether Grafana would replace the name. In label_replace,
// $1 is a group of a regex.
func (s *scanner) isVariable(name string) bool {
	return strings.Trim(name, "0123456789") != "" || s.lookup(name) != nil
}

func (s *scanner) lookup(name string) *variable {
	for i := range s.vars {
		if s.vars[i].name == name {
			return &s.vars[i]
		}
	}
	return nil
}

// plainText reads what is no variable and returns how many bytes it was.
func (s *scanner) plainText(rest string) int {
	c := rest[0]
	n := 1
	switch {
	case s.quote != 0:
		n = s.quoted(rest)
	case c == '#':
		// Comments may hold anything, also quotes that do not end.
		if n = strings.IndexByte(rest, '\n'); n < 0 {
			n = len(rest)
		}
		return n
	case isWordByte(c):
		for n < len(rest) && isWordByte(rest[n]) {
			n++
		}
		s.word = strings.ToLower(rest[:n])
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
	default:
		s.punctuation(c)
		s.word = ""
	}
	s.plain.WriteString(rest[:n])
	return n
}

func (s *scanner) quoted(rest string) int {
	if rest[0] == '\\' && s.quote != '`' && len(rest) > 1 {
		return 2
	}
	if rest[0] == s.quote {
		s.quote = 0
	}
	return 1
}

func (s *scanner) punctuation(c byte) {
	switch c {
	case '"', '\'', '`':
		s.quote = c
	case '(':
		grouping := slices.Contains([]string{"by", "without", "on", "ignoring", "group_left", "group_right"}, s.word)
		s.parens = append(s.parens, grouping)
	case ')':
		if n := len(s.parens); n > 0 {
			s.parens = s.parens[:n-1]
		}
	case '[':
		s.brackets++
	case ']':
		s.brackets = max(0, s.brackets-1)
	case '{':
		s.braces++
	case '}':
		s.braces = max(0, s.braces-1)
	}
}

// replace adds what the variable between two offsets may stand for.
func (s *scanner) replace(name string, start, end int) {
	if !slices.Contains(s.used, name) {
		s.used = append(s.used, name)
	}
	marker := Marker(slices.Index(s.used, name))
	next := strings.TrimLeft(s.text[end:], " \t\r\n")
	digits := s.digits()
	var (
		beside  = end < len(s.text) && isWordByte(s.text[end]) || start > 0 && isWordByte(s.text[start-1])
		choices []string
		all     bool
		number  bool
	)
	switch known := s.lookup(name); {
	case s.quote != 0:
		choices = []string{marker}
	case digits != "" && s.brackets == 0 && (known == nil || len(known.values) == 0):
		// A part of a number makes it any number.
		text := strings.TrimSuffix(s.plain.String(), digits)
		s.plain.Reset()
		s.plain.WriteString(text)
		choices = []string{anyNumber}
	case s.brackets > 0, s.word == "offset", strings.HasPrefix(name, "__") && builtins[name] != "":
		choices = []string{s.duration(name, end)}
	case s.braces > 0:
		choices = []string{s.matcher(marker, next)}
	case len(s.parens) > 0 && s.parens[len(s.parens)-1]:
		choices = []string{marker}
	case known != nil && len(known.values) > 0:
		choices, all = known.values, true
	case strings.HasPrefix(next, "("):
		choices = []string{"sum", "rate", "max_over_time", "histogram_quantile", marker}
	case beside, strings.HasPrefix(next, "{"), strings.HasPrefix(next, "["):
		choices = []string{marker}
	default:
		choices = []string{anyNumber, marker, "5m", ">", "+"}
		number = known == nil || !known.number
	}
	s.flush()
	out := segment{choices: choices, all: all, variable: name}
	if number {
		out.marker = marker
	}
	s.out = append(s.out, out)
	s.word = ""
}

// begunNumber is a number that the text ends with.
var begunNumber = regexp.MustCompile(`(?:^|[^\w:.])(\d+\.?\d*|\.\d*)$`)

// digits returns the digits, a point among them, that stand before a variable.
func (s *scanner) digits() string {
	if m := begunNumber.FindStringSubmatch(s.plain.String()); m != nil {
		return m[1]
	}
	return ""
}

// duration returns a length of time, without its unit if that follows.
func (s *scanner) duration(name string, end int) string {
	value := cmp.Or(builtins[name], "5m")
	if end < len(s.text) && strings.IndexByte("smhdwy", s.text[end]) >= 0 {
		value = strings.TrimSuffix(value, "m")
	}
	return value
}

// matcher returns what a variable stands for between braces: a label's name, an
// unquoted value, or one matcher or more.
func (s *scanner) matcher(marker, next string) string {
	before := strings.TrimRight(s.plain.String(), " \t\r\n")
	switch {
	case strings.HasPrefix(next, "=") || strings.HasPrefix(next, "!"):
		return marker
	case strings.HasSuffix(before, "=") || strings.HasSuffix(before, "~"):
		return `"` + marker + `"`
	}
	return marker + `=~".*"`
}

func (s *scanner) flush() {
	if s.plain.Len() > 0 {
		s.out = append(s.out, segment{choices: []string{s.plain.String()}})
		s.plain.Reset()
	}
}

func isWordByte(c byte) bool {
	return c == '_' || c == ':' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
