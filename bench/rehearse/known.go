// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/rules/estimate"
	"github.com/promguard/promguard/internal/rules/source"
)

// known is what a server says of itself, for which policies and drop rules are judged.
type known struct {
	Head         *querylimit.Head
	Lookback     time.Duration
	SubqueryStep time.Duration
	Unknown      []string // functions that the server knows, and the parser does not
	Saves        *estimate.Estimate
}

// onRecording is what a server on a recording may be asked: nobody else asks it.
var onRecording = promapi.Budget{Requests: 10_000, Total: 3 * time.Minute, Timeout: time.Minute, Series: 5_000_000, Bytes: 1 << 30}

// ofStock asks the stock server on the recording.
func (r *rehearsal) ofStock(ctx context.Context) (*known, error) {
	k, err := step(r, "series", append(slices.Clone(r.inputs), r.Profile, r.Interval, r.at), func() (*known, error) {
		s, err := r.server(ctx, stockServer)
		if err != nil {
			return nil, err
		}
		api, err := promapi.New(s.URL, &http.Transport{}, onRecording)
		if err != nil {
			return nil, err
		}
		defer api.Close()
		api.As(r.at)
		return r.ofServer(ctx, s.URL, api)
	})
	if err == nil {
		k.Head.Memory, k.Head.Resident = r.limit, 0
		k.Saves.Source = "the recording"
	}
	return k, err
}

// ofServer asks a server for its series, and counts what drop rules save of them.
func (r *rehearsal) ofServer(ctx context.Context, address string, api *promapi.Client) (*known, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	pool := upstream.NewPool(upstream.Options{
		URLs: []*url.URL{u}, Kind: upstream.KindPrometheus, Probe: upstream.ProbeWarn, Transport: r.transport(),
		Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
	})
	if err := pool.Check(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	a := pool.Assumed()
	k := &known{Head: pool.Head(), Lookback: a.Lookback, SubqueryStep: a.SubqueryStep, Unknown: a.UnknownPromQL}
	if k.Head == nil {
		return nil, fmt.Errorf("%s does not tell its series", u.Redacted())
	}
	if k.Saves, err = estimate.OfServer(ctx, r.Profile, api, r.Interval); err != nil {
		return nil, err
	}
	return k, ctx.Err()
}

func (r *rehearsal) transport() http.RoundTripper {
	if r.LiveTransport != nil {
		return r.LiveTransport
	}
	return &http.Transport{}
}

// liveRules adds the rules that the live server evaluates, unless files of them are
// given.
func (r *rehearsal) liveRules(ctx context.Context) error {
	if slices.ContainsFunc(r.Found.Expressions, func(e source.Expression) bool { return e.Kind == source.KindAlert || e.Kind == source.KindRecord }) {
		return nil
	}
	groups, err := r.Live.RuleGroups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		type rule map[string]any
		var rules []rule
		for _, of := range g.Rules {
			name := "record"
			if of.Type == "alerting" {
				name = "alert"
			}
			out := rule{name: of.Name, "expr": of.Query}
			if len(of.Labels) > 0 {
				out["labels"] = of.Labels
			}
			if len(of.Annotations) > 0 && name == "alert" {
				out["annotations"] = of.Annotations
			}
			rules = append(rules, out)
		}
		text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": g.Name, "rules": rules}}})
		if err != nil {
			return err
		}
		r.Found.Add(source.RuleText(g.File, text))
	}
	return nil
}
