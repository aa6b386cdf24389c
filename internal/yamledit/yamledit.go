// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package yamledit sets values in the text of a YAML file. It changes and adds
// lines that it finds with the help of a YAML parser, so that everything else,
// comments, order and layout included, stays byte for byte. What it has done it
// reads again, and returns only if nothing but the value has changed.
package yamledit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Set returns the text with a scalar at the path of keys, which are added where
// they are missing: the first block keys a line each, those below in braces. The
// value is YAML. The errors name the line that cannot be edited.
func Set(text []byte, path []string, block int, value string) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	if otherBreak.Match(text) {
		return nil, errors.New("there are ends of lines other than LF and CRLF: write those")
	}
	f := file{lines: strings.SplitAfter(string(text), "\n"), eol: "\n"}
	if strings.HasSuffix(f.lines[0], "\r\n") {
		f.eol = "\r\n"
	}
	if n := len(f.lines); f.lines[n-1] == "" {
		f.lines = f.lines[:n-1]
	}
	if err := f.set(root, path, block, value); err != nil {
		return nil, err
	}
	out := []byte(strings.Join(f.lines, ""))
	return out, verify(text, out, path, value)
}

// otherBreak finds what YAML takes for the end of a line, and nobody else does.
var otherBreak = regexp.MustCompile("\r(?:[^\n]|$)|[\u0085\u2028\u2029]")

// parse returns the root mapping, or nil if there is nothing.
func parse(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	root := doc.Content[0]
	if isNull(root) {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: the file is no mapping", root.Line)
	}
	return root, nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

type file struct {
	lines []string
	eol   string
}

func (f *file) set(root *yaml.Node, path []string, block int, value string) error {
	if root == nil {
		f.add(len(f.lines), "", path, block, value)
		return nil
	}
	node := root
	for i, key := range path {
		k, child := field(node, key)
		if child == nil {
			return f.insert(node, node == root, path[i:], block-i, value)
		}
		if child.Kind == yaml.AliasNode || child.Anchor != "" {
			return fmt.Errorf("line %d: %s has an anchor, so that others would change too: write it out", k.Line, key)
		}
		if last := i == len(path)-1; last {
			return f.replace(k, child, value)
		}
		if isNull(child) && child.Value == "" {
			if node.Style&yaml.FlowStyle != 0 {
				return fmt.Errorf("line %d: %s has no value in braces: write %s: {}", k.Line, key, key)
			}
			f.add(k.Line, strings.Repeat(" ", k.Column+1), path[i+1:], block-i-1, value)
			return nil
		}
		if child.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: %s is no mapping", k.Line, key)
		}
		node = child
	}
	return nil
}

// field returns the key and the value of a mapping, or nil.
func field(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

// replace writes a scalar over another.
func (f *file) replace(key, old *yaml.Node, value string) error {
	if isNull(old) && old.Value == "" {
		line, end, err := f.end(key)
		if err != nil {
			return err
		}
		text := f.lines[line]
		colon := strings.IndexByte(text[end:], ':')
		if colon < 0 {
			return unclear(key)
		}
		f.lines[line] = text[:end+colon+1] + " " + value + text[end+colon+1:]
		return nil
	}
	if old.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: %s is no single value", key.Line, key.Value)
	}
	line, end, err := f.end(old)
	if err != nil {
		return err
	}
	start, err := f.offset(old)
	if err != nil {
		return err
	}
	f.lines[line] = f.lines[line][:start] + value + f.lines[line][end:]
	return nil
}

func unclear(n *yaml.Node) error {
	return fmt.Errorf("line %d: %q is written in a way that cannot be edited: write it in one line", n.Line, n.Value)
}

// offset returns where in its line a node begins. Columns count characters.
func (f *file) offset(n *yaml.Node) (int, error) {
	if n.Line > len(f.lines) {
		return 0, unclear(n)
	}
	column := n.Column - 1
	for i := range f.lines[n.Line-1] {
		if column == 0 {
			return i, nil
		}
		column--
	}
	return 0, unclear(n)
}

// end returns the line of a scalar, from 0, and where in it the scalar ends.
func (f *file) end(n *yaml.Node) (line, end int, err error) {
	start, err := f.offset(n)
	if err != nil {
		return 0, 0, err
	}
	text := f.lines[n.Line-1][start:]
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		if m := regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`).FindString(text); m != "" {
			return n.Line - 1, start + len(m), nil
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		if m := regexp.MustCompile(`^'(?:[^']|'')*'`).FindString(text); m != "" {
			return n.Line - 1, start + len(m), nil
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 && strings.HasPrefix(text, n.Value):
		return n.Line - 1, start + len(n.Value), nil
	}
	return 0, 0, unclear(n)
}

