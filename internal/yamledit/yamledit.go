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

// Edit sets one value.
type Edit struct {
	// Path is of keys, which are added where they are missing: the first Block of
	// them a line each, those below in braces.
	Path  []string
	Block int
	// Value is a scalar as YAML has it.
	Value string
}

// Apply returns the text with all values set; of two for the same path, the later.
// It takes about as long as to parse the text some times, however many edits there
// are. The errors name the line that cannot be edited.
func Apply(text []byte, edits []Edit) ([]byte, error) {
	if len(edits) == 0 {
		return text, nil
	}
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	if otherBreak.Match(text) {
		return nil, errors.New("there are ends of lines other than LF and CRLF: write those")
	}
	f, wanted := newFile(string(text)), newTree(edits)
	if root == nil {
		f.add(f.count(), "", wanted)
	} else if err := f.set(root, true, wanted); err != nil {
		return nil, err
	}
	out, err := f.edited()
	if err != nil {
		return nil, err
	}
	return []byte(out), verify(text, []byte(out), edits)
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

// set writes what is wanted below a mapping.
func (f *file) set(mapping *yaml.Node, isRoot bool, wanted *tree) error {
	missing := &tree{}
	for _, want := range wanted.children {
		key, value := field(mapping, want.key)
		if value == nil {
			missing.children = append(missing.children, want)
			continue
		}
		if err := f.setField(mapping, key, value, want); err != nil {
			return err
		}
	}
	if len(missing.children) == 0 {
		return nil
	}
	return f.insert(mapping, isRoot, missing)
}

// setField writes what is wanted for a key that is there.
func (f *file) setField(mapping, key, value *yaml.Node, want *tree) error {
	switch {
	case value.Kind == yaml.AliasNode || value.Anchor != "":
		return fmt.Errorf("line %d: %s has an anchor, so that others would change too: write it out", key.Line, want.key)
	case len(want.children) == 0:
		return f.replace(key, value, want.value)
	case isNull(value) && value.Value == "":
		if mapping.Style&yaml.FlowStyle != 0 {
			return fmt.Errorf("line %d: %s has no value in braces: write %s: {}", key.Line, want.key, want.key)
		}
		f.add(key.Line, strings.Repeat(" ", key.Column+1), want)
		return nil
	case value.Kind != yaml.MappingNode:
		return fmt.Errorf("line %d: %s is no mapping", key.Line, want.key)
	}
	return f.set(value, false, want)
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
		_, end, err := f.extent(key)
		if err != nil {
			return err
		}
		colon := strings.IndexByte(f.line(key.Line - 1)[end-f.starts[key.Line-1]:], ':')
		if colon < 0 {
			return unclear(key)
		}
		f.splice(end+colon+1, end+colon+1, " "+value)
		return nil
	}
	if old.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: %s is no single value", key.Line, key.Value)
	}
	start, end, err := f.extent(old)
	if err != nil {
		return err
	}
	f.splice(start, end, value)
	return nil
}

func unclear(n *yaml.Node) error {
	return fmt.Errorf("line %d: %q is written in a way that cannot be edited: write it in one line", n.Line, n.Value)
}

// offset returns where in the text a node begins. Columns count characters.
func (f *file) offset(n *yaml.Node) (int, error) {
	if n.Line > f.count() {
		return 0, unclear(n)
	}
	column := n.Column - 1
	for i := range f.line(n.Line - 1) {
		if column == 0 {
			return f.starts[n.Line-1] + i, nil
		}
		column--
	}
	return 0, unclear(n)
}

var (
	doubleQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	singleQuoted = regexp.MustCompile(`^'(?:[^']|'')*'`)
)

// extent returns where in the text a scalar begins and ends.
func (f *file) extent(n *yaml.Node) (start, end int, err error) {
	if start, err = f.offset(n); err != nil {
		return 0, 0, err
	}
	text := f.text[start:f.starts[n.Line]]
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		if m := doubleQuoted.FindString(text); m != "" {
			return start, start + len(m), nil
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		if m := singleQuoted.FindString(text); m != "" {
			return start, start + len(m), nil
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 && strings.HasPrefix(text, n.Value):
		return start, start + len(n.Value), nil
	}
	return 0, 0, unclear(n)
}

// insert adds keys that are missing in a mapping.
func (f *file) insert(mapping *yaml.Node, isRoot bool, missing *tree) error {
	if mapping.Style&yaml.FlowStyle != 0 || len(mapping.Content) == 0 {
		start, err := f.offset(mapping)
		if err != nil || f.text[start] != '{' {
			return unclear(mapping)
		}
		text := missing.list()
		if len(mapping.Content) > 0 {
			text += ", "
		}
		f.splice(start+1, start+1, text)
		return nil
	}
	at := f.count()
	if !isRoot {
		at = f.lastLine(mapping)
	}
	f.add(at, strings.Repeat(" ", mapping.Content[0].Column-1), missing)
	return nil
}

// lastLine returns how many lines there are up to the last of a block mapping.
// Blank lines and comments behind it do not count.
func (f *file) lastLine(mapping *yaml.Node) int {
	last := deepest(mapping)
	indentation := mapping.Content[0].Column - 1
	for i := last; i < f.count(); i++ {
		line := f.line(i)
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		if len(line)-len(strings.TrimLeft(line, " ")) < indentation {
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

// verify reads both texts: they must differ in the values only.
func verify(before, after []byte, edits []Edit) error {
	var was, is any
	if err := yaml.Unmarshal(before, &was); err != nil {
		return err
	}
	if err := yaml.Unmarshal(after, &is); err != nil {
		return fmt.Errorf("%s: the file is laid out in a way that cannot be edited: %w", names(edits), err)
	}
	if was == nil {
		was = map[string]any{}
	}
	for _, e := range edits {
		var wanted any
		if err := yaml.Unmarshal([]byte(e.Value), &wanted); err != nil {
			return err
		}
		put(was, e.Path, wanted)
	}
	if !reflect.DeepEqual(was, is) {
		return fmt.Errorf("%s: the file is laid out in a way that cannot be edited: more than this would change", names(edits))
	}
	return nil
}

// names says what is edited.
func names(edits []Edit) string {
	name := strings.Join(edits[0].Path, ".")
	if more := len(edits) - 1; more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return name
}

// put sets what Apply has set, in values. Keys that look like numbers are such.
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
