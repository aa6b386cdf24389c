// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
)

func limited(t *testing.T, budget int64, limits reads.Limits) context.Context {
	t.Helper()
	_, ctx, remove := reads.NewTable(reads.NewBudget(budget)).Add(t.Context(), reads.Info{}, limits)
	t.Cleanup(remove)
	return ctx
}

// response returns a read response of the given numbers of series.
func response(series ...int) *prompb.ReadResponse {
	resp := &prompb.ReadResponse{}
	for _, n := range series {
		r := &prompb.QueryResult{}
		for i := range n {
			ts := &prompb.TimeSeries{Labels: []prompb.Label{{Name: "i", Value: strconv.Itoa(i)}, {Name: "x", Value: strings.Repeat("ab", i%500)}}}
			for j := range i % 7 {
				ts.Samples = append(ts.Samples, prompb.Sample{Value: float64(j * i), Timestamp: int64(i)})
			}
			r.Timeseries = append(r.Timeseries, ts)
		}
		resp.Results = append(resp.Results, r)
	}
	return resp
}

func TestEncodeReadResponseGivesUpstreamsBytes(t *testing.T) {
	large := response(1)
	large.Results[0].Timeseries[0].Samples = make([]prompb.Sample, 100000)
	for name, resp := range map[string]*prompb.ReadResponse{
		"nothing":           response(),
		"an empty result":   response(0),
		"one series":        response(1),
		"several results":   response(3, 0, 5),
		"many blocks":       response(3000, 1, 2000),
		"one series is big": large,
	} {
		t.Run(name, func(t *testing.T) {
			want, got := httptest.NewRecorder(), httptest.NewRecorder()
			require.NoError(t, EncodeReadResponse(resp, want))
			require.NoError(t, encodeReadResponse(limited(t, 1<<30, reads.Limits{}), resp, got))
			require.Equal(t, want.Body.Bytes(), got.Body.Bytes())
			got = httptest.NewRecorder()
			require.NoError(t, encodeReadResponse(t.Context(), resp, got))
			require.Equal(t, want.Body.Bytes(), got.Body.Bytes())
		})
	}
}

func TestEncodeReadResponseRefusesAnAnswerThatIsTooLarge(t *testing.T) {
	ctx := limited(t, 1<<30, reads.Limits{ResponseBytes: 1000})
	rec := httptest.NewRecorder()
	require.ErrorContains(t, encodeReadResponse(ctx, response(500), rec), "--guard.response-max-bytes=1000")
	require.Zero(t, rec.Body.Len())
	require.Equal(t, reads.ReasonTooLarge, reads.Stopped(ctx).Reason)
}

func TestEncodeReadResponseStopsWhenTheClientHasLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(limited(t, 1<<30, reads.Limits{}))
	cancel()
	require.ErrorIs(t, encodeReadResponse(ctx, response(5000), httptest.NewRecorder()), context.Canceled)
}

// fixedSet is a set of series with n samples each.
func fixedSet(series, n int) storage.SeriesSet {
	result := &prompb.QueryResult{}
	for i := range series {
		result.Timeseries = append(result.Timeseries, &prompb.TimeSeries{
			Labels:  prompb.FromLabels(labels.FromStrings("i", strconv.Itoa(i)), nil),
			Samples: make([]prompb.Sample, n),
		})
	}
	return FromQueryResult(false, result)
}

func TestAccountedSamplesAreThoseOfTheSet(t *testing.T) {
	want, _, err := ToQueryResult(fixedSet(50, 300), 0)
	require.NoError(t, err)
	got, _, err := ToQueryResult(accountSamples(limited(t, 1<<30, reads.Limits{}), fixedSet(50, 300)), 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	set := fixedSet(1, 1)
	require.Same(t, set, accountSamples(t.Context(), set))
}

func TestSamplesBeyondTheBudgetStopTheRead(t *testing.T) {
	ctx := limited(t, 1<<20, reads.Limits{})
	_, _, err := ToQueryResult(accountSamples(ctx, fixedSet(100, 1000)), 0)
	require.ErrorContains(t, err, reads.BudgetFlag)
	require.Equal(t, reads.ReasonTooLarge, reads.Stopped(ctx).Reason)
}

func TestSamplesOfSmallQueriesAreAccountedFor(t *testing.T) {
	table := reads.NewTable(reads.NewBudget(1 << 30))
	_, ctx, remove := table.Add(t.Context(), reads.Info{}, reads.Limits{})
	defer remove()
	for range 3 {
		_, _, err := ToQueryResult(accountSamples(ctx, fixedSet(2, 5)), 0)
		require.NoError(t, err)
	}
	require.EqualValues(t, 3*2*5*floatBytes, table.List()[0].ReservedBytes)
}

func TestReadRequestThatCostsTooMuchIsRefusedBeforeItsFirstSeries(t *testing.T) {
	many := &prompb.ReadRequest{Queries: make([]*prompb.Query, maxReadQueries+1)}
	regex := &prompb.ReadRequest{Queries: []*prompb.Query{{Matchers: []*prompb.LabelMatcher{
		{Type: prompb.LabelMatcher_EQ, Name: "a", Value: "equal"},
		{Type: prompb.LabelMatcher_RE, Name: "b", Value: "x{1000}"},
	}}}}
	var seen []string
	ctx := limited(t, 1<<30, reads.Limits{CheckText: func(texts ...string) error {
		seen = append(seen, texts...)
		if len(texts) > 0 {
			return errors.New("too large a regex")
		}
		return nil
	}})
	require.ErrorContains(t, checkReadRequest(ctx, many), "1001, and at most")
	require.NoError(t, checkReadRequest(ctx, &prompb.ReadRequest{}))
	require.ErrorContains(t, checkReadRequest(ctx, regex), "too large a regex")
	require.Equal(t, []string{`{x=~"x{1000}"}`}, seen)
	require.Equal(t, reads.ReasonText, reads.Stopped(ctx).Reason)
	require.NoError(t, checkReadRequest(t.Context(), many), "only limited requests are looked at")
}
