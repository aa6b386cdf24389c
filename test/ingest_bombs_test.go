// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gosnappy "github.com/golang/snappy"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// bomb is a body that is scraped or pushed: rows of a family, each with so many labels (or
// buckets, points, exemplars) of so many bytes.
type bomb struct {
	family               string
	rows, labels, length int
	gzip                 bool
	times                int // So often at the same time, if it is pushed.
}

// size is how many bytes of the body there are at least, not compressed.
func (b *bomb) size() int {
	if bombFamilies[b.family].contentType == v2Type {
		return b.length + 16*b.rows + 2*b.rows*b.labels
	}
	return b.rows * max(1, b.labels) * (b.length + 8)
}

// family is how the rows of a bomb are written. Those that are scraped have no path.
type family struct {
	path, contentType string
	write             func(w *bytes.Buffer, b *bomb, row int)
	end               string
}

const (
	textType = "text/plain; version=0.0.4"
	openType = "application/openmetrics-text; version=1.0.0"
	pbType   = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	v1Type   = "application/x-protobuf"
	v2Type   = "application/x-protobuf;proto=io.prometheus.write.v2.Request"

	// mostScraped and mostPushed are the most bytes of a body; handlers take no more.
	mostScraped = 256 << 20
	mostPushed  = 31 << 20
)

// filler returns a text of n bytes, or somewhat more, that is none of another number.
func filler(i, n int) string {
	s := "x" + strconv.Itoa(i)
	return s + strings.Repeat("x", max(0, n-len(s)))
}

// pb appends a message, and fields of one.
func pb(w *bytes.Buffer, field protowire.Number, value []byte) {
	w.Write(protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), value))
}

func pbMessage(write func(w *bytes.Buffer)) []byte {
	var w bytes.Buffer
	write(&w)
	return w.Bytes()
}

func varint(w *bytes.Buffer, field protowire.Number, v uint64) {
	w.Write(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v))
}

// pair is a label as Prometheus's formats have it.
func pair(name, value string) []byte {
	return pbMessage(func(w *bytes.Buffer) {
		pb(w, 1, []byte(name))
		pb(w, 2, []byte(value))
	})
}

