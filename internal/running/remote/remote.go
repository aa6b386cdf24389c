// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote asks a promguard, or a patched Prometheus, which requests run and which
// cost most, and ends some.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/running"
	"github.com/promguard/promguard/internal/screen"
)

const (
	proxyQueries  = "promguard/queries"
	serverQueries = "status/guard/queries"
	proxyTop      = "promguard/top"
	serverTop     = "status/guard/top"

	// maxBytes bounds the answers, which have a few KB for each request that runs.
	maxBytes = 64 << 20
)

// Filters say which requests are meant, by the names of running.Filters.
type Filters map[string]string

func (f Filters) params() url.Values {
	params := url.Values{}
	for name, value := range f {
		if value != "" {
			params.Set(name, value)
		}
	}
	return params
}

// List returns the requests that run and that all filters hold for, those that hold or
// will take most first.
func List(ctx context.Context, s *promapi.Server, f Filters) ([]running.Query, error) {
	list, _, err := list(ctx, s, f)
	return list, err
}

// list also says whether it is a promguard that answers.
func list(ctx context.Context, s *promapi.Server, f Filters) (found []running.Query, isProxy bool, err error) {
	found, err = promapi.Ask[[]running.Query](ctx, s, http.MethodGet, proxyQueries, f.params(), maxBytes)
	if isProxy = !isCode(err, http.StatusNotFound); !isProxy {
		found, err = listServer(ctx, s, f)
	}
	slices.SortStableFunc(found, func(a, b running.Query) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return found, isProxy, err
}

// elsewhere is the error of a server that has no such thing.
func elsewhere(s *promapi.Server, what string) error {
	return fmt.Errorf("%s has no %s: give the --web.telemetry-address of promguard, or the --prometheus.url of a patched Prometheus (before a stock one, ask promguard)", s, what)
}

func isCode(err error, code int) bool {
	answered, ok := errors.AsType[*promapi.StatusError](err)
	return ok && answered.Code == code
}

// read is a request as a patched Prometheus lists it.
type read struct {
	ID            uint64            `json:"id"`
	State         string            `json:"state"`
	Endpoint      string            `json:"endpoint"`
	Expressions   []string          `json:"expressions"`
	Client        string            `json:"client"`
	UserAgent     string            `json:"userAgent"`
	Origin        map[string]string `json:"origin"`
	Started       time.Time         `json:"started"`
	Series        int64             `json:"series"`
	ReservedBytes int64             `json:"reservedBytes"`
	AllowedBytes  int64             `json:"allowedBytes"`
}

func (r *read) query() running.Query {
	q := running.Query{
		ID: strconv.FormatUint(r.ID, 10), Begun: r.Started, Sent: r.State == "running", Endpoint: strings.TrimPrefix(r.Endpoint, "/api/v1/"),
		User: r.Origin["X-Grafana-User"], Dashboard: r.Origin["X-Dashboard-Uid"], Panel: r.Origin["X-Panel-Id"],
		Client: r.Client, UserAgent: r.UserAgent, Bytes: r.ReservedBytes, Allowed: r.AllowedBytes, Series: r.Series,
	}
	if r.Origin["FromAlert"] == "true" {
		q.Alert = cmp.Or(r.Origin["X-Rule-Name"], r.Origin["X-Rule-Uid"], "rule of Grafana's")
	}
	if len(r.Expressions) > 0 {
		q.Text = r.Expressions[0]
	}
	return q
}

func listServer(ctx context.Context, s *promapi.Server, f Filters) ([]running.Query, error) {
	for _, name := range []string{"fingerprint", "tenant"} {
		if f[name] != "" {
			return nil, fmt.Errorf("%s is no promguard, and knows no %s: use --id, --user or --dashboard", s, name)
		}
	}
	reads, err := promapi.Ask[[]read](ctx, s, http.MethodGet, serverQueries, nil, maxBytes)
	if isCode(err, http.StatusNotFound) {
		return nil, elsewhere(s, "list of queries")
	}
	found := []running.Query{}
	for i := range reads {
		if q := reads[i].query(); q.Is(func(name string) string { return f[name] }) {
			found = append(found, q)
		}
	}
	return found, err
}

// atOnce is how many a server is told to end at a time: it answers when one has ended.
const atOnce = 16

// End ends the requests that have one of the ids, if there are such, and that all filters
// hold for, and returns them. None is an error.
func End(ctx context.Context, s *promapi.Server, ids []string, f Filters) ([]running.Query, error) {
	found, isProxy, err := list(ctx, s, f)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		found, err = withIDs(found, ids)
	} else if len(found) == 0 {
		err = errors.New("no request that runs is so")
	}
	var all errgroup.Group
	all.SetLimit(atOnce)
	ended := make([]bool, len(found))
	for i := range found {
		all.Go(func() error {
			err := end(ctx, s, isProxy, found[i].ID)
			if isCode(err, http.StatusNotFound) { // It has ended by itself.
				return nil
			}
			ended[i] = err == nil
			return err
		})
	}
	err = errors.Join(err, all.Wait())
	done := []running.Query{}
	for i := range found {
		if ended[i] {
			done = append(done, found[i])
		}
	}
	return done, err
}

func end(ctx context.Context, s *promapi.Server, isProxy bool, id string) (err error) {
	if isProxy {
		_, err = promapi.Ask[[]running.Query](ctx, s, http.MethodDelete, proxyQueries, url.Values{"id": {id}}, maxBytes)
	} else {
		_, err = promapi.Ask[read](ctx, s, http.MethodDelete, serverQueries+"/"+id, nil, maxBytes)
	}
	return err
}

// Top returns which queries cost most: window is 5m or 1h, by is time or bytes.
func Top(ctx context.Context, s *promapi.Server, window, by string, limit int) (*screen.TopReport, error) {
	params := url.Values{"window": {window}, "by": {by}, "limit": {strconv.Itoa(limit)}}
	report, err := promapi.Ask[screen.TopReport](ctx, s, http.MethodGet, proxyTop, params, maxBytes)
	if isCode(err, http.StatusNotFound) {
		report, err = promapi.Ask[screen.TopReport](ctx, s, http.MethodGet, serverTop, params, maxBytes)
	}
	if isCode(err, http.StatusNotFound) {
		return nil, elsewhere(s, "top queries")
	}
	return &report, err
}

// withIDs returns those that have one of the ids, and an error that says which ids none has.
func withIDs(list []running.Query, ids []string) (found []running.Query, err error) {
	var errs []error
	for _, id := range ids {
		i := slices.IndexFunc(list, func(q running.Query) bool { return q.ID == id })
		if i < 0 {
			errs = append(errs, fmt.Errorf("no request with id %s runs", id))
			continue
		}
		found = append(found, list[i])
	}
	return found, errors.Join(errs...)
}
