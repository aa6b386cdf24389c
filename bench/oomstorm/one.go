// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/storm"
)

const (
	// idlePeriod is how long a server is watched for what it does unasked.
	idlePeriod = 3 * time.Second
	// A server is quiet when it takes less than quietShare of a CPU over what it
	// takes idle, for two windows on end; it is waited for at most quietTimeout.
	quietWindow  = 500 * time.Millisecond
	quietShare   = 0.02
	quietTimeout = 3 * time.Minute
)

// oneResult is what a single request took.
type oneResult struct {
	Binary  binary.Binary `json:"binary"`
	Request string        `json:"request"`
	Limit   string        `json:"limit_by"`
	// Outcome is the status code, or how the request ended.
	Outcome string `json:"outcome"`
	// How the server ended, if it did.
	How string `json:"how,omitempty"`
	// FirstByte and Total are seconds from the request to the first byte of the
	// answer's body, 0 if there was none, and to its end.
	FirstByte float64 `json:"first_byte_seconds"`
	Total     float64 `json:"total_seconds"`
	Bytes     int64   `json:"bytes"`
	// CPU is the server's from the request until it is quiet again, less what it
	// takes idle. CPUAfter is the part after the answer's end, or after the
	// client had left. Both are 0 if the server ended.
	CPU      float64 `json:"cpu_seconds"`
	CPUAfter float64 `json:"cpu_after_seconds"`
	// Rest is the RSS before the request, Peak the most from then on, in bytes.
	Rest int64 `json:"rest_bytes"`
	Peak int64 `json:"peak_bytes"`
}

// runOnes makes each request of a server of its own. Binaries take turns.
func runOnes(ctx context.Context, c oneConfig, stdout, stderr io.Writer) (err error) {
	h, err := newHost(ctx, c.common, 0, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if h.config, err = writeConfig(h.dir, nil, 0, 0); err != nil {
		return err
	}
	var results []oneResult
	for range c.Count {
		for _, kind := range c.Kinds {
			for _, b := range c.Binaries {
				r, err := runOne(ctx, h, c, b, kind)
				if err != nil {
					return err
				}
				results = append(results, r)
			}
		}
	}
	return writeOnes(stdout, c, results)
}

func runOne(ctx context.Context, h *host, c oneConfig, b binary.Binary, kind storm.Kind) (r oneResult, err error) {
	s, err := h.open(ctx, b)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	idle, err := s.idleRate(ctx)
	if err != nil {
		return r, err
	}
	if err := s.ResetPeak(); err != nil {
		return r, err
	}
	r = oneResult{Binary: b, Request: kind.Name, Limit: s.limitBy, Rest: s.Watch.Now().RSS}
	builder := storm.Builder{URL: s.URL, From: s.from, Points: storm.PointsFor(c.Series)}
	before, err := s.CPU()
	if err != nil {
		return r, err
	}
	begin := time.Now()
	single, err := storm.Once(ctx, builder, kind, c.Gzip, c.LeaveAfter, c.Timeout)
	if err != nil {
		return r, err
	}
	r.Outcome, r.Bytes, r.FirstByte, r.Total = single.Outcome, single.Bytes, single.FirstByte.Seconds(), single.Total.Seconds()
	if err := s.untilQuiet(ctx, &r, idle, before, begin); err != nil {
		return r, err
	}
	r.Peak = peaks(s.Watch.Peak()).HWM
	h.say(b, "%s: %s after %.2f s, peak %s over rest", kind.Name, r.Outcome, r.Total, mib(r.Peak-r.Rest))
	return r, nil
}

// idleRate is the CPU time that the server takes unasked, in CPUs.
func (s *session) idleRate(ctx context.Context) (float64, error) {
	begin := time.Now()
	before, err := s.CPU()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(idlePeriod):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	now, err := s.CPU()
	return (now - before).Seconds() / time.Since(begin).Seconds(), err
}

// untilQuiet measures the CPU time since a request's begin, until the server is
// quiet or has ended.
func (s *session) untilQuiet(ctx context.Context, r *oneResult, idle float64, before time.Duration, begin time.Time) error {
	end := time.Now()
	atEnd, err := s.CPU()
	last, lastAt := atEnd, end
	for quiet := 0; err == nil && quiet < 2 && time.Since(end) < quietTimeout; {
		select {
		case <-time.After(quietWindow):
		case <-s.Dead():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var now time.Duration
		if now, err = s.CPU(); err != nil {
			break
		}
		elapsed := time.Since(lastAt).Seconds()
		quiet++
		if (now - last).Seconds() > (idle+quietShare)*elapsed {
			quiet = 0
		}
		last, lastAt = now, time.Now()
	}
	select {
	case <-s.Dead():
		r.How = s.how()
		return nil
	default:
	}
	r.CPU = max(0, (last-before).Seconds()-idle*lastAt.Sub(begin).Seconds())
	r.CPUAfter = max(0, (last-atEnd).Seconds()-idle*lastAt.Sub(end).Seconds())
	return err
}

func writeOnes(w io.Writer, c oneConfig, results []oneResult) error {
	switch c.Format {
	case "json":
		return writeJSON(w, results)
	case "benchfmt":
		return benchOnes(w, c, results)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "request\tbinary\toutcome\tfirst byte\ttotal\tCPU\tCPU after\tpeak over rest\tbytes\tserver")
	for _, r := range results {
		server := "lives"
		if r.How != "" {
			server = r.How
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.3f s\t%.3f s\t%.2f s\t%.2f s\t%s\t%s\t%s\n",
			r.Request, r.Binary.Name, r.Outcome, r.FirstByte, r.Total, r.CPU, r.CPUAfter, mib(r.Peak-r.Rest), mib(r.Bytes), server)
	}
	return tw.Flush()
}

func benchOnes(w io.Writer, c oneConfig, results []oneResult) error {
	b := newBench(w, c.common, results[0].Limit)
	b.set("leave-after", c.LeaveAfter.String())
	for _, r := range results {
		survived := 1.0
		if r.How != "" {
			survived = 0
		}
		metrics := []metric{
			{"first-byte-sec", "lower", r.FirstByte},
			{"sec/op", "lower", r.Total},
			{"cpu-sec/op", "lower", r.CPU},
			{"cpu-after-sec", "lower", r.CPUAfter},
			{"peak-over-rest-bytes", "lower", float64(r.Peak - r.Rest)},
			{"answer-bytes", "lower", float64(r.Bytes)},
			{"survived", "higher", survived},
		}
		if err := b.add("One/request="+r.Request+"/binary="+r.Binary.Name, metrics); err != nil {
			return err
		}
	}
	return nil
}
