// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/prometheus/prometheus/model/labels"
)

// Mode is what comes of a limit that is reached.
type Mode string

// The modes of a limit. One that is off is not kept.
const (
	Off     Mode = "off"
	Observe Mode = "observe" // count
	Warn    Mode = "warn"    // count and log
	Enforce Mode = "enforce" // count, log and refuse
)

// ParseMode returns the mode that is called so.
func ParseMode(s string) (Mode, error) {
	if m := Mode(s); slices.Contains([]Mode{Off, Observe, Warn, Enforce}, m) {
		return m, nil
	}
	return "", fmt.Errorf("%q is not one of off, observe, warn, enforce", s)
}

// Limit bounds how many series the head has, of all that there are or with one label
// value. Series that have ended count until the head lets go of them: they take memory.
type Limit struct {
	// Name is what metrics and errors call it.
	Name string
	// Label is what the series of one count have in common; empty means that all of the
	// head are counted together.
	Label string
	// Value is the value of the label that the limit is about; empty means each.
	Value     string
	MaxSeries int
	Mode      Mode

	refusal refusal
}

// HeadLimit bounds the series of the whole head.
func HeadLimit(maxSeries int, mode Mode) Limit {
	return Limit{Name: "head", MaxSeries: maxSeries, Mode: mode}.withRefusal()
}

func (l Limit) withRefusal() Limit {
	text := fmt.Sprintf("the head has %d series, the most that --guard.max-head-series allows", l.MaxSeries)
	if l.Label != "" {
		text = fmt.Sprintf("limit %q: the head has %d series with the same %s", l.Name, l.MaxSeries, l.Label)
	}
	l.refusal = refusal{reason: l.Name, text: text}
	return l
}

// reached says whether another series with the labels would be one too many.
func (l *Limit) reached(h Head, ls labels.Labels) bool {
	if l.Label == "" {
		return h.NumSeries() >= uint64(l.MaxSeries)
	}
	value := ls.Get(l.Label)
	if value == "" || l.Value != "" && l.Value != value {
		return false
	}
	return h.SeriesWith(l.Label, value) >= l.MaxSeries
}

// limitsFile is the file of --guard.series-limits.
type limitsFile struct {
	Limits []struct {
		Name      string `yaml:"name"`
		Label     string `yaml:"label"`
		Value     string `yaml:"value"`
		MaxSeries int    `yaml:"max_series"`
		Mode      string `yaml:"mode"`
	} `yaml:"limits"`
}

// maxLimits bounds the file, and with it the values of a label of metrics.
const maxLimits = 100

// LoadLimits reads a file.
func LoadLimits(file string) ([]Limit, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	limits, err := ParseLimits(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return limits, nil
}

// ParseLimits reads the text of a file.
func ParseLimits(text []byte) ([]Limit, error) {
	var f limitsFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) { // An empty file has no limits.
		return nil, err
	}
	if len(f.Limits) > maxLimits {
		return nil, fmt.Errorf("limits: there are %d, give at most %d", len(f.Limits), maxLimits)
	}
	names := map[string]bool{"head": true, "memory": true}
	var limits []Limit
	for i, l := range f.Limits {
		mode, errMode := ParseMode(l.Mode)
		if l.Name == "" {
			l.Name = l.Label
			if l.Value != "" {
				l.Name += "=" + l.Value
			}
		}
		var err error
		switch {
		case !model.UTF8Validation.IsValidLabelName(l.Label):
			err = fmt.Errorf("label: %q is no name of a label; give job, __name__, namespace or another", l.Label)
		case l.MaxSeries < 1:
			err = fmt.Errorf("max_series: %d is not at least 1", l.MaxSeries)
		case errMode != nil:
			err = fmt.Errorf("mode: %w", errMode)
		case names[l.Name]:
			err = errors.New("name: another limit has it")
		}
		if err != nil {
			return nil, fmt.Errorf("limits[%d] %q: %w", i, l.Name, err)
		}
		names[l.Name] = true
		if mode != Off {
			limits = append(limits, Limit{Name: l.Name, Label: l.Label, Value: l.Value, MaxSeries: l.MaxSeries, Mode: mode}.withRefusal())
		}
	}
	return limits, nil
}
