// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/yamlerr"
)

// maxFile is beyond any dashboard or rule file, in bytes.
const maxFile = 64 << 20

// readAll calls read with every file below path, or with path itself, whose name
// ends in one of the extensions. Hidden files and directories are left out. That
// nothing is found is a problem.
func (f *Found) readAll(path string, extensions []string, read func(file string, text []byte) Found) {
	seen, problems, expressions := false, len(f.Problems), len(f.Expressions)
	err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			f.problem(file, "", withoutPath(err))
			return nil
		case file != path && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.Type()&fs.ModeSymlink != 0 && isDirectory(file):
			f.problem(file, "", errors.New("a link to a directory is not followed"))
			return nil
		case d.IsDir() || file != path && !hasExtension(file, extensions):
			return nil
		}
		seen = true
		text, err := readFile(file)
		if err != nil {
			f.problem(file, "", withoutPath(err))
			return nil
		}
		f.Add(read(file, text))
		return nil
	})
	if err != nil {
		f.problem(path, "", err)
	}
	switch {
	case len(f.Problems) > problems || len(f.Expressions) > expressions:
	case !seen:
		f.problem(path, "", fmt.Errorf("no file ends in %s", strings.Join(extensions, ", ")))
	default:
		f.problem(path, "", errors.New("there is no expression in it"))
	}
}

func isDirectory(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.IsDir()
}

// readFile follows links, which is how a ConfigMap is mounted.
func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("a link to a directory is not followed")
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("larger than %d MiB", maxFile>>20)
	}
	return os.ReadFile(file)
}

func hasExtension(file string, extensions []string) bool {
	return slices.ContainsFunc(extensions, func(e string) bool { return strings.EqualFold(filepath.Ext(file), e) })
}

// withoutPath takes the path off an error that is told with it.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// documents calls read with every document of a YAML stream, JSON included, and
// returns an error for what follows the last that could be read.
func documents(text []byte, read func(*yaml.Node)) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("not YAML: %w", yamlerr.Locate(text, err))
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
			read(doc.Content[0])
		}
	}
}

// field returns the value of a key of a mapping, aliases resolved, or nil.
func field(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		n = resolve(n)
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var value *yaml.Node
		for k, v := range entries(n) {
			if k == key {
				value = v
			}
		}
		n = value
	}
	return resolve(n)
}

// entries yields the keys and values of a mapping, then those that it takes from the
// mappings under merge keys, <<, and does not have itself. Of several, the first
// that has a key counts, as when YAML is decoded.
func entries(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		taken := map[string]bool{}
		for _, m := range appendMappings(nil, n, map[*yaml.Node]bool{}) {
			var own []string
			for i := 0; i+1 < len(m.Content); i += 2 {
				key, value := m.Content[i], m.Content[i+1]
				if key.ShortTag() == mergeTag || taken[key.Value] {
					continue
				}
				own = append(own, key.Value)
				if !yield(key.Value, resolve(value)) {
					return
				}
			}
			for _, key := range own {
				taken[key] = true
			}
		}
	}
}

// appendMappings appends a mapping and, behind it, those under its merge keys, or
// the mappings of a sequence; each only once, since a mapping may be merged into
// itself, or over and over.
func appendMappings(to []*yaml.Node, n *yaml.Node, seen map[*yaml.Node]bool) []*yaml.Node {
	n = resolve(n)
	if n == nil || seen[n] {
		return to
	}
	seen[n] = true
	switch n.Kind {
	case yaml.MappingNode:
		to = append(to, n)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].ShortTag() == mergeTag {
				to = appendMappings(to, n.Content[i+1], seen)
			}
		}
	case yaml.SequenceNode:
		for _, m := range n.Content {
			to = appendMappings(to, m, seen)
		}
	}
	return to
}

// mergeTag is the tag of the key <<.
const mergeTag = "!!merge"

func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// text returns the value of a scalar below keys, or "".
func text(n *yaml.Node, keys ...string) string {
	n = field(n, keys...)
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// items returns the elements of a sequence below keys.
func items(n *yaml.Node, keys ...string) []*yaml.Node {
	n = field(n, keys...)
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		out = append(out, resolve(c))
	}
	return out
}

// pairs calls yield with every key and value of a mapping below keys.
func pairs(n *yaml.Node, yield func(key string, value *yaml.Node), keys ...string) {
	n = field(n, keys...)
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for key, value := range entries(n) {
		yield(key, value)
	}
}
