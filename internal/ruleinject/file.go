// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ruleinject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/yamlerr"
)

const scrapeConfigs = "scrape_configs"

// file is a configuration file as text and as YAML. It is not changed once it is
// parsed.
type file struct {
	// lines have their ends with them.
	lines []string
	eol   string
	jobs  []job
	root  map[string]any
}

// job is a scrape config. Lines count from 0.
type job struct {
	name        string
	mapping     *yaml.Node
	first, last int
	text        string
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
	if err := doc.Decode(&f.root); err != nil {
		return nil, err
	}
	if err := f.findJobs(doc.Content[0]); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) findJobs(root *yaml.Node) error {
	k, list := field(root, scrapeConfigs)
	if list == nil {
		return nil
	}
	if list.Kind != yaml.SequenceNode && !isEmpty(list) {
		return fmt.Errorf("line %d: %s must be a list", k.Line, scrapeConfigs)
	}
	// The list ends where the next field of the file begins.
	end := len(f.lines)
	for i := 0; i < len(root.Content); i += 2 {
		if line := root.Content[i].Line - 1; line > deepest(list)-1 {
			end = min(end, line)
		}
	}
	for i, node := range list.Content {
		if node.Kind != yaml.MappingNode || len(node.Content) == 0 {
			return fmt.Errorf("line %d: a scrape config must be a mapping that is written out", node.Line)
		}
		_, name := field(node, "job_name")
		if name == nil || name.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: the scrape config has no job_name", node.Line)
		}
		last := end - 1
		if i+1 < len(list.Content) {
			last = list.Content[i+1].Line - 2
		}
		first := node.Line - 1
		f.jobs = append(f.jobs, job{
			name: name.Value, mapping: node, first: first, last: last, text: strings.Join(f.lines[first:max(first, last+1)], ""),
		})
	}
	return nil
}

func (f *file) text() string { return strings.Join(f.lines, "") }

// selectJobs returns the indices of the jobs whose names match.
func (f *file) selectJobs(jobs *regexp.Regexp) ([]int, error) {
	var out []int
	for i, j := range f.jobs {
		if jobs == nil || jobs.MatchString(j.name) {
			out = append(out, i)
		}
	}
	switch {
	case len(f.jobs) == 0:
		return nil, fmt.Errorf("there are no %s", scrapeConfigs)
	case len(out) == 0:
		return nil, fmt.Errorf("no job_name matches %s: there are %s", jobs, strings.Join(f.names(), ", "))
	}
	return out, nil
}

func (f *file) names() []string {
	names := make([]string, 0, len(f.jobs))
	for _, j := range f.jobs {
		names = append(names, j.name)
	}
	return names
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
	var out []string
	patterns, _ := f.root["scrape_config_files"].([]any)
	for _, p := range patterns {
		out = append(out, fmt.Sprint(p))
	}
	return out
}

// values returns the scrape configs as plain values.
func (f *file) values() []map[string]any {
	var out []map[string]any
	list, _ := f.root[scrapeConfigs].([]any)
	for _, v := range list {
		m, _ := v.(map[string]any)
		out = append(out, m)
	}
	return out
}

// others returns everything but the scrape configs.
func (f *file) others() map[string]any {
	out := map[string]any{}
	for k, v := range f.root {
		if k != scrapeConfigs {
			out[k] = v
		}
	}
	return out
}

// field returns the key and the value of a field of a mapping, or nil.
func field(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping.Kind != yaml.MappingNode {
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

// hasBrackets reports whether the job has an empty list in brackets.
func (j job) hasBrackets() bool {
	_, value := j.field(key)
	return value != nil && value.Kind == yaml.SequenceNode && len(value.Content) == 0
}

// merged reports whether the field comes from a merge key.
func (j job) merged(name string) bool {
	if _, own := j.field(name); own != nil {
		return false
	}
	_, from := j.field("<<")
	if from == nil {
		return false
	}
	var all map[string]any
	return from.Decode(&all) != nil || all[name] != nil
}

// isEmpty reports whether the node is nothing or an empty list.
func isEmpty(node *yaml.Node) bool {
	return node.Anchor == "" && (node.Tag == "!!null" || node.Kind == yaml.SequenceNode && len(node.Content) == 0)
}

// deepest returns the last line on which a part of the node begins, from 1.
func deepest(node *yaml.Node) int {
	line := node.Line
	for _, n := range node.Content {
		line = max(line, deepest(n))
	}
	return line
}
