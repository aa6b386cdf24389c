// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remoteread

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promguard/promguard/internal/querylimit"
)

const maxBytes = 1 << 20

// whole has every field there is.
func whole() *prompb.ReadRequest {
	return &prompb.ReadRequest{
		Queries: []*prompb.Query{
			{
				StartTimestampMs: -5, EndTimestampMs: math.MaxInt64,
				Matchers: []*prompb.LabelMatcher{
					{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "up"},
					{Type: prompb.LabelMatcher_NEQ, Name: "by", Value: ""},
					{Type: prompb.LabelMatcher_RE, Name: "größe.x", Value: "a\"\\d\n|b"},
					{Type: prompb.LabelMatcher_NRE, Name: "job", Value: "\x00\u2028"},
				},
				Hints: &prompb.ReadHints{StepMs: 1, Func: "rate", StartMs: 2, EndMs: 3, Grouping: []string{"a", "", "b"}, By: true, RangeMs: 4},
			},
			{StartTimestampMs: 1, Matchers: []*prompb.LabelMatcher{{Name: "a", Value: "b"}}, Hints: &prompb.ReadHints{}},
		},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES, 7},
	}
}

func encode(t testing.TB, r *prompb.ReadRequest) []byte {
	t.Helper()
	b, err := proto.Marshal(r)
	require.NoError(t, err)
	return snappy.Encode(nil, b)
}

// upstreamView is what Prometheus's own handler reads, without fields that nobody
// knows.
func upstreamView(t testing.TB, body []byte) (*prompb.ReadRequest, error) {
	t.Helper()
	r, err := remote.DecodeReadRequest(&http.Request{Body: io.NopCloser(bytes.NewReader(body))})
	if err != nil {
		return nil, err
	}
	r.XXX_unrecognized = nil
	for _, q := range r.Queries {
		q.XXX_unrecognized = nil
		if q.Hints != nil {
			q.Hints.XXX_unrecognized = nil
		}
		for _, m := range q.Matchers {
			m.XXX_unrecognized = nil
		}
	}
	return r, nil
}

// requireSameView checks that Prometheus reads the same of what promguard sends on
// as of what came, and that the selectors which promguard judges are those.
func requireSameView(t testing.TB, body []byte, r *Request) {
	t.Helper()
	want, err := upstreamView(t, body)
	require.NoError(t, err, "promguard accepts what Prometheus does not")
	got, err := upstreamView(t, r.Body())
	require.NoError(t, err)
	require.Equal(t, want, got)
	for i, text := range r.Selectors() {
		judged, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
		if err != nil {
			continue // Refused.
		}
		read, err := remote.FromLabelMatchers(want.Queries[i].Matchers)
		require.NoError(t, err, text)
		require.Equal(t, texts(read), texts(judged))
	}
}

func texts(ms []*labels.Matcher) []string {
	list := []string{}
	for _, m := range ms {
		list = append(list, m.String())
	}
	return list
}

func TestEveryFieldOfARequestArrives(t *testing.T) {
	body := encode(t, whole())
	r, err := Decode(body, maxBytes)
	require.NoError(t, err)
	requireSameView(t, body, r)
	require.Equal(t, []string{
		`{__name__="up",by!="","größe.x"=~"a\"\\d\n|b",job!~"\x00\u2028"}`,
		`{a="b"}`,
	}, r.Selectors())
	require.Equal(t, []querylimit.Window{
		querylimit.NewWindow(-5, math.MaxInt64), querylimit.NewWindow(0, 0),
	}, r.Windows(), "hints can only widen it")
	require.Equal(t, time.UnixMilli(1<<53), r.Windows()[0].End)

	empty, err := Decode(encode(t, &prompb.ReadRequest{}), maxBytes)
	require.NoError(t, err)
	require.Empty(t, empty.Selectors())
}

func TestUnknownFieldsAreLeftOut(t *testing.T) {
	b, err := proto.Marshal(whole())
	require.NoError(t, err)
	b = protowire.AppendTag(b, 3, protowire.VarintType)
	b = protowire.AppendVarint(b, 7)
	b = protowire.AppendTag(b, 900, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, 7)
	r, err := Decode(snappy.Encode(nil, b), maxBytes)
	require.NoError(t, err)
	require.Equal(t, encode(t, whole()), r.Body())
}

