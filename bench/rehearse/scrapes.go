// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/promapi"
)

// Scrapes is what a scrape of series of the recording takes.
type Scrapes struct {
	Series int `json:"series"` // that are exposed
	// Stock, Patched without drop rules, and Dropping with them, are seconds of a
	// server's processor time for each scrape, whatever else it does meanwhile included.
	Stock    float64 `json:"stock_cpu_seconds"`
	Patched  float64 `json:"patched_cpu_seconds"`
	Dropping float64 `json:"dropping_cpu_seconds"`
	// Failed says why it was not measured.
	Failed string `json:"-"`
}

const (
	// exposed is how many series of the recording are exposed, about.
	exposed = 50_000
	// The first scrapes, which make the series, are not measured.
	firstScrapes, measuredScrapes = 2, 16
	// Intervals are doubled, so often.
	maxTries = 4
	// perSeries is how long the interval of scrapes is: many times what a scrape takes, as
	// three servers scrape at once, and others use the machine.
	perSeries, minInterval = 30 * time.Microsecond, 150 * time.Millisecond

	dropFlag = "--guard.drop-rules"
)

var errBusy = errors.New("scrapes took too long: the machine is too busy")

// scrapes has three servers scrape the end of the recording at the same time. Where that
// fails, as on a machine that has no time, the rehearsal goes on without.
func (r *rehearsal) scrapes(ctx context.Context) error {
	if len(r.Profile.Rules) == 0 {
		return nil
	}
	found, err := step(r, "scrapes", append(slices.Clone(r.inputs), r.Profile, r.DropRules), func() (Scrapes, error) { return r.scrape(ctx) })
	if err != nil && ctx.Err() == nil {
		found, err = Scrapes{Failed: firstLine(err.Error())}, nil
	}
	r.report.Scrapes = &found
	return err
}

func (r *rehearsal) scrape(ctx context.Context) (found Scrapes, err error) {
	series, err := r.dir.Sample(ctx, (r.report.Recording.Series+exposed-1)/exposed, measuredScrapes)
	if err != nil {
		return found, err
	}
	if len(series) == 0 {
		return found, errors.New("the recording ends without a series that has floats")
	}
	lines := linesOf(series)
	interval := max(minInterval, time.Duration(len(lines))*perSeries).Round(10 * time.Millisecond)
	for try := range maxTries { // On a machine that others use, a scrape may take too long.
		if found, err = r.scrapeEvery(ctx, interval<<try, lines); err == nil || ctx.Err() != nil {
			break
		}
	}
	return found, err
}

func (r *rehearsal) scrapeEvery(ctx context.Context, interval time.Duration, lines []line) (found Scrapes, err error) {
	found.Series = len(lines)
	var all [3]*scraped
	for i, of := range []struct {
		name string
		b    binary.Binary
		into *float64
	}{{"stock", r.stock, &found.Stock}, {"patched", dropping(r.patched, "off"), &found.Patched}, {"dropping", dropping(r.patched, r.DropRules), &found.Dropping}} {
		all[i] = &scraped{into: of.into, done: make(chan error, 1), lines: lines, interval: interval}
		end, err := all[i].start(ctx, of.b, filepath.Join(r.tmp, "scraping-"+of.name))
		if err != nil {
			return found, err
		}
		defer end()
	}
	for _, s := range all {
		select {
		case err := <-s.done:
			if err != nil {
				return found, err
			}
		case <-time.After(3 * (firstScrapes + measuredScrapes) * interval):
			return found, errBusy
		case <-ctx.Done():
			return found, context.Cause(ctx)
		}
	}
	return found, nil
}

// dropping is a binary with other drop rules.
func dropping(b binary.Binary, rules string) binary.Binary {
	b.Args = append(slices.DeleteFunc(slices.Clone(b.Args), func(a string) bool { return strings.HasPrefix(a, dropFlag+"=") }), dropFlag+"="+rules)
	return b
}

// scraped is what a server scrapes, and what it takes of its time.
type scraped struct {
	lines    []line
	interval time.Duration
	server   atomic.Pointer[replays.Server]
	times    int
	begin    time.Duration
	into     *float64
	done     chan error
}

// line is a series of an exposition.
type line struct {
	name   string // with its labels
	values []float64
}

// start has a server scrape. Labels are as in the recording, those of targets, too.
func (s *scraped) start(ctx context.Context, b binary.Binary, at string) (end func(), err error) {
	target := httptest.NewServer(s)
	config := fmt.Sprintf("scrape_configs: [{job_name: rehearsal, honor_labels: true, scrape_interval: %s, scrape_timeout: %[1]s, static_configs: [{targets: [%q]}]}]\n",
		model.Duration(s.interval), strings.TrimPrefix(target.URL, "http://"))
	server, err := replays.StartEmpty(ctx, b, at, config, replays.Options{GOMAXPROCS: runtime.NumCPU(), Timeout: time.Minute})
	if err != nil {
		target.Close()
		return nil, err
	}
	s.server.Store(server)
	return func() {
		server.Kill()
		target.Close()
		_ = os.RemoveAll(at) // What is left goes with all copies.
	}, nil
}

// ServeHTTP is a scrape: the one before it has ended then.
func (s *scraped) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; escaping=allow-utf-8")
	if server := s.server.Load(); server != nil {
		switch now, err := server.CPU(); {
		case err != nil:
			s.end(err)
		case s.times == firstScrapes:
			s.begin = now
		case s.times == firstScrapes+measuredScrapes:
			*s.into = (now - s.begin).Seconds() / measuredScrapes
			s.end(scrapesFailed(server.URL))
		}
		s.times++
	}
	out := bufio.NewWriterSize(w, 1<<20)
	defer func() { _ = out.Flush() }() // The server finds out.
	var b []byte
	for i := range s.lines {
		l := &s.lines[i]
		b = append(append(b[:0], l.name...), ' ')
		b = strconv.AppendFloat(b, l.values[s.times%len(l.values)], 'g', -1, 64)
		_, _ = out.Write(append(b, '\n'))
	}
}

func (s *scraped) end(err error) {
	select {
	case s.done <- err:
	default: // It was said before.
	}
}

// scrapesFailed says whether a scrape did.
func scrapesFailed(server string) error {
	api, err := promapi.New(server, asker.Transport, onRecording)
	if err != nil {
		return err
	}
	rows, err := api.Query(context.Background(), `count_over_time(up{job="rehearsal"}[1h]) - sum_over_time(up{job="rehearsal"}[1h])`)
	if err == nil && (len(rows) != 1 || rows[0].Value != 0) {
		err = errBusy
	}
	return err
}

// linesOf are the lines of an exposition.
func linesOf(series []replays.Sampled) (lines []line) {
	for _, of := range series {
		var name, rest []string
		of.Labels.Range(func(l labels.Label) {
			switch {
			case l.Name != model.MetricNameLabel:
				rest = append(rest, quoteName(l.Name)+"="+quote(l.Value))
			case model.LegacyValidation.IsValidMetricName(l.Value):
				name = []string{l.Value}
			default:
				rest = append(rest, quote(l.Value))
			}
		})
		lines = append(lines, line{strings.Join(name, "") + "{" + strings.Join(rest, ",") + "}", of.Values})
	}
	return lines
}

func quoteName(name string) string {
	if model.LegacyValidation.IsValidLabelName(name) {
		return name
	}
	return quote(name)
}

var escaping = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func quote(text string) string { return `"` + escaping.Replace(text) + `"` }

// saved is the share of a scrape's processor time that drop rules save.
func (s *Scrapes) saved() float64 { return math.Max(0, 1-s.Dropping/s.Patched) }
