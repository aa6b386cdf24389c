// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package inject puts drop rules into the scrape configs of a Prometheus
// configuration file, and takes older ones out.
//
// It adds and removes whole lines of the text, found with the help of a YAML
// parser, so that everything else, comments and layout included, stays byte for
// byte. What it has done it reads again, and returns only if nothing but the
// rules has changed.
//
// It does not load the configuration as Prometheus does, and leaves the files
// alone that it names.
package inject

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/relabel"
)

const (
	beginMark = "# BEGIN promguard drop rules"
	endMark   = "# END promguard drop rules"
	// keyMark stands behind a key that was not there before.
	keyMark = "# added by promguard rules inject"

	key = relabel.FormatMetricRelabelConfigs
)

// State says how the rules stood in a scrape config before.
type State string

// The states.
const (
	Missing State = "missing"
	Old     State = "old"
	Current State = "current"
)

// Job is a scrape config that was asked for.
type Job struct {
	Name  string
	State State
}

// Result is a configuration file with the rules in it.
type Result struct {
	Text []byte
	// Jobs are those that were asked for, in the order of the file.
	Jobs []Job
	// OtherFiles are the patterns of files with further scrape configs, which
	// have to be given by themselves.
	OtherFiles []string
}

// Rules returns the text of a configuration file with the rules of the profile
// behind the own metric_relabel_configs of each scrape config whose job_name
// matches; nil matches all. Rules of an earlier call are replaced. Without rules
// in the profile they are only taken out. The errors name the line.
func Rules(text []byte, p relabel.Profile, jobs *regexp.Regexp) (Result, error) {
	f, err := parse(text)
	if err != nil {
		return Result{}, err
	}
	before := f
	selected, err := f.selectJobs(jobs)
	if err != nil {
		return Result{}, err
	}
	if f, err = f.strip(selected); err != nil {
		return Result{}, err
	}
	stripped := f
	for _, i := range slices.Backward(selected) {
		if f, err = f.insert(i, p); err != nil {
			return Result{}, err
		}
	}
	if err := verify(before, stripped, f, selected, p); err != nil {
		return Result{}, err
	}
	return before.result(f, selected, len(p.Rules) > 0), nil
}

func (f *file) result(after *file, selected []int, wanted bool) Result {
	r := Result{Text: []byte(after.text()), OtherFiles: f.otherFiles()}
	for _, i := range selected {
		job := Job{Name: f.jobs[i].name, State: Missing}
		was, is := f.jobs[i].text, after.jobs[i].text
		switch marked := strings.Contains(was, beginMark); {
		case was == is:
			job.State = Current
		case marked || !wanted:
			job.State = Old
		}
		r.Jobs = append(r.Jobs, job)
	}
	return r
}

// strip returns the file without the marked rules of the selected jobs.
func (f *file) strip(selected []int) (*file, error) {
	blocks, err := f.blocks()
	if err != nil {
		return nil, err
	}
	lines := slices.Clone(f.lines)
	removed := false
	for _, b := range slices.Backward(blocks) {
		i := slices.IndexFunc(f.jobs, func(j job) bool { return j.first <= b.first && b.last <= j.last })
		if i < 0 {
			return nil, fmt.Errorf("line %d: the marked rules are not in a scrape config", b.first+1)
		}
		if slices.Contains(selected, i) {
			lines = slices.Delete(lines, b.first, b.last+1)
			removed = true
		}
	}
	if !removed {
		return f, nil
	}
	out, err := parse([]byte(strings.Join(lines, "")))
	if err != nil {
		return nil, fmt.Errorf("without the marked rules: %w", err)
	}
	return out.stripKeys(selected)
}

// stripKeys takes out the keys that insert added, where nothing is below them.
func (f *file) stripKeys(selected []int) (*file, error) {
	lines := slices.Clone(f.lines)
	for _, i := range slices.Backward(selected) {
		k, value := f.jobs[i].field(key)
		if value != nil && isEmpty(value) && strings.HasSuffix(strings.TrimSpace(lines[k.Line-1]), keyMark) {
			lines = slices.Delete(lines, k.Line-1, k.Line)
		}
	}
	return parse([]byte(strings.Join(lines, "")))
}

// insert returns the file with the rules in the job.
func (f *file) insert(i int, p relabel.Profile) (*file, error) {
	if len(p.Rules) == 0 {
		return f, nil
	}
	at, indent, added, err := f.place(f.jobs[i])
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", f.jobs[i].name, err)
	}
	lines := slices.Clone(f.lines)
	if !strings.HasSuffix(lines[at], "\n") {
		lines[at] += f.eol
	}
	if nothing := f.jobs[i].nothing(); nothing != "" {
		_, value := f.jobs[i].field(key)
		line := lines[value.Line-1]
		after := strings.TrimPrefix(line[value.Column-1:], nothing)
		if nothing == "[" {
			before, rest, _ := strings.Cut(after, "]")
			if strings.Trim(before, " \t") != "" {
				return nil, fmt.Errorf("job %q: line %d: %s is an empty list over several lines: write [] or leave it out", f.jobs[i].name, value.Line, key)
			}
			after = rest
		}
		lines[value.Line-1] = strings.TrimRight(line[:value.Column-1], " ") + after
	}
	items, err := relabel.RenderItems(p, indent)
	if err != nil {
		return nil, err
	}
	block := added + indent + beginMark + ", profile " + p.Name + "; promguard rules inject replaces all up to END\n" + items + indent + endMark + "\n"
	block = strings.ReplaceAll(block, "\n", f.eol)
	return parse([]byte(strings.Join(slices.Insert(lines, at+1, block), "")))
}

