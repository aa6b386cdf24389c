// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/yamlerr"
)

const scrapeConfigs = "scrape_configs"

// file is a configuration file as text and as YAML. It is not changed once it is
// parsed.
type file struct {
	// lines have their ends with them.
	lines  []string
	eol    string
	doc    *yaml.Node
	begins []int // lines on which anything begins, from 1, sorted
	jobs   []job
}

// job is a scrape config. Lines count from 0, those behind it up to the next one with
// it.
type job struct {
	name        string
	mapping     *yaml.Node
	first, last int
}

// parse reads the text. The errors are what a reader can mend in the file.
func parse(text []byte) (*file, error) {
	f := &file{lines: strings.SplitAfter(string(text), "\n"), eol: "\n"}
	if strings.HasSuffix(f.lines[0], "\r\n") {
		f.eol = "\r\n"
	}
	if n := len(f.lines); f.lines[n-1] == "" {
		f.lines = f.lines[:n-1]
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	} else if err != nil {
		return nil, fmt.Errorf("not YAML: %w", yamlerr.Locate(text, err))
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	f.doc = &doc
	if err := doc.Decode(&map[string]any{}); err != nil {
		return nil, err
	}
	f.note(f.doc)
	slices.Sort(f.begins)
	if err := f.findJobs(doc.Content[0]); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) note(n *yaml.Node) {
	f.begins = append(f.begins, n.Line)
	for _, c := range n.Content {
		f.note(c)
	}
}

// findJobs finds the scrape configs of a configuration, or of the values of the
// chart prometheus, where they are a list in the configuration or a map by name.
func (f *file) findJobs(root *yaml.Node) error {
	for _, path := range [][]string{{scrapeConfigs}, {"serverFiles", "prometheus.yml", scrapeConfigs}} {
		k, list := (*yaml.Node)(nil), root
		for _, name := range path {
			k, list = field(list, name)
		}
		if list == nil || list.Tag == "!!null" {
			continue
		}
		if list.Kind != yaml.SequenceNode {
			return fmt.Errorf("line %d: %s must be a list", k.Line, scrapeConfigs)
		}
		for _, node := range list.Content {
			if err := f.addJob(node, nil); err != nil {
				return err
			}
		}
	}
	_, named := field(root, "scrapeConfigs")
	for i := 0; named != nil && named.Kind == yaml.MappingNode && i+1 < len(named.Content); i += 2 {
		node := named.Content[i+1]
		if _, enabled := field(node, "enabled"); enabled != nil && enabled.Value == "false" || node.Tag == "!!null" {
			continue
		}
		if err := f.addJob(node, named.Content[i]); err != nil {
			return err
		}
	}
	return nil
}

// addJob adds a scrape config, whose job_name is as given if it has none.
func (f *file) addJob(node, name *yaml.Node) error {
	if node.Kind != yaml.MappingNode || len(node.Content) == 0 {
		return fmt.Errorf("line %d: a scrape config must be a mapping that is written out", node.Line)
	}
	if _, own := field(node, "job_name"); own != nil {
		name = own
	}
	if name == nil || name.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: the scrape config has no job_name", node.Line)
	}
	f.jobs = append(f.jobs, job{name: name.Value, mapping: node, first: node.Line - 1, last: f.nextLine(node) - 1})
	return nil
}

func (f *file) text(j job) string { return strings.Join(f.lines[j.first:j.last+1], "") }

// nextLine returns the line, from 0, on which what follows the node begins.
func (f *file) nextLine(node *yaml.Node) int {
	if i, _ := slices.BinarySearch(f.begins, deepest(node)+1); i < len(f.begins) {
		return f.begins[i] - 1
	}
	return len(f.lines)
}

// lastLine returns the last line, from 0, of a node. Blank lines and comments behind
// it do not count, nor do the dash of the next item and the end of the document.
func (f *file) lastLine(node *yaml.Node) int {
	last := f.nextLine(node) - 1
	for ; last >= deepest(node); last-- {
		if text := strings.TrimSpace(f.lines[last]); text != "" && text[0] != '#' && text != "-" && text != "..." {
			break
		}
	}
	return last
}

// selectJobs returns the indices of the jobs whose names match.
func (f *file) selectJobs(jobs *regexp.Regexp) ([]int, error) {
	var out []int
	for i, j := range f.jobs {
		if jobs == nil || jobs.MatchString(j.name) {
			out = append(out, i)
		}
	}
	switch {
	case len(f.jobs) == 0 && len(f.otherFiles()) > 0:
		// All are in other files.
	case len(f.jobs) == 0:
		return nil, fmt.Errorf("there are no %s", scrapeConfigs)
	case len(out) == 0:
		names := make([]string, 0, len(f.jobs))
		for _, j := range f.jobs {
			names = append(names, j.name)
		}
		return nil, fmt.Errorf("no job_name matches %s: there are %s", jobs, strings.Join(names, ", "))
	}
	return out, nil
}

// block is a run of marked lines, marks included. Lines count from 0.
type block struct{ first, last int }

func (f *file) blocks() ([]block, error) {
	var out []block
	open := -1
	for i, line := range f.lines {
		switch text := strings.TrimSpace(line); {
		case strings.HasPrefix(text, beginMark):
			if open >= 0 {
				return nil, fmt.Errorf("line %d: marked rules begin, and those that began in line %d have no end", i+1, open+1)
			}
			open = i
		case strings.HasPrefix(text, endMark):
			if open < 0 {
				return nil, fmt.Errorf("line %d: marked rules end that did not begin", i+1)
			}
			out = append(out, block{open, i})
			open = -1
		}
	}
	if open >= 0 {
		return nil, fmt.Errorf("line %d: marked rules begin that do not end", open+1)
	}
	return out, nil
}

// otherFiles returns the patterns of scrape_config_files.
func (f *file) otherFiles() []string {
	_, patterns := field(f.doc.Content[0], "scrape_config_files")
	var out []string
	if patterns == nil || patterns.Decode(&out) != nil {
		return nil
	}
	return out
}

// split returns the rules of each scrape config, merged ones too, and everything else.
func (f *file) split() (rules [][]any, rest any) {
	for _, j := range f.jobs {
		var fields map[string]any
		_ = j.mapping.Decode(&fields) // It has been decoded as a part of the file.
		own, _ := fields[key].([]any)
		rules = append(rules, own)
	}
	_ = f.without(f.doc).Decode(&rest)
	return rules, rest
}

// without returns a copy without the rules of scrape configs. What is an alias of one
// has them still, so that it is noticed if it would get some.
func (f *file) without(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = nil
	isJob := slices.ContainsFunc(f.jobs, func(j job) bool { return j.mapping == n })
	for i, c := range n.Content {
		if !isJob || n.Content[i-i%2].Value != key {
			out.Content = append(out.Content, f.without(c))
		}
	}
	if isJob {
		out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"})
	}
	return &out
}

// field returns the key and the value of a field of a mapping, or nil.
func field(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func (j job) field(name string) (key, value *yaml.Node) { return field(j.mapping, name) }

// deepest returns the last line on which a part of the node begins, from 1.
func deepest(node *yaml.Node) int {
	line := node.Line
	for _, n := range node.Content {
		line = max(line, deepest(n))
	}
	return line
}
