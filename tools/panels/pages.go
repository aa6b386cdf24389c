// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/promguard/promguard/tools/panels/grafana"
	"github.com/promguard/promguard/tools/panels/sample"
)

const dashboards = "deploy/grafana/dashboards"

// page is a dashboard with what its panels were answered.
type page struct {
	*grafana.Dashboard
	// json is all of it, as Grafana reads it.
	json json.RawMessage
	// answers are those of each panel's targets, by the panel's id.
	answers map[int][]grafana.Result
	// variables are the values of the dashboard's variables.
	variables map[string]string
	// narrow is the width of the picture if it is not that of a dashboard.
	narrow int
}

// width is how wide the picture is, in pixels.
func (p page) width() int { return cmp.Or(p.narrow, width) }

// source is the data source as deploy/grafana/provisioning has it.
func source(url string) grafana.Source {
	return grafana.Source{
		URL: url, ScrapeInterval: 30 * time.Second, Timeout: "60s",
		From: sample.End.Add(-sample.Shown), To: sample.End,
	}
}

// askAll asks everything that the dashboards in dir ask.
func askAll(ctx context.Context, url, dir string) ([]page, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var pages []page
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p, err := ask(ctx, source(url), text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		pages = append(pages, p)
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("no dashboards in %s", dir)
	}
	return pages, nil
}

// ask asks everything that the dashboard asks whose JSON is text.
func ask(ctx context.Context, s grafana.Source, text []byte) (page, error) {
	d, err := grafana.Parse(text)
	if err != nil {
		return page{}, err
	}
	p := page{Dashboard: d, json: text, answers: map[int][]grafana.Result{}}
	if p.variables, err = s.Values(ctx, d); err != nil {
		return page{}, err
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			r, err := s.Ask(ctx, d, panel, target, p.variables)
			if err != nil {
				return page{}, fmt.Errorf("%s: %w", panel.Title, err)
			}
			p.answers[panel.ID] = append(p.answers[panel.ID], r)
		}
	}
	return p, nil
}

// mayBeEmpty are targets that have no series of the cluster made up, with the reason.
var mayBeEmpty = map[string]string{
	"promguard-server: Replayed: A": "no server replays at the end of the time shown",
}

// check returns what is wrong with the answers, all of it.
func check(pages []page) error {
	var errs []error
	for _, p := range pages {
		for _, panel := range p.Panels {
			for i, target := range panel.Targets {
				place := fmt.Sprintf("%s: %s: %s", p.UID, panel.Title, target.RefID)
				if err := checkAnswer(panel, target, p.answers[panel.ID][i], mayBeEmpty[place] != ""); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", place, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func checkAnswer(panel grafana.Panel, t grafana.Target, r grafana.Result, mayBeEmpty bool) error {
	switch {
	case r.Code != http.StatusOK:
		return fmt.Errorf("%d: %s", r.Code, r.Error)
	case len(r.Warnings) > 0:
		return fmt.Errorf("warnings: %q", r.Warnings)
	case len(r.Series) == 0 && !mayBeEmpty:
		return fmt.Errorf("no series of %s", r.Expr)
	case len(r.Series) > 0 && mayBeEmpty:
		return errors.New("has series, and is listed as one that may be empty")
	case !panel.HasUnit():
		return errors.New("no unit")
	}
	for _, s := range r.Series {
		if blank := t.Blank(s.Metric); blank != "" {
			return fmt.Errorf("the legend has %s, which %v leaves empty", blank, s.Metric)
		}
	}
	names := map[string]bool{}
	for _, f := range r.Frames {
		if name := f.Schema.Name; name != "" {
			if names[name] {
				return fmt.Errorf("two series have the legend %q", name)
			}
			names[name] = true
		}
	}
	return nil
}

func summary(pages []page) string {
	panels, queries, series := 0, 0, 0
	for _, p := range pages {
		for _, panel := range p.Panels {
			if len(panel.Targets) > 0 {
				panels++
			}
			queries += len(panel.Targets)
			for _, r := range p.answers[panel.ID] {
				series += len(r.Series)
			}
		}
	}
	return fmt.Sprintf("%d dashboards, %d panels, %d queries through the guard: %d series, none refused, warned about or without an answer",
		len(pages), panels, queries, series)
}
