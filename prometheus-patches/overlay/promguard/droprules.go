// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/model/labels"
)

// DropSeries returns what drops series by the default drop rules, for
// scrape.Options, or nil if there are no rules. It registers their counters.
func (f *Flags) DropSeries(reg prometheus.Registerer) (func(labels.Labels) labels.Labels, error) {
	if f.dropRules == relabel.ProfileOff {
		return nil, nil
	}
	dropper, err := f.loadDropRules()
	if err != nil {
		return nil, err
	}
	f.dropped = relabel.NewCounted(dropper, reg)
	return f.dropped.Apply, nil
}

// ReloadDropRules returns apply, preceded by a reload of the file with the drop
// rules if they are in one. A file with mistakes leaves the rules as they were,
// and the reload of the configuration fails. Series that a target's scrapes know
// already stay as they are until its scrapes begin anew.
func (f *Flags) ReloadDropRules(apply func(*config.Config) error) func(*config.Config) error {
	if slices.Contains(relabel.ProfileNames(), f.dropRules) {
		return apply
	}
	return func(c *config.Config) error {
		dropper, err := f.loadDropRules()
		if err != nil {
			return err
		}
		f.dropped.Replace(dropper)
		return apply(c)
	}
}

func (f *Flags) loadDropRules() (*relabel.Dropper, error) {
	profile, err := relabel.ProfileByName(f.dropRules)
	if err != nil {
		if profile, err = relabel.LoadProfile(f.dropRules); err != nil {
			return nil, fmt.Errorf("--guard.drop-rules=%s is none of %s, and as a file: %w", f.dropRules, strings.Join(relabel.ProfileNames(), ", "), err)
		}
	}
	dropper, err := relabel.Compile(profile)
	if err != nil {
		return nil, fmt.Errorf("--guard.drop-rules=%s: %w", f.dropRules, err)
	}
	return dropper, nil
}