// place returns the line after which the rules go, what to indent them by, and
// the line with the key if there is none.
func (f *file) place(j job) (at int, indent, added string, err error) {
	k, value := j.field(key)
	column := j.mapping.Content[0].Column
	switch {
	case j.merged(key):
		return 0, "", "", fmt.Errorf("line %d: %s comes from a merge key: write it out in the scrape config", j.mapping.Line, key)
	case value != nil && value.Anchor != "":
		return 0, "", "", fmt.Errorf("line %d: %s has an anchor, so that others would get the rules too: write it out", value.Line, key)
	case value == nil && j.mapping.Style&yaml.FlowStyle != 0:
		return 0, "", "", fmt.Errorf("line %d: the scrape config is in braces: write a line per field", j.mapping.Line)
	case value == nil:
		indent = strings.Repeat(" ", column-1)
		return f.lastLine(j.mapping, column-1, false), indent + "  ", indent + key + ": " + keyMark + "\n", nil
	case isEmpty(value) && value.Line == k.Line:
		return k.Line - 1, strings.Repeat(" ", k.Column+1), "", nil
	case value.Kind == yaml.SequenceNode && value.Style&yaml.FlowStyle == 0:
		if line := f.lines[value.Line-1]; value.Column > len(line) || line[value.Column-1] != '-' {
			return 0, "", "", fmt.Errorf("line %d: the items of %s must begin with - on a line of their own", value.Line, key)
		}
		return f.lastLine(value, value.Column-1, true), strings.Repeat(" ", value.Column-1), "", nil
	}
	return 0, "", "", fmt.Errorf("line %d: %s must be a list with an item per line, no alias and not in brackets", value.Line, key)
}

// lastLine returns the index of the last line of a block: of a mapping whose keys
// have the indentation, or of a sequence whose dashes have it. Blank lines and
// comments behind it do not count.
func (f *file) lastLine(node *yaml.Node, indentation int, sequence bool) int {
	last := deepest(node) - 1
	for i := node.Line; i < len(f.lines); i++ {
		text := strings.TrimSpace(f.lines[i])
		if text == "" || text[0] == '#' {
			continue
		}
		column := len(f.lines[i]) - len(strings.TrimLeft(f.lines[i], " "))
		inside := column > indentation || column == indentation && (!sequence || text == "-" || strings.HasPrefix(text, "- "))
		if !inside && i > last {
			break
		}
		last = max(last, i)
	}
	return last
}

// verify reads the result again: everything but marked rules must be as before.
func verify(before, stripped, after *file, selected []int, p relabel.Profile) error {
	var rules []any
	if items, err := relabel.RenderItems(p, ""); err != nil {
		return err
	} else if err := yaml.Unmarshal([]byte(items), &rules); err != nil {
		return err
	}
	was, without, is := before.values(), stripped.values(), after.values()
	if len(was) != len(without) || len(was) != len(is) {
		return errors.New("the file is laid out in a way that cannot be edited: the number of scrape configs would change")
	}
	for i, name := range before.names() {
		own, rest := take(without[i])
		oldOwn, oldRest := take(was[i])
		newOwn, newRest := take(is[i])
		if slices.Contains(selected, i) {
			if !onlyDropsLeft(oldOwn, own) {
				return fmt.Errorf("job %q: the marked lines hold more than drop rules: move what is yours out of them", name)
			}
			own = append(slices.Clone(own), rules...)
		}
		if !reflect.DeepEqual(rest, oldRest) || !reflect.DeepEqual(rest, newRest) || len(own) != len(newOwn) || len(own) > 0 && !reflect.DeepEqual(own, newOwn) {
			return fmt.Errorf("job %q: the file is laid out in a way that cannot be edited: more than the rules would change", name)
		}
	}
	if !reflect.DeepEqual(before.others(), after.others()) {
		return errors.New("the file is laid out in a way that cannot be edited: more than the scrape configs would change")
	}
	return nil
}

// onlyDropsLeft reports whether is came from was by taking out drop rules.
func onlyDropsLeft(was, is []any) bool {
	for _, rule := range was {
		if len(is) > 0 && reflect.DeepEqual(rule, is[0]) {
			is = is[1:]
			continue
		}
		if m, ok := rule.(map[string]any); !ok || m["action"] != "drop" {
			return false
		}
	}
	return len(is) == 0
}

// take returns a scrape config's own rules and its other fields.
func take(config map[string]any) (own []any, rest map[string]any) {
	rest = map[string]any{}
	for name, v := range config {
		if name != key {
			rest[name] = v
		}
	}
	own, _ = config[key].([]any)
	return own, rest
}
