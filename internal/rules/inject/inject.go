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
	before, err := parse(text)
	if err != nil {
		return Result{}, err
	}
	selected, err := before.selectJobs(jobs)
	if err != nil {
		return Result{}, err
	}
	stripped, err := before.strip(selected)
	if err != nil {
		return Result{}, err
	}
	after, err := stripped.insert(selected, p)
	if err != nil {
		return Result{}, err
	}
	if err := verify(before, stripped, after, selected, p); err != nil {
		return Result{}, err
	}
	return before.result(after, selected, len(p.Rules) > 0), nil
}

func (f *file) result(after *file, selected []int, wanted bool) Result {
	r := Result{Text: []byte(strings.Join(after.lines, "")), OtherFiles: f.otherFiles()}
	for _, i := range selected {
		job := Job{Name: f.jobs[i].name, State: Missing}
		was, is := f.text(f.jobs[i]), after.text(after.jobs[i])
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
	for _, b := range blocks {
		i := slices.IndexFunc(f.jobs, func(j job) bool { return j.first <= b.first && b.last <= j.last })
		if i < 0 {
			return nil, fmt.Errorf("line %d: the marked rules are not in a scrape config", b.first+1)
		}
		if slices.Contains(selected, i) {
			clear(lines[b.first : b.last+1])
		}
	}
	out, err := parse([]byte(strings.Join(lines, "")))
	if err != nil {
		return nil, fmt.Errorf("without the marked rules: %w", err)
	}
	return out, nil
}

// insert returns the file with the rules in the selected jobs, or, if there are none,
// without the keys that were added for them.
func (f *file) insert(selected []int, p relabel.Profile) (*file, error) {
	lines := slices.Clone(f.lines)
	for _, i := range selected {
		j := f.jobs[i]
		if len(p.Rules) == 0 {
			if k, value := j.field(key); isEmpty(k, value) && strings.HasSuffix(strings.TrimSpace(lines[k.Line-1]), keyMark) {
				lines[k.Line-1] = ""
			}
			continue
		}
		at, indent, err := f.place(lines, j)
		if err != nil {
			return nil, fmt.Errorf("job %q: %w", j.name, err)
		}
		items, err := relabel.RenderItems(p, indent)
		if err != nil {
			return nil, err
		}
		block := indent + beginMark + ", profile " + p.Name + "; promguard rules inject replaces all up to END\n" + items + indent + endMark + "\n"
		lines[at] = f.ended(lines[at]) + strings.ReplaceAll(block, "\n", f.eol)
	}
	return parse([]byte(strings.Join(lines, "")))
}

// ended returns a line with its end, which the last one of a file may lack.
func (f *file) ended(line string) string {
	if strings.HasSuffix(line, "\n") {
		return line
	}
	return line + f.eol
}

// nothing finds a key with what stands for no rules behind it.
var nothing = regexp.MustCompile(`^([ -]*["']?` + key + `["']?[ \t]*:)(?:[ \t]*(?:\[[ \t]*\]|~|null|Null|NULL))?([ \t]*(?:#.*)?\r?\n?)$`)

// place returns the line behind which the rules of a job go, and what to indent
// them by. It makes room for them: it writes the key if there is none, and takes out
// what stands for no rules.
func (f *file) place(lines []string, j job) (at int, indent string, err error) {
	k, value := j.field(key)
	switch {
	case value == nil && j.mapping.Style&yaml.FlowStyle != 0:
		return 0, "", fmt.Errorf("line %d: the scrape config is in braces: write a line per field", j.mapping.Line)
	case value == nil:
		at, indent = f.lastLine(j.mapping), strings.Repeat(" ", j.mapping.Content[0].Column-1)
		lines[at] = f.ended(lines[at]) + indent + key + ": " + keyMark + f.eol
		return at, indent + "  ", nil
	case isEmpty(k, value) && nothing.MatchString(lines[k.Line-1]):
		lines[k.Line-1] = nothing.ReplaceAllString(lines[k.Line-1], "$1$2")
		return k.Line - 1, strings.Repeat(" ", k.Column+1), nil
	case value.Kind == yaml.SequenceNode && value.Style&yaml.FlowStyle == 0 && strings.HasPrefix(lines[value.Line-1][value.Column-1:], "-"):
		return f.lastLine(value), strings.Repeat(" ", value.Column-1), nil
	}
	return 0, "", fmt.Errorf("line %d: %s must be a list with an item per line, or []; no alias, no anchor and not in brackets", value.Line, key)
}

// isEmpty reports whether the value of a key is nothing or an empty list, on one line.
func isEmpty(k, value *yaml.Node) bool {
	return value != nil && value.Line == k.Line &&
		(value.Tag == "!!null" || value.Kind == yaml.SequenceNode && len(value.Content) == 0)
}

// verify reads the result again: everything but marked rules must be as before.
func verify(before, stripped, after *file, selected []int, p relabel.Profile) error {
	var rules []any
	if items, err := relabel.RenderItems(p, ""); err != nil {
		return err
	} else if err := yaml.Unmarshal([]byte(items), &rules); err != nil {
		return err
	}
	was, rest := before.split()
	wanted, _ := stripped.split()
	is, newRest := after.split()
	if len(was) != len(wanted) || !reflect.DeepEqual(rest, newRest) {
		return errors.New("the file is laid out in a way that cannot be edited: more than the rules would change; write out what is an alias")
	}
	for i, j := range before.jobs {
		if slices.Contains(selected, i) {
			if !onlyDropsLeft(was[i], wanted[i]) {
				return fmt.Errorf("job %q: the marked lines hold more than drop rules: move what is yours out of them", j.name)
			}
			wanted[i] = append(wanted[i], rules...)
		}
		if len(wanted[i]) != len(is[i]) || len(is[i]) > 0 && !reflect.DeepEqual(wanted[i], is[i]) {
			return fmt.Errorf("job %q: the file is laid out in a way that cannot be edited: its own rules would change; write out those of a merge key", j.name)
		}
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
