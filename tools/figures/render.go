// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/perf/benchfmt"
)

const figuresDir = "docs/figures"

// set is what a benchmark printed.
type set struct {
	config map[string]string
	values map[string][]float64 // by name and unit
}

func readSet(root, name string) (*set, error) {
	f, err := os.Open(filepath.Join(root, figuresDir, name+".txt"))
	if err != nil {
		return nil, fmt.Errorf("%w: make figures FIGURES=%s measures it", err, name)
	}
	defer f.Close()
	s := &set{map[string]string{}, map[string][]float64{}}
	r := benchfmt.NewReader(f, f.Name())
	for r.Scan() {
		switch line := r.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, line
		case *benchfmt.Result:
			for _, c := range line.Config {
				s.config[c.Key] = string(c.Value)
			}
			for _, v := range line.Values {
				// The reader makes seconds of nanoseconds, and so on.
				value, unit := v.Value, v.Unit
				if v.OrigUnit != "" {
					value, unit = v.OrigValue, v.OrigUnit
				}
				key := withoutProcs.ReplaceAllString(string(line.Name), "") + " " + unit
				s.values[key] = append(s.values[key], value)
			}
		}
	}
	return s, r.Err()
}

var withoutProcs = regexp.MustCompile(`-\d+$`)

// renderer renders a table and knows which sets it is of.
type renderer struct {
	root string
	sets map[string]*set
}

func (r *renderer) set(name string) (*set, error) {
	if s := r.sets[name]; s != nil {
		return s, nil
	}
	s, err := readSet(r.root, name)
	if err == nil {
		r.sets[name] = s
	}
	return s, err
}

// median is of what the runs of a benchmark measured in a unit.
func (r *renderer) median(of, name, unit string) (float64, error) {
	s, err := r.set(of)
	if err != nil {
		return 0, err
	}
	values := slices.Sorted(slices.Values(s.values[name+" "+unit]))
	n := len(values)
	if n == 0 {
		return 0, fmt.Errorf("%s has no %s of %s", of, unit, name)
	}
	return (values[(n-1)/2] + values[n/2]) / 2, nil
}

func (r *renderer) about(of, key string) (string, error) {
	s, err := r.set(of)
	if err != nil {
		return "", err
	}
	if s.config[key] == "" {
		return "", fmt.Errorf("%s does not say its %s", of, key)
	}
	return s.config[key], nil
}

// measured says of which code a set is, when and where it was measured.
func (r *renderer) measured(of string) (string, error) {
	s, err := r.set(of)
	if err != nil {
		return "", err
	}
	c := s.config
	return fmt.Sprintf("%s: %s, commit %s, %s, %s, %s cores, %s", of, c["version"], c["commit"], c["date"], c["os"], c["cpus"], c["memory"]), nil
}

// render returns a table, and the sets that it is of.
func render(root, table string) (string, map[string]*set, error) {
	r := &renderer{root, map[string]*set{}}
	file := table + ".tmpl"
	t, err := template.New(file).Funcs(template.FuncMap{
		"median": r.median, "about": r.about, "measured": r.measured, "number": number,
		"div":  func(a, b float64) float64 { return a / b },
		"sets": func() []string { return slices.Sorted(maps.Keys(r.sets)) }, // So far.
	}).ParseFiles(filepath.Join(root, figuresDir, file))
	if err != nil {
		return "", nil, err
	}
	var out strings.Builder
	err = t.Execute(&out, nil)
	return out.String(), r.sets, err
}

// number prints a value, which may be text, with so many decimals, and commas between
// thousands.
func number(decimals int, value any) (string, error) {
	v, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	if err != nil {
		return "", err
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	whole := strings.IndexByte(s+".", '.')
	for i := whole - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s, nil
}

var place = regexp.MustCompile(`(?s)(<!-- figures ([\w-]+) -->\n).*?(<!-- /figures -->)`)

// renderPage renders the tables of a page, and returns the sets that they are of.
func renderPage(root string, text []byte) ([]byte, map[string]*set, error) {
	all := map[string]*set{}
	var errs []error
	out := place.ReplaceAllFunc(text, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		table, sets, err := render(root, string(parts[2]))
		errs = append(errs, err)
		maps.Copy(all, sets)
		return slices.Concat(parts[1], []byte(table), parts[3])
	})
	return out, all, errors.Join(errs...)
}

// pages are those that may have tables.
func pages(root string) ([]string, error) {
	docs, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	return append(docs, filepath.Join(root, "README.md")), err
}

func renderPages(root string) error {
	names, err := pages(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		before, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		after, _, err := renderPage(root, before)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(before, after) {
			if err := os.WriteFile(name, after, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
