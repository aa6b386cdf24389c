// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExternalLabelsMakeNoRemoteReadSelective(t *testing.T) {
	for _, tc := range []struct {
		labels   []string // equality_labels
		selector string
		read     bool // passes as a remote read
		federate bool
	}{
		{nil, `{__name__="up"}`, true, true},
		{nil, `{__name__=~"up|down"}`, true, true},
		{nil, `{__name__=~"job:.+"}`, true, true},
		{nil, `{cluster="eu1"}`, false, true},
		{nil, `{cluster=~"eu1|eu2"}`, false, true},
		{[]string{"job"}, `{job="api"}`, true, true},
		{[]string{"job"}, `{cluster="eu1"}`, false, false},
		{nil, `{le!=""}`, false, false},
	} {
		opts := DefaultOptions()
		opts.EqualityLabels = tc.labels
		set, err := NewRuleset(RulesetOptions{Global: opts})
		require.NoError(t, err)
		for endpoint, passes := range map[string]bool{EndpointRead: tc.read, EndpointFederate: tc.federate} {
			v, err := set.Judge(NewAnalyzer(0), &Request{Endpoint: FindEndpoint(endpoint), Texts: []string{tc.selector}, Limit: -1}, time.Now())
			require.NoError(t, err)
			require.Equal(t, passes, v.Refusals.Err() == nil, "%s of %s with %v", endpoint, tc.selector, tc.labels)
		}
	}
}

func TestWindowsOfARemoteReadAreJudgedEach(t *testing.T) {
	now := time.UnixMilli(1e12)
	p := newPolicy(t, func(o *Options) {
		o.Range = Bound{ModeEnforce, int(time.Hour)}
		o.Oldest = Bound{ModeEnforce, int(24 * time.Hour)}
	})
	ago := func(from, to time.Duration) Window {
		return NewWindow(now.Add(-from).UnixMilli(), now.Add(-to).UnixMilli())
	}
	for name, tc := range map[string]struct {
		windows []Window
		want    []string
	}{
		"none":                  {nil, nil},
		"within":                {[]Window{ago(time.Hour, 0), ago(24*time.Hour, 23*time.Hour)}, nil},
		"one is too long":       {[]Window{ago(time.Hour, 0), ago(3*time.Hour, time.Hour)}, []string{LimitRange}},
		"one is too old":        {[]Window{ago(time.Hour, 0), ago(25*time.Hour, 24*time.Hour)}, []string{LimitOldest}},
		"all time":              {[]Window{NewWindow(math.MinInt64, math.MaxInt64)}, []string{LimitRange, LimitOldest}},
		"ends before it begins": {[]Window{NewWindow(math.MaxInt64, math.MinInt64)}, nil},
	} {
		var got []string
		for _, r := range p.check(&asked{Request: &Request{Endpoint: FindEndpoint(EndpointRead), Windows: tc.windows}, now: now}) {
			got = append(got, r.Limit)
		}
		require.Equal(t, tc.want, got, name)
	}
}

func TestLongWindowsAreRefusedWhereNobodyKnowsTheIntervals(t *testing.T) {
	set, err := NewRuleset(RulesetOptions{Global: DefaultOptions()})
	require.NoError(t, err)
	for text, passes := range map[string]bool{
		"avg_over_time(up[90d])": true, "avg_over_time(up[200d])": false, "up[30d]": true, "up[60d]": false, "max_over_time(rate(up[5m])[30d:1m])": true,
	} {
		v, err := set.Judge(NewAnalyzer(0), &Request{Endpoint: FindEndpoint("query"), Texts: []string{text}, Limit: -1}, time.Now())
		require.NoError(t, err)
		require.Equal(t, passes, v.Refusals.Err() == nil, text)
	}
}

func TestDefaultStepOfSubqueriesIsThatOfTheServer(t *testing.T) {
	opts := DefaultOptions()
	opts.Samples = Bound{ModeEnforce, 61 + 1 + 61}
	set, err := NewRuleset(RulesetOptions{Global: opts})
	require.NoError(t, err)
	for step, passes := range map[time.Duration]bool{0: true, time.Minute: true, 59 * time.Second: false} {
		v, err := set.Judge(NewAnalyzer(0), &Request{
			Endpoint: FindEndpoint("query"), Texts: []string{"max_over_time(up[1h:])"}, Limit: -1, SubqueryStep: step,
		}, time.Now())
		require.NoError(t, err)
		require.Equal(t, passes, v.Refusals.Err() == nil, step)
	}
}