// insert adds keys that are missing in a mapping.
func (f *file) insert(mapping *yaml.Node, isRoot bool, path []string, block int, value string) error {
	if mapping.Style&yaml.FlowStyle != 0 || len(mapping.Content) == 0 {
		start, err := f.offset(mapping)
		if err != nil || f.lines[mapping.Line-1][start] != '{' {
			return unclear(mapping)
		}
		text := inBraces(path, value)
		if len(mapping.Content) > 0 {
			text += ", "
		}
		line := f.lines[mapping.Line-1]
		f.lines[mapping.Line-1] = line[:start+1] + text + line[start+1:]
		return nil
	}
	at := len(f.lines)
	if !isRoot {
		at = f.lastLine(mapping)
	}
	f.add(at, strings.Repeat(" ", mapping.Content[0].Column-1), path, block, value)
	return nil
}

// lastLine returns how many lines there are up to the last of a block mapping.
// Blank lines and comments behind it do not count.
func (f *file) lastLine(mapping *yaml.Node) int {
	last := deepest(mapping)
	indentation := mapping.Content[0].Column - 1
	for i := last; i < len(f.lines); i++ {
		text := strings.TrimSpace(f.lines[i])
		if text == "" || text[0] == '#' {
			continue
		}
		if len(f.lines[i])-len(strings.TrimLeft(f.lines[i], " ")) < indentation {
			break
		}
		last = i + 1
	}
	return last
}

// deepest returns the last line on which a part of the node begins, from 1.
func deepest(n *yaml.Node) int {
	line := n.Line
	for _, c := range n.Content {
		line = max(line, deepest(c))
	}
	return line
}

// add inserts lines with the keys behind so many lines.
func (f *file) add(at int, indent string, path []string, block int, value string) {
	var out []string
	if at > 0 && !strings.HasSuffix(f.lines[at-1], "\n") {
		f.lines[at-1] += f.eol
	}
	for len(path) > 1 && block > 0 {
		out = append(out, indent+Key(path[0])+":"+f.eol)
		indent += "  "
		path = path[1:]
		block--
	}
	out = append(out, indent+inBraces(path, value)+f.eol)
	f.lines = append(f.lines[:at:at], append(out, f.lines[at:]...)...)
}

// inBraces returns key: {key: value}.
func inBraces(path []string, value string) string {
	if len(path) == 1 {
		return Key(path[0]) + ": " + value
	}
	return Key(path[0]) + ": {" + inBraces(path[1:], value) + "}"
}

// plain are keys that mean themselves wherever they stand.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// Key returns a text as a key of YAML.
func Key(text string) string {
	var n yaml.Node
	if plain.MatchString(text) && yaml.Unmarshal([]byte(text), &n) == nil && n.Content[0].Tag == "!!str" {
		return text
	}
	quoted, err := json.Marshal(text) // Which YAML reads, too.
	if err != nil {
		panic(err) // Strings always marshal.
	}
	return string(quoted)
}

// verify reads both texts: they must differ in the value only.
func verify(before, after []byte, path []string, value string) error {
	var was, is, wanted any
	if err := yaml.Unmarshal(before, &was); err != nil {
		return err
	}
	if err := yaml.Unmarshal(after, &is); err != nil {
		return fmt.Errorf("%s: the file is laid out in a way that cannot be edited: %w", strings.Join(path, "."), err)
	}
	if err := yaml.Unmarshal([]byte(value), &wanted); err != nil {
		return err
	}
	if was == nil {
		was = map[string]any{}
	}
	put(was, path, wanted)
	if !reflect.DeepEqual(was, is) {
		return fmt.Errorf("%s: the file is laid out in a way that cannot be edited: more than this value would change", strings.Join(path, "."))
	}
	return nil
}

// put sets what Set has set, in values. Keys that look like numbers are such.
func put(node any, path []string, value any) {
	get, set := func(string) any { return nil }, func(string, any) {}
	switch m := node.(type) {
	case map[string]any:
		get, set = func(k string) any { return m[k] }, func(k string, v any) { m[k] = v }
	case map[any]any:
		find := func(name string) any {
			for k := range m {
				if fmt.Sprint(k) == name {
					return k
				}
			}
			return name
		}
		get, set = func(k string) any { return m[find(k)] }, func(k string, v any) { m[find(k)] = v }
	}
	if len(path) == 1 {
		set(path[0], value)
		return
	}
	if get(path[0]) == nil {
		set(path[0], map[string]any{})
	}
	put(get(path[0]), path[1:], value)
}
