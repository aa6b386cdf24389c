// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// costParams are what Prometheus's feature query-cost reads. They lower what the
// server allows a query, and never raise it.
var costParams = []string{"cost", "max_series", "max_samples_read", paramMaxDuration}

const paramMaxDuration = "max_query_duration"

// headerStartTimestamps says how rate() and its like are evaluated.
const headerStartTimestamps = "X-Prometheus-Use-Start-Timestamps"

// readOptions reads how a query is to be evaluated as Prometheus's handlers do, in
// their order and with their errors.
func (q *Request) readOptions(h http.Header) error {
	if !q.Endpoint.evaluates() {
		return nil
	}
	if text := q.Get("lookback_delta"); text != "" {
		d, err := parseDuration(text)
		if err != nil {
			return fmt.Errorf("error parsing lookback delta duration: %w", err)
		}
		q.When.Lookback = d
	}
	if err := q.readStartTimestamps(h[headerStartTimestamps]); err != nil {
		return err
	}
	for _, name := range []string{"max_series", "max_samples_read"} {
		if text := q.Get(name); text != "" {
			if _, err := strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("error parsing %s: %w", name, err)
			}
		}
	}
	if _, err := q.maxDuration(); err != nil {
		return fmt.Errorf("error parsing %s: %w", paramMaxDuration, err)
	}
	if text := q.Get("cost"); text != "" {
		if _, err := strconv.ParseBool(text); err != nil {
			return invalid("cost", errors.New("must be a boolean"))
		}
	}
	return nil
}

func (q *Request) readStartTimestamps(values []string) error {
	if len(values) > 1 {
		return Advise("Give the header %s once", "it is there more than once", headerStartTimestamps)
	}
	if len(values) == 0 || values[0] == "" {
		return nil
	}
	on, err := strconv.ParseBool(values[0])
	if err != nil {
		return fmt.Errorf("error parsing %s header: %w", headerStartTimestamps, err)
	}
	q.startTimestamps = strconv.FormatBool(on)
	return nil
}

// maxDuration is how long the server may evaluate the query; 0 if that is left to
// it.
func (q *Request) maxDuration() (time.Duration, error) {
	text := q.Get(paramMaxDuration)
	if text == "" {
		return 0, nil
	}
	d, err := parseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("must not be negative, got %s", d)
	}
	return d, err
}
