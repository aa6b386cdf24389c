// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/promguard/promguard/internal/cli"
)

const (
	pollPeriod = 200 * time.Millisecond
	sayPeriod  = 5 * time.Second
	// writesPeriod is how often to look whether anything is stored.
	writesPeriod = 2 * time.Second
)

// waitFor polls until a condition holds or ctx ends, and says so now and then.
// poll returns a word on how far it is.
func waitFor(ctx context.Context, out io.Writer, what string, poll func(context.Context) (done bool, state string)) error {
	begin, said := time.Now(), time.Now()
	fmt.Fprintf(out, "waiting for %s\n", what)
	for {
		done, state := poll(ctx)
		if done {
			if state != "" {
				fmt.Fprintf(out, "  %s\n", state)
			}
			return nil
		}
		if time.Since(said) >= sayPeriod {
			said = time.Now()
			fmt.Fprintf(out, "  %s so far: %s\n", time.Since(begin).Round(time.Second), state)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPeriod):
		}
	}
}

// ready polls an endpoint that answers 200 once a server is ready.
func ready(url string) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		res, err := get(ctx, url)
		if err != nil {
			return false, "no answer yet"
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK, res.Status
	}
}

// scraped polls a Prometheus until every target has been tried once and what
// came of it can be queried.
func scraped(prometheus string) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		var targets struct {
			Data struct{ ActiveTargets []struct{ Health string } }
		}
		if err := getJSON(ctx, prometheus+"/api/v1/targets?state=active", &targets); err != nil {
			return false, err.Error()
		}
		n := map[string]int{}
		for _, t := range targets.Data.ActiveTargets {
			n[t.Health]++
		}
		state := fmt.Sprintf("%d targets up, %d down, %d not scraped yet", n["up"], n["down"], n["unknown"])
		// Prometheus itself and promguard are always among the targets. A target
		// is up a moment before its samples can be queried.
		all := n["up"] + n["down"]
		if n["unknown"] > 0 || all <= 2 {
			return false, state
		}
		var ups struct {
			Data struct{ Result []struct{} }
		}
		err := getJSON(ctx, prometheus+"/api/v1/query?query=up", &ups)
		return err == nil && len(ups.Data.Result) >= all, state
	}
}

// failedWrites finds how many writes of its log a Prometheus says have failed.
var failedWrites = regexp.MustCompile(`(?m)^prometheus_tsdb_wal_writes_failed_total ([1-9]\S*)$`)

// watchWrites ends the run once Prometheus cannot write, of which nobody would learn
// otherwise: it scrapes on, is ready, and stores nothing.
func watchWrites(ctx context.Context, end context.CancelCauseFunc, prometheus, dir, log string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(writesPeriod):
		}
		res, err := get(ctx, prometheus+"/metrics")
		if err != nil {
			continue // It starts, or has stopped, and that is told elsewhere.
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if m := failedWrites.FindSubmatch(text); err == nil && m != nil {
			end(cli.NewTail(fmt.Errorf("prometheus cannot write to %s (%s writes of its log failed): make room on that disk, or name another directory with --data", dir, m[1]), tail(log)))
			return
		}
	}
}

func getJSON(ctx context.Context, url string, v any) error {
	res, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(v)
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 5 * time.Second}
	return client.Do(req)
}
