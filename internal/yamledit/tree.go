// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"slices"
	"strings"
)

// tree is what is wanted below a key, in the order of the edits.
type tree struct {
	key      string
	block    bool   // it stands on a line of its own where it is added
	value    string // if it has no children
	children []*tree
}

func newTree(edits []Edit) *tree {
	root := &tree{}
	for _, e := range edits {
		t := root
		for i, key := range e.Path {
			t = t.child(key)
			t.block = i < e.Block
		}
		t.value = e.Value
	}
	return root
}

func (t *tree) child(key string) *tree {
	if i := slices.IndexFunc(t.children, func(c *tree) bool { return c.key == key }); i >= 0 {
		return t.children[i]
	}
	c := &tree{key: key}
	t.children = append(t.children, c)
	return c
}

// lines writes the children of t on lines of their own.
func (t *tree) lines(b *strings.Builder, indent, eol string) {
	for _, c := range t.children {
		if len(c.children) == 0 || !c.block {
			b.WriteString(indent + c.inBraces() + eol)
			continue
		}
		b.WriteString(indent + Key(c.key) + ":" + eol)
		c.lines(b, indent+"  ", eol)
	}
}

// list returns the children of t as they stand in braces.
func (t *tree) list() string {
	var out []string
	for _, c := range t.children {
		out = append(out, c.inBraces())
	}
	return strings.Join(out, ", ")
}

// inBraces returns key: {key: value}.
func (t *tree) inBraces() string {
	if len(t.children) == 0 {
		return Key(t.key) + ": " + t.value
	}
	return Key(t.key) + ": {" + t.list() + "}"
}
