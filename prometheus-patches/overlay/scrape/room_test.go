// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package scrape

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gogo/protobuf/proto"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/ingest"
	dto "github.com/prometheus/prometheus/prompb/io/prometheus/client"
)

// fakeGate has a limit and so many bytes that can be taken.
type fakeGate struct {
	SeriesGate
	limit, left int64
}

func (g *fakeGate) Limit() int64     { return g.limit }
func (g *fakeGate) Give(bytes int64) { g.left += bytes }
func (g *fakeGate) Take(bytes int64) bool {
	if bytes > g.left {
		return false
	}
	g.left -= bytes
	return true
}

func withRoom(limit, left int64) func(*scrapeLoop) {
	return func(sl *scrapeLoop) { sl.seriesGate = &fakeGate{sl.seriesGate, limit, left} }
}

func TestABodyBeyondItsPartOfTheMemoryFailsTheScrapeAsOneBeyondABodySizeLimit(t *testing.T) {
	const limit = 256 << 20
	line := "a{i=\"%07d\"} 1\n"
	for name, c := range map[string]struct {
		body string
		left int64
		want string
	}{
		"it fits":              {strings.Repeat(fmt.Sprintf(line, 1), 1000), limit, ""},
		"an eighth":            {strings.Repeat("#"+strings.Repeat("x", 1<<19)+"\n", 65), limit, "more than 33554432 bytes, an eighth of the memory limit"},
		"a line":               {"# HELP a " + strings.Repeat("x", 3<<20) + "\n", limit, "a line or metric of more than 1048576 bytes"},
		"a long line is fine":  {"# HELP a " + strings.Repeat("x", 1<<19) + "\n", limit, ""},
		"no memory":            {strings.Repeat("#"+strings.Repeat("x", 1<<19)+"\n", 10), 2 << 20, "and no memory for more"},
		"small, and no memory": {strings.Repeat(fmt.Sprintf(line, 1), 1000), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefusing(t, ingest.Options{}, withRoom(limit, c.left))
			require.True(t, has(r.scrape("known 1\n"), `{__name__="known"}`))
			samples := r.scrape("known 1\n" + c.body)
			gate := r.sl.seriesGate.(*fakeGate)
			if c.want == "" {
				require.EqualValues(t, 1, samples[`{__name__="up"}`])
				return
			}
			require.EqualValues(t, 0, samples[`{__name__="up"}`])
			require.EqualValues(t, 0, samples[`{__name__="scrape_samples_scraped"}`])
			require.True(t, isStale(samples, `{__name__="known"}`), "as when a scrape fails in upstream")
			require.GreaterOrEqual(t, gate.left, c.left-metaBytes-100, "what the body took is given back")

			_, err := io.Copy(r.sl.newBody(nil), strings.NewReader(c.body))
			if err == nil {
				b := r.sl.newBody([]byte(c.body))
				_, err = b.check("text/plain", nil)
			}
			require.ErrorIs(t, err, errBodySizeLimit)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "let the target expose less, or raise --guard.memory-limit")
			require.True(t, has(r.scrape("known 1\n"), `{__name__="known"}`))
		})
	}
}

// A target whose body was as large before is no reason to fail, however short memory is.
func TestABodyThatIsAsLargeAsTheLastOneIsReadWithoutMemory(t *testing.T) {
	body := strings.Repeat("a 1\n", 1<<20)
	r := newRefusing(t, ingest.Options{}, withRoom(1<<30, 1<<30))
	require.EqualValues(t, 1, r.scrape(body)[`{__name__="up"}`])
	r.sl.seriesGate.(*fakeGate).left = 0
	require.EqualValues(t, 1, r.scrape(body)[`{__name__="up"}`])
	require.EqualValues(t, 0, r.scrape(body + body)[`{__name__="up"}`])
}

func TestABodyIsReadAsItIsAndTakesLittleMoreThanItself(t *testing.T) {
	sl, _ := newTestScrapeLoop(t)
	for _, n := range []int{0, 1, 511, 512, 513, 1 << 20, 10<<20 + 7} {
		want := bytes.Repeat([]byte{byte(n)}, n)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(want), "in halves": iotest.HalfReader(bytes.NewReader(want)), "written": struct{ io.Reader }{iotest.DataErrReader(bytes.NewReader(want))}} {
			b := sl.newBody(make([]byte, 0, 100))
			m, err := io.Copy(b, r)
			require.NoError(t, err)
			require.EqualValues(t, n, m)
			require.True(t, bytes.Equal(want, b.Bytes()), name)
			require.LessOrEqual(t, cap(b.b), max(2<<20, n+n/4+bytes.MinRead))
		}
	}
}

func family(t *testing.T, name, value string) string {
	b, err := proto.Marshal(&dto.MetricFamily{Name: name, Type: dto.MetricType_GAUGE, Metric: []dto.Metric{{
		Label: []dto.LabelPair{{Name: "l", Value: value}}, Gauge: &dto.Gauge{Value: 1},
	}}})
	require.NoError(t, err)
	return string(append(binary.AppendUvarint(nil, uint64(len(b))), b...))
}

func TestLongMetricsOfProtobufAreFound(t *testing.T) {
	long, short := family(t, "a", strings.Repeat("x", 2000)), family(t, "b", "x")
	require.True(t, hasLongMetric([]byte(short+long), 1000))
	require.False(t, hasLongMetric([]byte(short+short), 1000))
	require.False(t, hasLongMetric([]byte(long), 3000))
	for i := range long {
		hasLongMetric([]byte(long[:i]), 1000) // It ends.
	}
}

func FuzzLongMetric(f *testing.F) {
	f.Add([]byte{4, 0x22, 2, 0x0a, 0})
	f.Fuzz(func(_ *testing.T, b []byte) {
		hasLongMetric(b, 1)
		hasLongLine(b, 1)
	})
}

func TestMetadataOfATargetIsBoundedAndStaysWhenAScrapeFails(t *testing.T) {
	const limit = 64 << 20 // A megabyte is for metadata.
	r := newRefusing(t, ingest.Options{}, withRoom(limit, limit))
	help := strings.Repeat("h", 1000)
	for i := range 50 {
		var b strings.Builder
		b.WriteString("# HELP known what it is\n# TYPE known gauge\nknown 1\n")
		for j := range 100 {
			fmt.Fprintf(&b, "# HELP m_%d_%d %s\nm 1\n", i, j, help)
		}
		r.scrape(b.String())
		require.LessOrEqual(t, r.sl.cache.SizeMetadata(), limit/metaPart)
		m, ok := r.sl.cache.GetMetadata("known")
		require.True(t, ok)
		require.Equal(t, "what it is", m.Help)
	}
	for range 20 {
		r.scrape("}")
	}
	_, ok := r.sl.cache.GetMetadata("known")
	require.True(t, ok)
	names := 0
	for name := range r.sl.cache.metadata {
		names += len(name)
	}
	require.Equal(t, names, r.sl.cache.metaNames)
}
