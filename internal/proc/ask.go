// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const pollPeriod = 100 * time.Millisecond

// client keeps no connection: a server that is measured has none that it would not have.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Get reads the answer of a server. It is an error if it is no 200.
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

// Metrics reads the values of metrics without labels that a server exposes.
func Metrics(ctx context.Context, server string, names ...string) ([]float64, error) {
	body, err := Get(ctx, server+"/metrics")
	if err != nil {
		return nil, err
	}
	values := make([]float64, len(names))
	for i, name := range names {
		_, rest, ok := strings.Cut("\n"+string(body), "\n"+name+" ")
		if !ok {
			return nil, fmt.Errorf("/metrics has no %s", name)
		}
		text, _, _ := strings.Cut(rest, "\n")
		if values[i], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("/metrics: %s: %w", name, err)
		}
	}
	return values, nil
}

// Collect has a Go process collect its garbage, and returns the profile of the heap that
// is left. It does so twice: pools give back what they hold at the second time.
func Collect(ctx context.Context, server string) (profile []byte, err error) {
	for range 2 {
		if profile, err = Get(ctx, server+"/debug/pprof/heap?gc=1"); err != nil {
			return nil, err
		}
	}
	return profile, nil
}

// WaitReady asks a server until it says that it is ready. The error is that of Wait.
func (p *Process) WaitReady(ctx context.Context, server string) error {
	for {
		if _, err := Get(ctx, server+"/-/ready"); err == nil {
			return nil
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
}

// ErrEnded is the error of a wait for a process that has ended.
var ErrEnded = errors.New("it has ended")

// Wait waits a moment. It is ErrEnded if the process ends meanwhile.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-time.After(pollPeriod):
		return nil
	case <-p.dead:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
