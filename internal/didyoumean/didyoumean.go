// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package didyoumean finds the word that somebody meant who has mistyped it.
package didyoumean

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"
)

// alike is how similar two words must be, from 0 to 1.
const alike = 0.85

// Hint returns ", did you mean X?" for the known word that is most like the one that
// is none of them, or "".
func Hint(word string, known []string) string {
	best, closest := alike, ""
	matcher := strutil.NewJaroWinklerMatcher(strings.ToLower(word))
	for _, k := range known {
		if score := matcher.Score(strings.ToLower(k)); score >= best {
			best, closest = score, k
		}
	}
	if closest == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", closest)
}

// unknownField is how the YAML libraries tell of a key that a type does not have.
var unknownField = regexp.MustCompile(`field (\S+) not found(?: in type (?:struct \{.*\}|\S+))?`)

// Field adds hints to an error of decoding YAML strictly into a value of such a type,
// which names keys and Go's types.
func Field(err error, into any) error {
	if err == nil || !unknownField.MatchString(err.Error()) {
		return err
	}
	known := keys(reflect.TypeOf(into), map[reflect.Type]bool{})
	return errors.New(unknownField.ReplaceAllStringFunc(err.Error(), func(text string) string {
		key := unknownField.FindStringSubmatch(text)[1]
		return fmt.Sprintf("unknown key %q", key) + Hint(key, known)
	}))
}

// keys returns the YAML keys of a type and of all that it holds.
func keys(t reflect.Type, seen map[reflect.Type]bool) (names []string) {
	if t == nil || seen[t] {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return keys(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name != "" && name != "-" {
				names = append(names, name)
			}
			names = append(names, keys(f.Type, seen)...)
		}
	}
	return names
}