func each(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

func now() uint64 { return uint64(time.Now().UnixMilli()) }

func seriesText(value, exemplar string) func(w *bytes.Buffer, b *bomb, row int) {
	return func(w *bytes.Buffer, b *bomb, row int) {
		w.WriteString(filler(row, 1) + "_total{")
		each(b.labels, func(i int) { fmt.Fprintf(w, "%s=%q,", filler(i, 1), filler(row, b.length)) })
		w.WriteString("} " + value + exemplar + "\n")
	}
}

// metricOf is a family of protobuf with one metric, which has the label row.
func metricOf(kind uint64, write func(w *bytes.Buffer, b *bomb)) func(w *bytes.Buffer, b *bomb, row int) {
	return func(w *bytes.Buffer, b *bomb, row int) {
		family := pbMessage(func(w *bytes.Buffer) {
			pb(w, 1, []byte("pb"))
			varint(w, 3, kind)
			pb(w, 4, pbMessage(func(w *bytes.Buffer) {
				pb(w, 1, pair("row", strconv.Itoa(row)))
				write(w, b)
			}))
		})
		w.Write(protowire.AppendBytes(nil, family))
	}
}

// histogramOf is a histogram of protobuf, as scraped, with a field again and again.
func histogramOf(field protowire.Number, value []byte) func(w *bytes.Buffer, b *bomb, row int) {
	return metricOf(4, func(w *bytes.Buffer, b *bomb) {
		pb(w, 7, pbMessage(func(w *bytes.Buffer) {
			varint(w, 1, 1)
			each(b.labels, func(int) { pb(w, field, value) })
		}))
	})
}

// writtenSeries is a series of remote write 1 with a field again and again.
func writtenSeries(field protowire.Number, value []byte) func(w *bytes.Buffer, b *bomb, row int) {
	return func(w *bytes.Buffer, b *bomb, row int) {
		pb(w, 1, pbMessage(func(w *bytes.Buffer) {
			pb(w, 1, pair("__name__", "rw"))
			pb(w, 1, pair("row", filler(row, b.length)))
			pb(w, 2, pbMessage(func(w *bytes.Buffer) { varint(w, 2, now()) }))
			each(b.labels, func(int) { pb(w, field, value) })
		}))
	}
}

// symbols are those of a request of remote write 2: three, a long one, and behind them one for
// each row.
func symbols(w *bytes.Buffer, b *bomb) {
	for _, s := range []string{"", "__name__", "rw2", filler(0, b.length)} {
		pb(w, 4, []byte(s))
	}
}

// series2Of is one of remote write 2.
func series2Of(write func(w *bytes.Buffer, b *bomb, row int)) func(w *bytes.Buffer, b *bomb, row int) {
	return func(w *bytes.Buffer, b *bomb, row int) {
		if row == 0 {
			symbols(w, b)
		}
		pb(w, 4, []byte("row"+strconv.Itoa(row)))
		pb(w, 5, pbMessage(func(w *bytes.Buffer) { write(w, b, row) }))
	}
}

func refs(list ...uint64) (packed []byte) {
	for _, ref := range list {
		packed = protowire.AppendVarint(packed, ref)
	}
	return packed
}

// otlpOf is a metric of OTLP: its points are a field of its data.
func otlpOf(data protowire.Number, point func(w *bytes.Buffer, b *bomb, i int)) func(w *bytes.Buffer, b *bomb, row int) {
	return func(w *bytes.Buffer, b *bomb, row int) {
		metric := pbMessage(func(w *bytes.Buffer) {
			pb(w, 1, []byte(filler(row, 1)))
			pb(w, data, pbMessage(func(w *bytes.Buffer) {
				each(b.labels, func(i int) { pb(w, 1, pbMessage(func(w *bytes.Buffer) { point(w, b, i) })) })
			}))
		})
		pb(w, 1, pbMessage(func(w *bytes.Buffer) { pb(w, 2, pbMessage(func(w *bytes.Buffer) { pb(w, 2, metric) })) }))
	}
}

func otlpAttribute(name, value string) []byte {
	return pbMessage(func(w *bytes.Buffer) {
		pb(w, 1, []byte(name))
		pb(w, 2, pbMessage(func(w *bytes.Buffer) { pb(w, 1, []byte(value)) }))
	})
}

func otlpTime(w *bytes.Buffer) {
	w.Write(protowire.AppendFixed64(protowire.AppendTag(nil, 3, protowire.Fixed64Type), uint64(time.Now().UnixNano())))
}

var bombFamilies = map[string]family{
	"text: series":     {"", textType, seriesText("1", ""), ""},
	"text: duplicates": {"", textType, func(w *bytes.Buffer, b *bomb, _ int) { w.WriteString(filler(0, b.length) + " 1\n") }, ""},
	"text: old":        {"", textType, seriesText("1 1000", ""), ""},
	"text: future":     {"", textType, seriesText("1 9007199254740992", ""), ""},
	"text: HELP": {"", textType, func(w *bytes.Buffer, b *bomb, row int) {
		fmt.Fprintf(w, "# HELP h%d_%d %s\n", row, now(), filler(row, b.length))
	}, "a 1\n"},
	"text: TYPE": {"", textType, func(w *bytes.Buffer, b *bomb, row int) {
		fmt.Fprintf(w, "# TYPE %s_%d counter\n", filler(row, b.length), now())
	}, "a 1\n"},
	"text: short lines": {"", textType, func(w *bytes.Buffer, _ *bomb, row int) {
		w.WriteString("a" + strconv.FormatInt(int64(row), 36) + " 1\n")
	}, ""},
	"OpenMetrics: exemplars": {"", openType, func(w *bytes.Buffer, b *bomb, row int) {
		seriesText("1", " # {a=\""+filler(row, b.length)+"\"} 1")(w, b, row)
	}, "# EOF\n"},
	"OpenMetrics: UNIT": {"", openType, func(w *bytes.Buffer, b *bomb, row int) {
		fmt.Fprintf(w, "# UNIT u%d_%[2]s %[2]s\n", row, filler(row, b.length))
	}, "a 1\n# EOF\n"},
	"protobuf: labels": {"", pbType, metricOf(1, func(w *bytes.Buffer, b *bomb) {
		each(b.labels, func(i int) { pb(w, 1, pair(filler(i, 1), filler(i, b.length))) })
		pb(w, 2, nil)
	}), ""},
	"protobuf: buckets":   {"", pbType, histogramOf(3, nil), ""},
	"protobuf: spans":     {"", pbType, histogramOf(12, []byte{0x10, 1}), ""},
	"protobuf: deltas":    {"", pbType, histogramOf(13, []byte{2}), ""},
	"protobuf: exemplars": {"", pbType, histogramOf(16, nil), ""},
	"remote write: series": {"write", v1Type, func(w *bytes.Buffer, b *bomb, row int) {
		writtenSeries(1, pair(filler(row, 1), filler(row, b.length)))(w, b, row)
	}, ""},
	"remote write: labels":     {"write", v1Type, writtenSeries(1, nil), ""},
	"remote write: samples":    {"write", v1Type, writtenSeries(2, []byte{}), ""},
	"remote write: exemplars":  {"write", v1Type, writtenSeries(3, nil), ""},
	"remote write: histograms": {"write", v1Type, writtenSeries(4, nil), ""},
	"remote write: nothing":    {"write", v1Type, func(w *bytes.Buffer, _ *bomb, _ int) { pb(w, 1, nil) }, ""},
	"remote write 2: one symbol, many series": {"write", v2Type, series2Of(func(w *bytes.Buffer, _ *bomb, row int) {
		pb(w, 1, refs(1, 2, 3, uint64(4+row)))
		pb(w, 2, pbMessage(func(w *bytes.Buffer) { varint(w, 2, now()-uint64(row)) }))
	}), ""},
	"remote write 2: one symbol, many labels": {"write", v2Type, series2Of(func(w *bytes.Buffer, b *bomb, _ int) {
		list := []uint64{1, 2}
		each(b.labels, func(int) { list = append(list, 3, 3) })
		pb(w, 1, refs(list...))
		pb(w, 2, pbMessage(func(w *bytes.Buffer) { varint(w, 2, now()) }))
	}), ""},
	"remote write 2: old samples": {"write", v2Type, series2Of(func(w *bytes.Buffer, b *bomb, _ int) {
		pb(w, 1, refs(1, 2, 1, 3))
		each(b.labels, func(int) { pb(w, 2, nil) })
	}), ""},
	"OTLP: points": {"otlp/v1/metrics", v1Type, otlpOf(5, func(*bytes.Buffer, *bomb, int) {}), ""},
	"OTLP: attributes": {"otlp/v1/metrics", v1Type, otlpOf(5, func(w *bytes.Buffer, b *bomb, i int) {
		pb(w, 7, otlpAttribute("a", filler(i, b.length)))
		otlpTime(w)
	}), ""},
	"OTLP: exponential histograms": {"otlp/v1/metrics", v1Type, otlpOf(10, func(w *bytes.Buffer, _ *bomb, i int) {
		pb(w, 1, otlpAttribute("a", strconv.Itoa(i)))
		otlpTime(w)
	}), ""},
	"OTLP: JSON": {"otlp/v1/metrics", "application/json", func(w *bytes.Buffer, _ *bomb, row int) {
		if row == 0 {
			w.WriteString(`{"resourceMetrics":[`)
		}
		w.WriteString("{},")
	}, "{}]}"},
}

// fit makes a bomb no larger than what anybody reads of it.
func (b *bomb) fit() *bomb {
	most := mostScraped
	if bombFamilies[b.family].path != "" {
		most = mostPushed
	}
	b.rows, b.labels, b.length, b.times = max(1, b.rows), max(1, b.labels), max(1, b.length), min(16, max(1, b.times))
	for b.size() > most {
		switch {
		case b.rows > 1:
			b.rows /= 2
		case b.labels > 1:
			b.labels /= 2
		default:
			b.length /= 2
		}
	}
	return b
}

// body returns what is sent, and its encoding.
func (b *bomb) body() (body []byte, encoding string) {
	f := bombFamilies[b.family]
	var out, row bytes.Buffer
	w, done := io.Writer(&out), func() {}
	if zip := b.gzip && f.path != "write"; zip {
		z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		w, done, encoding = z, func() { _ = z.Close() }, "gzip"
	}
	for i := range b.rows {
		f.write(&row, b, i)
		if row.Len() > 1<<20 || i == b.rows-1 {
			_, _ = w.Write(row.Bytes())
			row.Reset()
		}
	}
	_, _ = io.WriteString(w, f.end)
	done()
	if f.path == "write" {
		return gosnappy.Encode(nil, out.Bytes()), "snappy"
	}
	return out.Bytes(), encoding
}

func randomBomb(rng *rand.Rand) *bomb {
	names := slices.Sorted(maps.Keys(bombFamilies))
	pow := func(most int) int { return 1 << rng.IntN(most) }
	return (&bomb{names[rng.IntN(len(names))], pow(24), pow(22), pow(25), rng.IntN(2) == 0, pow(4)}).fit()
}

// mutated returns b with one of its measures changed.
func (b bomb) mutated(rng *rand.Rand) *bomb {
	measure := []*int{&b.rows, &b.labels, &b.length, &b.times}[rng.IntN(4)]
	if rng.IntN(2) == 0 {
		*measure *= 2
	} else {
		*measure = max(1, *measure/4)
	}
	if rng.IntN(4) == 0 {
		b.gzip = !b.gzip
	}
	return b.fit()
}

// worstBombs are those that a search has found to take most, of each kind.
var worstBombs = []bomb{
	{"text: series", 1 << 16, 4, 32, true, 1},
	{"text: series", 1 << 19, 4, 32, true, 1},
	{"text: series", 1, 1 << 16, 1, true, 1},
	{"text: series", 1, 1, 20 << 20, true, 1},
	{"text: short lines", 1 << 19, 1, 1, true, 1},
	{"text: HELP", 1 << 8, 1, 1 << 16, true, 1},
	{"protobuf: buckets", 1, 1 << 18, 1, true, 1},
	{"remote write: nothing", 1 << 21, 1, 1, false, 4},
	{"remote write: histograms", 1, 1 << 21, 1, false, 2},
	{"remote write: labels", 1, 2, 8 << 20, false, 8},
	{"remote write 2: one symbol, many series", 1 << 12, 1, 1 << 20, false, 2},
	{"remote write 2: one symbol, many labels", 1, 1 << 20, 1 << 20, false, 1},
	{"remote write 2: old samples", 1, 1 << 14, 1 << 15, false, 1},
	{"OTLP: points", 1, 1 << 22, 1, true, 4},
	{"OTLP: exponential histograms", 1, 1 << 17, 1, true, 2},
	{"OTLP: exponential histograms", 2, 1 << 20, 4, false, 2},
}

// bombed is a server with a steady target and one that exposes bombs.
type bombed struct {
	*server
	mu          sync.Mutex
	next        []byte // What the second target exposes next, once.
	header      http.Header
	begun, bomb int          // Scrapes of the second target, and which one it was that got a bomb.
	all         atomic.Int64 // Scrapes of the steady one.
}

const bombLimit = 200 << 20

func newBombed(t *testing.T) *bombed {
	s := &bombed{}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/steady" {
			s.all.Add(1)
			each(100, func(i int) { fmt.Fprintf(w, "steady{i=\"%d\"} %d\n", i, now()) })
			return
		}
		s.mu.Lock()
		body, header := s.next, s.header
		s.begun++
		if body != nil {
			s.next, s.bomb = nil, s.begun
		} else {
			body, header = []byte("nothing 1\n"), http.Header{"Content-Type": {textType}}
		}
		s.mu.Unlock()
		maps.Copy(w.Header(), header)
		_, _ = w.Write(body)
	}))
	t.Cleanup(target.Close)
	config := fmt.Sprintf(`global: {scrape_interval: 2s, scrape_timeout: 2s, scrape_native_histograms: true}
scrape_configs:
- {job_name: steady, scrape_interval: 15s, scrape_timeout: 15s, metrics_path: /steady, static_configs: [{targets: [%[1]q]}]}
- {job_name: bomb, metrics_path: /bomb, static_configs: [{targets: [%[1]q]}]}
`, strings.TrimPrefix(target.URL, "http://"))
	s.server = prometheus(t, t.TempDir(), config, "--web.enable-remote-write-receiver", "--web.enable-otlp-receiver", "--guard.drop-rules=off", "GOMEMLIMIT="+strconv.Itoa(bombLimit))
	eventually(t, "both targets are scraped", func() bool { return scalarOf(t, s.server, "sum(up)") == 2 })
	return s
}

