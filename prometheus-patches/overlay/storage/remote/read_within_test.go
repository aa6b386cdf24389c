// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
)

func counted(t *testing.T, bounds storage.ReadBounds) (*accounttest.Account, context.Context) {
	t.Helper()
	return accounttest.New(t.Context(), bounds)
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
			_, ctx := counted(t, storage.ReadBounds{})
			require.NoError(t, encodeReadResponse(ctx, resp, got))
			require.Equal(t, want.Body.Bytes(), got.Body.Bytes())
			got = httptest.NewRecorder()
			require.NoError(t, encodeReadResponse(t.Context(), resp, got))
			require.Equal(t, want.Body.Bytes(), got.Body.Bytes())
		})
	}
}

func TestEncodeReadResponseRefusesAnAnswerThatIsTooLarge(t *testing.T) {
	_, ctx := counted(t, storage.ReadBounds{ResponseBytes: 1000})
	rec := httptest.NewRecorder()
	require.ErrorIs(t, encodeReadResponse(ctx, response(500), rec), accounttest.ErrRefused)
	require.Zero(t, rec.Body.Len())
}

func TestEncodeReadResponseStopsWhenTheClientHasLeft(t *testing.T) {
	account, ctx := counted(t, storage.ReadBounds{})
	account.Stop(context.Canceled)
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
	_, ctx := counted(t, storage.ReadBounds{})
	got, _, err := ToQueryResult(accountSamples(ctx, fixedSet(50, 300)), 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	set := fixedSet(1, 1)
	require.Same(t, set, accountSamples(t.Context(), set))
}

func TestSamplesBeyondTheBudgetStopTheRead(t *testing.T) {
	account, ctx := counted(t, storage.ReadBounds{})
	account.MaxUsed = 1 << 20
	_, _, err := ToQueryResult(accountSamples(ctx, fixedSet(100, 1000)), 0)
	require.ErrorIs(t, err, accounttest.ErrRefused)
}

func TestSamplesOfSmallQueriesAreAccountedFor(t *testing.T) {
	account, ctx := counted(t, storage.ReadBounds{})
	for range 3 {
		_, _, err := ToQueryResult(accountSamples(ctx, fixedSet(2, 5)), 0)
		require.NoError(t, err)
	}
	require.EqualValues(t, 3*2*5*floatBytes, account.Used)
}
