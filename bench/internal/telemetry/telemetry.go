// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry asks a process that is measured what it says of itself.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// client leaves no idle connection in what is measured.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Get reads an answer. It is an error if it is no 200.
func Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", req.URL.Path, res.Status, body)
	}
	return body, err
}

// Metrics returns the values of metrics that have no labels.
func Metrics(ctx context.Context, root string, names ...string) ([]float64, error) {
	text, err := Get(ctx, root+"/metrics")
	if err != nil {
		return nil, err
	}
	values := make([]float64, len(names))
	for i, name := range names {
		_, rest, ok := strings.Cut("\n"+string(text), "\n"+name+" ")
		if !ok {
			return nil, fmt.Errorf("%s/metrics has no %s", root, name)
		}
		value, _, _ := strings.Cut(rest, "\n")
		if values[i], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("%s/metrics: %s: %w", root, name, err)
		}
	}
	return values, nil
}

// Collect has a Go process collect its garbage, and returns the profile of the heap that
// is left. It does so twice: pools give back what they hold at the second time.
func Collect(ctx context.Context, root string) (profile []byte, err error) {
	for range 2 {
		if profile, err = Get(ctx, root+"/debug/pprof/heap?gc=1"); err != nil {
			return nil, err
		}
	}
	return profile, nil
}