// explode sends a bomb and returns the most memory that the server had, in bytes without
// pages of files, which the kernel can take back.
func (s *bombed) explode(t *testing.T, b *bomb) int64 {
	f := bombFamilies[b.family]
	body, encoding := b.body()
	resetPeak(t, s.server)
	header := http.Header{"Content-Type": {f.contentType}}
	if encoding != "" {
		header.Set("Content-Encoding", encoding)
	}
	if f.path == "" {
		s.mu.Lock()
		s.next, s.header = body, header
		s.mu.Unlock()
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.next == nil && s.begun > s.bomb
		}, 10*time.Minute, 20*time.Millisecond, "it is scraped, and the next scrape begins")
	} else {
		var all sync.WaitGroup
		for range b.times {
			all.Go(func() { s.push(f.path, header, body) })
		}
		all.Wait()
	}
	_, peak := resident(t, s.server)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err, "%+v ended it", b)
	_, file, _ := strings.Cut(string(status), "\nRssFile:")
	var kib int64
	_, err = fmt.Sscan(file, &kib)
	require.NoError(t, err)
	return peak - kib<<10
}

// push posts a body. Whatever the answer is, it is one.
func (s *bombed) push(path string, header http.Header, body []byte) {
	req, err := http.NewRequest(http.MethodPost, s.url+"/api/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header = header
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// alive asks for what was to be kept meanwhile: all samples of the steady target.
func (s *bombed) alive(t *testing.T) {
	require.Equal(t, http.StatusOK, get(t, s.url+"/-/healthy").code)
	eventually(t, "each scrape of the steady target is stored", func() bool {
		scraped := s.all.Load()
		return scalarOf(t, s.server, `min(count_over_time(steady[1h]))`) >= float64(scraped) && scalarOf(t, s.server, `count(count_over_time(steady[1h]))`) == 100
	})
}

// TestNothingThatIsScrapedOrPushedKillsTheServer sends bombs to a server that may use 200
// MiB: the worst that are known to one server, and, if there are to be more, random ones and
// mutants of them, each to a server of its own. A container of its limit would kill one at 222
// MiB; on a quiet machine one of the worst took more in two of ten runs, up to 234, and where the
// collector has no time it may be more still. Upstream takes gigabytes.
func TestNothingThatIsScrapedOrPushedKillsTheServer(t *testing.T) {
	t.Parallel()
	const most = bombLimit / 2 * 3
	s := newBombed(t)
	for _, b := range worstBombs {
		b.fit()
		peak := s.explode(t, &b)
		t.Logf("%d MiB: %+v", peak>>20, b)
		require.LessOrEqual(t, peak, int64(most), "%+v", b)
	}
	s.alive(t)

	n, err := strconv.Atoi(cmp.Or(os.Getenv("PROMGUARD_INGEST_BOMBS"), "0"))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("PROMGUARD_INGEST_SEED"), "1"), 10, 64)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(29, seed))
	peaks := map[string]int64{}
	worst := map[string]*bomb{}
	for range n {
		b := randomBomb(rng)
		if known := worst[b.family]; known != nil && rng.IntN(3) > 0 {
			b = known.mutated(rng)
		}
		t.Run(fmt.Sprintf("%+v", *b), func(t *testing.T) {
			s := newBombed(t)
			peak := s.explode(t, b)
			t.Logf("%d MiB", peak>>20)
			if peak > peaks[b.family] {
				peaks[b.family], worst[b.family] = peak, b
			}
			require.LessOrEqual(t, peak, int64(most))
			s.alive(t)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(worst)) {
		t.Logf("%d MiB at most: %+v", peaks[name]>>20, *worst[name])
	}
}
