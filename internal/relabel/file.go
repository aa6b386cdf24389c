// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// profileFile is a profile as it stands in a file.
type profileFile struct {
	Name    string      `yaml:"name"`
	Summary string      `yaml:"summary"`
	Extends string      `yaml:"extends"`
	Without []string    `yaml:"without"`
	Rules   []yaml.Node `yaml:"rules"`
}

// ruleFile is a rule as it stands in a file: either source_labels and regex, or
// histograms, drop_le and bounds.
type ruleFile struct {
	ID           string    `yaml:"id"`
	Class        Class     `yaml:"class"`
	SourceLabels []string  `yaml:"source_labels"`
	Regex        string    `yaml:"regex"`
	Jobs         []string  `yaml:"jobs"`
	Reason       string    `yaml:"reason"`
	Saving       string    `yaml:"saving"`
	Since        string    `yaml:"since"`
	Until        string    `yaml:"until"`
	Requires     string    `yaml:"requires"`
	Histograms   []string  `yaml:"histograms"`
	DropLE       []float64 `yaml:"drop_le"`
	Bounds       []float64 `yaml:"bounds"`
}

// maxProfileFile is far beyond what a person writes, in bytes.
const maxProfileFile = 4 << 20

// LoadProfile reads a profile from a file in the format that docs/drop-rules.md
// describes. The errors name the file and the line; all that can be found are.
func LoadProfile(path string) (Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return Profile{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProfileFile+1))
	if err != nil {
		return Profile{}, err
	}
	if len(text) > maxProfileFile {
		return Profile{}, fmt.Errorf("%s: larger than %d bytes", path, maxProfileFile)
	}
	return ParseProfile(path, text)
}

// ParseProfile reads a profile from the text of a file; path is for the errors.
func ParseProfile(path string, text []byte) (Profile, error) {
	var file profileFile
	switch err := decodeStrict(text, &file); {
	case errors.Is(err, io.EOF):
		return Profile{Name: "empty", Summary: "Drops nothing."}, nil
	case err != nil:
		return Profile{}, fmt.Errorf("%s: %w", path, err)
	}
	p := Profile{Name: file.Name, Summary: file.Summary}
	var errs []error
	if err := errors.Join(p.Validate(), notBuiltIn(p.Name)); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	inherited, err := file.inherited()
	if err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	p.Rules = inherited
	line := make(map[string]int, len(file.Rules))
	for i := range file.Rules {
		node := &file.Rules[i]
		r, err := parseRule(node)
		if err == nil {
			if slices.ContainsFunc(inherited, func(o Rule) bool { return o.ID == r.ID }) {
				err = fmt.Errorf("profile %s has a rule with this id: list it under without to replace it", file.Extends)
			} else if first, ok := line[r.ID]; ok {
				err = fmt.Errorf("the rule of line %d has the same id", first)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: line %d, rule %d (%s): %w", path, node.Line, i+1, r.ID, err))
			continue
		}
		line[r.ID] = node.Line
		p.Rules = append(p.Rules, r)
	}
	if len(errs) > 0 {
		return Profile{}, errors.Join(errs...)
	}
	return p, nil
}

// inherited returns the rules of the profile that the file extends.
func (f *profileFile) inherited() ([]Rule, error) {
	if f.Extends == "" {
		if len(f.Without) > 0 {
			return nil, errors.New("without: it leaves out rules of the profile under extends, and there is none")
		}
		return nil, nil
	}
	base, err := ProfileByName(f.Extends)
	if err != nil {
		return nil, fmt.Errorf("extends: %w", err)
	}
	var errs []error
	for _, id := range f.Without {
		n := len(base.Rules)
		base.Rules = slices.DeleteFunc(base.Rules, func(r Rule) bool { return r.ID == id })
		if len(base.Rules) == n {
			errs = append(errs, fmt.Errorf("without: profile %s has no rule %q", f.Extends, id))
		}
	}
	return base.Rules, errors.Join(errs...)
}

// maxRuleNodes is far beyond what a rule has, in YAML nodes, aliases followed.
const maxRuleNodes = 10_000

// withoutAliases returns the node with copies in the place of aliases, so that it
// can be read by itself. left is how many nodes it may have.
func withoutAliases(node *yaml.Node, left *int) (*yaml.Node, error) {
	*left--
	if *left < 0 {
		return nil, errors.New("too large, with what its aliases stand for")
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	out := *node
	out.Anchor, out.Content = "", make([]*yaml.Node, 0, len(node.Content))
	for _, c := range node.Content {
		c, err := withoutAliases(c, left)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, c)
	}
	return &out, nil
}

func parseRule(node *yaml.Node) (Rule, error) {
	var f ruleFile
	left := maxRuleNodes
	alone, err := withoutAliases(node, &left)
	if err != nil {
		return Rule{}, err
	}
	text, err := yaml.Marshal(alone)
	if err != nil {
		return Rule{}, err
	}
	if err := decodeStrict(text, &f); err != nil {
		return Rule{ID: f.ID}, withoutLine(err)
	}
	r := Rule{
		ID: f.ID, Class: f.Class, SourceLabels: f.SourceLabels, Regex: f.Regex, Jobs: f.Jobs, Reason: f.Reason,
		Saving: f.Saving, Since: f.Since, Until: f.Until, Requires: f.Requires,
	}
	if len(f.Histograms)+len(f.DropLE)+len(f.Bounds) > 0 {
		if len(f.SourceLabels) > 0 || f.Regex != "" {
			return r, errors.New("give source_labels and regex, or histograms, drop_le and bounds, not both")
		}
		class := r.Class
		r = r.thinning(Thinning{Histograms: f.Histograms, Drop: f.DropLE, Bounds: f.Bounds})
		r.Class = class
	}
	return r, r.Validate()
}

// FileKeys has the keys of a file, for hints about those that are mistyped.
type FileKeys struct {
	profileFile
	ruleFile
}

// decodeStrict reads exactly one YAML document without unknown or doubled keys.
func decodeStrict(text []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		return err
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one YAML document")
	}
	return nil
}

// withoutLine takes a line number off an error that counts from the start of the
// rule; the caller knows the line in the file.
func withoutLine(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return err
	}
	var out []string
	for _, e := range typed.Errors {
		if rest, ok := strings.CutPrefix(e, "line "); ok {
			if _, after, ok := strings.Cut(rest, ": "); ok {
				e = after
			}
		}
		out = append(out, strings.ReplaceAll(e, " in type relabel.ruleFile", ""))
	}
	return errors.New(strings.Join(out, "; "))
}