func TestWhatCannotBeJudgedOrIsTooMuchIsRefused(t *testing.T) {
	message := func(number protowire.Number, parts ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), bytes.Join(parts, nil))
	}
	number := func(number protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
	}
	up := message(3, message(2, []byte("__name__")), message(3, []byte("up")))
	for name, tc := range map[string]struct {
		body []byte // before compression
		want string
	}{
		"no name":                   {message(1, message(3, message(3, []byte("a")))), "without a label name"},
		"an unknown type":           {message(1, message(3, number(1, 4), message(2, []byte("a")))), "unknown type 4"},
		"no UTF-8":                  {message(1, message(3, message(2, []byte("a\xff")))), "not UTF-8"},
		"a group":                   {append(protowire.AppendTag(nil, 1, protowire.StartGroupType), protowire.AppendTag(nil, 1, protowire.EndGroupType)...), "wrong wireType"},
		"a number for a message":    {number(1, 7), "wrong wireType = 0"},
		"a message for a number":    {message(1, message(1, up)), "wrong wireType = 2"},
		"a number beyond all":       {append(protowire.AppendVarint(nil, (1<<35|1)<<3), 0), "field number"},
		"cut off":                   {message(1, up)[:8], "unexpected EOF"},
		"too many queries":          {bytes.Repeat(message(1), querylimit.MaxReadQueries+1), "more than 1000 queries"},
		"too many matchers":         {message(1, bytes.Repeat(up, maxMatchers+1)), "more than 10000 matchers"},
		"too many labels in hints":  {message(1, message(4, bytes.Repeat(message(5), maxGroupings+1))), "more than 10000 labels"},
		"too many types of answers": {message(2, make([]byte, maxTypes+1)), "more than 16 types"},
		"a negative type of answer": {number(2, math.MaxUint64), "an unknown one"},
	} {
		_, err := Decode(snappy.Encode(nil, tc.body), maxBytes)
		require.ErrorContains(t, err, tc.want, name)
	}
	_, err := Decode([]byte("no snappy"), maxBytes)
	require.ErrorContains(t, err, "snappy")
	_, err = Decode(encode(t, whole()), 20)
	require.ErrorIs(t, err, ErrTooLong)
}

// TestOfTwoValuesTheOneThatPrometheusTakesIsJudged and is all that is sent on.
func TestOfTwoValuesTheOneThatPrometheusTakesIsJudged(t *testing.T) {
	b, err := proto.Marshal(whole())
	require.NoError(t, err)
	again, err := proto.Marshal(&prompb.Query{StartTimestampMs: 9, Hints: &prompb.ReadHints{StartMs: 7}})
	require.NoError(t, err)
	query, err := proto.Marshal(whole().Queries[0])
	require.NoError(t, err)
	b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), append(query, again...))
	body := snappy.Encode(nil, b)
	r, err := Decode(body, maxBytes)
	require.NoError(t, err)
	requireSameView(t, body, r)
	require.Equal(t, querylimit.NewWindow(7, math.MaxInt64), r.Windows()[2])
}

func TestClaimedLengthTakesNoMemory(t *testing.T) {
	claims := protowire.AppendVarint(nil, math.MaxUint32)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Decode(claims, maxBytes)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrTooLong)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "it claims 4 GiB")
}

func FuzzDecode(f *testing.F) {
	for _, r := range []*prompb.ReadRequest{whole(), {}, {Queries: []*prompb.Query{{}}}} {
		b, err := proto.Marshal(r)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte(strings.Repeat("\x0a\x00", 5)))
	f.Fuzz(func(t *testing.T, b []byte) {
		body := snappy.Encode(nil, b)
		r, err := Decode(body, maxBytes)
		if err != nil {
			return
		}
		requireSameView(t, body, r)
	})
}

// FuzzCompressed looks at the frame around the message.
func FuzzCompressed(f *testing.F) {
	f.Add(encode(f, whole()))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := Decode(body, maxBytes); err == nil {
			requireSameView(t, body, r)
		}
	})
}
