// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promguard/promguard/internal/querylimit"
)

// readTimes parses limit, times and durations as Prometheus's handlers do, in
// their order and with their errors.
func (q *Request) readTimes() error {
	if err := q.readLimit(); err != nil {
		return err
	}
	switch q.Endpoint.Reads {
	case querylimit.ReadsInstant:
		if err := q.readTime("time", &q.When.Start); err != nil {
			return err
		}
		q.When.End, q.When.Given = q.When.Start, q.Get("time") != ""
	case querylimit.ReadsSteps:
		return q.readSteps()
	case querylimit.ReadsWindow, querylimit.ReadsMetadata:
		if err := q.readTime("start", &q.When.Start); err != nil {
			return err
		}
		return q.readTime("end", &q.When.End)
	}
	return nil
}

func (q *Request) readLimit() error {
	q.Limit = -1
	text := q.Get("limit")
	if !q.Endpoint.Limited || text == "" {
		return nil
	}
	limit, err := strconv.Atoi(text)
	if err == nil && limit < 0 {
		err = errors.New("limit must be non-negative")
	}
	q.Limit = limit
	return invalid("limit", err)
}

// readTime reads a time that may be left out.
func (q *Request) readTime(name string, into *time.Time) error {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	t, err := parseTime(text)
	if err != nil {
		return invalid(name, fmt.Errorf("invalid time value for '%s': %w", name, err))
	}
	*into = t
	return nil
}

func (q *Request) readSteps() error {
	var err error
	if q.When.Start, err = parseTime(q.Get("start")); err != nil {
		return invalid("start", err)
	}
	if q.When.End, err = parseTime(q.Get("end")); err != nil {
		return invalid("end", err)
	}
	if q.When.End.Before(q.When.Start) {
		return invalid("end", errors.New("end timestamp must not be before start time"))
	}
	if q.When.Step, err = parseDuration(q.Get("step")); err != nil {
		return invalid("step", err)
	}
	if q.When.Step <= 0 {
		return invalid("step", errors.New("zero or negative query resolution step widths are not accepted. Try a positive integer"))
	}
	q.When.Given = true
	return nil
}

func invalid(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("invalid parameter %q: %w", name, err)
}

// latestSecond is how far from 1970 a time may be for Prometheus to count its
// milliseconds right.
const latestSecond = math.MaxInt64 / 1000

var (
	minTimeText = apiv1.MinTime.Format(time.RFC3339Nano)
	maxTimeText = apiv1.MaxTime.Format(time.RFC3339Nano)
)

// parseTime reads a time as Prometheus's API does, and refuses those that
// overflow there.
func parseTime(text string) (time.Time, error) {
	if t, err := strconv.ParseFloat(text, 64); err == nil {
		if math.Abs(t) < latestSecond { // Not true of NaN.
			s, ns := math.Modf(t)
			ns = math.Round(ns*1000) / 1000
			return time.Unix(int64(s), int64(ns*float64(time.Second))).UTC(), nil
		}
		return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", text)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	switch text {
	case minTimeText:
		return apiv1.MinTime, nil
	case maxTimeText:
		return apiv1.MaxTime, nil
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", text)
}

// parseDuration reads a duration as Prometheus's API does: seconds, or with unit.
func parseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		ns := seconds * float64(time.Second)
		if math.IsNaN(ns) || ns >= math.MaxInt64 || ns < math.MinInt64 {
			return 0, fmt.Errorf("cannot parse %q to a valid duration. It overflows int64", text)
		}
		return time.Duration(ns), nil
	}
	if d, err := model.ParseDuration(text); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %q to a valid duration", text)
}

// formatTime writes a time so that parseTime reads the same, to the millisecond.
func formatTime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

func formatDuration(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// parseTimeout reads a duration as Prometheus's API does, and refuses what would
// be over before it begins.
func parseTimeout(s string) (time.Duration, error) {
	timeout, err := parseDuration(s)
	if err == nil && timeout <= 0 {
		err = fmt.Errorf("timeout must be positive, got %s", timeout)
	}
	return timeout, err
}
