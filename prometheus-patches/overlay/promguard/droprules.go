// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/web/api/v1"
)

// DropRules returns the default drop rules, for scrape.Options, or nil if nothing
// is dropped of scrapes. It registers their metrics.
func (f *Flags) DropRules(logger *slog.Logger, reg prometheus.Registerer) (scrape.DropRules, error) {
	if f.dropRulesFlag.off() {
		return nil, nil
	}
	r := &dropRules{
		flag:     &f.dropRulesFlag,
		logger:   logger,
		counters: relabel.NewCounters(reg),
		blind:    newBlindRules(logger, reg),
		byName:   map[string]*relabel.Dropper{},
		former:   map[string]struct{}{},
		unknown:  map[string]struct{}{},
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	f.dropRules = r
	if r.flag.source == relabel.ProfileOff {
		return nil, nil
	}
	return r, nil
}

// ReloadDropRules returns apply, preceded by a reload of the file with the drop
// rules if they are in one. A file with mistakes leaves the rules as they were,
// and the reload of the configuration fails. Scrape pools begin their scrapes
// anew if the rules have changed.
func (f *Flags) ReloadDropRules(apply func(*config.Config) error) func(*config.Config) error {
	if slices.Contains(relabel.ProfileNames(), f.dropRulesFlag.source) {
		return apply
	}
	return func(c *config.Config) error {
		if err := f.dropRules.load(); err != nil {
			return err
		}
		return apply(c)
	}
}

// dropRules are the rules of the flag, and profiles that targets name instead.
type dropRules struct {
	flag     *dropRulesFlag
	logger   *slog.Logger
	counters *relabel.Counters
	blind    *blindRules

	mu         sync.Mutex
	inForce    *relabel.Dropper
	generation int
	// byName has the rules in force and what else was asked for.
	byName map[string]*relabel.Dropper
	// former has the names that the rules in force had before. Targets found
	// earlier have them until they are found again.
	former map[string]struct{}
	// unknown has the pools whose targets named a profile that there is not.
	unknown map[string]struct{}
}

// load reads the rules of the flag, again if they were read before.
func (r *dropRules) load() error {
	profile, err := relabel.ProfileByName(r.flag.source)
	if err != nil {
		if profile, err = relabel.LoadProfile(r.flag.source); err != nil {
			return fmt.Errorf("--guard.drop-rules=%s is not one of %s, and as a file: %w", r.flag.source, strings.Join(relabel.ProfileNames(), ", "), err)
		}
	}
	dropper, err := relabel.Compile(profile)
	if err != nil {
		return fmt.Errorf("--guard.drop-rules=%s: %w", r.flag.source, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce != nil {
		if reflect.DeepEqual(r.inForce.Profile(), profile) {
			return nil
		}
		r.counters.Hide(r.inForce.Profile())
		delete(r.byName, r.inForce.Profile().Name)
		r.former[r.inForce.Profile().Name] = struct{}{}
	}
	r.inForce = dropper
	r.generation++
	r.byName[profile.Name] = dropper
	r.counters.Show(profile)
	r.logger.Info("Default drop rules discard series",
		"scrapes", r.flag.source, "remote_write", r.flag.of(v1.PathRemoteWrite), "otlp", r.flag.of(v1.PathOTLP),
		"profile", profile.Name, "rules", len(profile.Rules), "why", profile.Summary, "off", "--guard.drop-rules=off")
	return nil
}

// drops returns what the drop rules have dropped of scrapes, for the page, or nil without
// rules.
func (f *Flags) drops() *screen.Drops {
	r := f.dropRules
	if r == nil {
		return nil
	}
	d := &screen.Drops{Profile: r.InForce().Profile}
	for rule, series := range droppedByRule(r.counters) {
		d.Dropped += series
		d.Rules = append(d.Rules, screen.Drop{Rule: rule, Series: series})
	}
	slices.SortFunc(d.Rules, func(a, b screen.Drop) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Rule, b.Rule))
	})
	return d
}

// droppedByRule adds up the series that each rule has dropped of scrapes.
func droppedByRule(counters *relabel.Counters) map[string]int64 {
	metrics := make(chan prometheus.Metric)
	go func() {
		counters.Collect(metrics)
		close(metrics)
	}()
	sums := map[string]int64{}
	for m := range metrics {
		var d dto.Metric
		if m.Write(&d) != nil {
			continue
		}
		for _, l := range d.GetLabel() {
			if l.GetName() == "rule" {
				sums[l.GetValue()] += int64(d.GetCounter().GetValue())
			}
		}
	}
	return sums
}

// InForce implements scrape.DropRules.
func (r *dropRules) InForce() config.DropRules {
	r.mu.Lock()
	defer r.mu.Unlock()
	return config.DropRules{Profile: r.inForce.Profile().Name, Generation: r.generation}
}

// Pool implements scrape.DropRules. A profile that there is not is a mistake in
// somebody's labels, which must not keep a target from being scraped: the rules
// in force hold.
func (r *dropRules) Pool(scrapeJob, profile string) func(labels.Labels) labels.Labels {
	if profile == relabel.ProfileOff {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counters.Pool(r.named(profile, scrapeJob), scrapeJob)
}

func (r *dropRules) named(profile, scrapeJob string) *relabel.Dropper {
	if profile == "" {
		return r.inForce
	}
	if d, ok := r.byName[profile]; ok {
		return d
	}
	if _, ok := r.former[profile]; ok {
		return r.inForce
	}
	p, err := relabel.ProfileByName(profile)
	if err == nil {
		var d *relabel.Dropper
		if d, err = relabel.Compile(p); err == nil {
			r.byName[profile] = d
			r.counters.Show(p)
			return d
		}
	}
	if _, told := r.unknown[scrapeJob]; !told {
		r.unknown[scrapeJob] = struct{}{}
		r.logger.Warn("A target names unknown drop rules, the default ones apply to it", "scrape_pool", scrapeJob, "named", profile, "err", err)
	}
	return r.inForce
}

// Forget implements scrape.DropRules.
func (r *dropRules) Forget(scrapeJob string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unknown, scrapeJob)
	r.counters.Forget(scrapeJob)
}
