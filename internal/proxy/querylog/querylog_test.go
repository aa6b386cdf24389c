// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylog

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, change func(*Options)) (log *Log, path string, lost *atomic.Int32) {
	t.Helper()
	path, lost = filepath.Join(t.TempDir(), "query.log"), &atomic.Int32{}
	opts := Options{File: path, SlowerThan: time.Second}
	if change != nil {
		change(&opts)
	}
	log, err := Open(opts, func(err error) {
		if err == nil {
			t.Error("it says not why")
		}
		lost.Add(1)
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	return log, path, lost
}

func read(t *testing.T, path string) []*Entry {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	var entries []*Entry
	stats, err := Read(file, func(e *Entry) { entries = append(entries, e) })
	require.NoError(t, err)
	require.Equal(t, Stats{Entries: len(entries)}, stats)
	return entries
}

// written adds what the log of open says of itself.
func written(e Entry) *Entry {
	second := 1.0
	e.SlowerThan = &second
	return &e
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	log, path, lost := open(t, nil)
	at, limit := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), 0
	e := Entry{
		Time: at, Endpoint: "query_range", Class: "query", Tenant: "a", Dashboard: "d", Panel: "1", User: "ann", Alert: true, AlertRule: "r",
		UserAgent: "x\n\"", Client: "::1", Queries: []string{"up{a=\"\n\"}"}, Fingerprints: []string{"f"}, Start: &at, End: &at, Step: 0.5,
		Lookback: 1, Limit: &limit, Code: 422, Limits: []string{"range:warn"}, Rules: []string{"b"}, Took: 1.5, Bytes: 7,
	}
	want := *written(e)
	log.Write(&e)
	require.NoError(t, log.Close())
	require.Equal(t, []*Entry{&want}, read(t, path))
	log.Write(&Entry{Endpoint: "query"})
	require.EqualValues(t, 1, lost.Load(), "what comes after the end is counted")
}

func TestSlowAndExceedingRequestsAreWrittenAndASampleOfTheOthers(t *testing.T) {
	log, _, _ := open(t, nil)
	require.True(t, log.Wants(time.Second, false))
	require.True(t, log.Wants(0, true))
	require.False(t, log.Wants(999*time.Millisecond, false))
	log, _, _ = open(t, func(o *Options) { o.Sample = 0.5 })
	n := 0
	for range 10_000 {
		if log.Wants(0, false) {
			n++
		}
	}
	require.InDelta(t, 5000, n, 500)
	require.False(t, (*Log)(nil).Wants(time.Hour, true))
	(*Log)(nil).Write(&Entry{})
	require.NoError(t, (*Log)(nil).Close())
}

func TestRedactedLogHasNeitherTextNorUser(t *testing.T) {
	log, path, _ := open(t, func(o *Options) { o.Redact = true })
	log.Write(&Entry{Endpoint: "query", Queries: []string{`up{customer="secret"}`}, Fingerprints: []string{"f"}, User: "ann"})
	require.NoError(t, log.Close())
	require.Equal(t, []*Entry{written(Entry{Endpoint: "query", Fingerprints: []string{"f"}})}, read(t, path))
}

func TestManyWritersLoseNothingThatIsNotCounted(t *testing.T) {
	log, path, lost := open(t, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				log.Write(&Entry{Endpoint: "query", Queries: []string{strings.Repeat("x", i)}})
			}
		})
	}
	wg.Wait()
	require.NoError(t, log.Close())
	require.Equal(t, 8000, len(read(t, path))+int(lost.Load()))
}

func TestFullDiskIsCountedAndDoesNotEndTheLog(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	log, _, lost := open(t, func(o *Options) { o.File = "/dev/full" })
	for range 3 {
		log.Write(&Entry{Endpoint: "query"})
	}
	log.Write(&Entry{Endpoint: "query", Took: math.NaN()})
	require.NoError(t, log.Close())
	require.EqualValues(t, 4, lost.Load())
}

func TestLogThatCannotBeOpenedIsAnError(t *testing.T) {
	_, err := Open(Options{File: t.TempDir()}, nil)
	require.Error(t, err)
	for want, opts := range map[string]Options{"slower_than is -1s": {SlowerThan: -time.Second}, "sample is 2": {Sample: 2}, "sample is NaN": {Sample: math.NaN()}} {
		require.ErrorContains(t, opts.Validate(), want)
	}
}

const upstreamLines = `{"time":"2026-11-21T20:00:00.5Z","level":"INFO","source":"engine.go:710","msg":"promql query logged","params":{"end":"2026-11-21T20:00:00.000Z","query":"up","start":"2026-11-21T19:00:00.000Z","step":15},"stats":{"timings":{"evalTotalTime":0.1,"execTotalTime":0.25}},"httpRequest":{"clientIP":"10.0.0.1","method":"POST","path":"/prometheus/api/v1/query_range"}}
{"params":{"end":"2026-11-21T20:00:00.000Z","query":"1","start":"2026-11-21T20:00:00.000Z","step":0},"ruleGroup":{"file":"x.yml","name":"g"},"ts":"2026-11-21T20:00:00.5Z"}

{"params":{"query":"up","start":"soon"},"httpRequest":{"path":"/api/v1/query"}}
{"cut
[1]
`

func TestLogOfPrometheusIsRead(t *testing.T) {
	var got []*Entry
	stats, err := Read(strings.NewReader(upstreamLines), func(e *Entry) { got = append(got, e) })
	require.NoError(t, err)
	require.Equal(t, Stats{Entries: 1, Rules: 1, Broken: 3}, stats)
	everything := 0.0
	start, end := time.Date(2026, 11, 21, 19, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	require.Equal(t, []*Entry{{
		Time: end.Add(500 * time.Millisecond), Endpoint: "query_range", Client: "10.0.0.1", Queries: []string{"up"},
		Start: &start, End: &end, Step: 15, Code: 200, Took: 0.25,
		SlowerThan: &everything,
	}}, got)
}

func TestEntriesTellWhatTheLogLeavesOut(t *testing.T) {
	log, path, _ := open(t, func(o *Options) { o.SlowerThan, o.Sample = 0, 0.25 })
	log.Write(&Entry{Endpoint: "query"})
	require.NoError(t, log.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), `"slower_than_seconds":0,"sample":0.25`)
	e := read(t, path)[0]
	require.Zero(t, *e.SlowerThan)
	require.InDelta(t, 0.25, e.Sample, 0)
}

func TestQueriesThatFailedInPrometheusAreNoAnswers(t *testing.T) {
	line, _, _ := strings.Cut(upstreamLines, "\n")
	for failed, code := range map[string]int{
		`"query timed out in expression evaluation"`: 503, `"query was canceled in query execution"`: 503,
		`"query processing would load too many samples into memory"`: 422, `{}`: 422, `null`: 200,
	} {
		var got *Entry
		_, err := Read(strings.NewReader(strings.Replace(line, `"stats":`, `"error":`+failed+`,"stats":`, 1)), func(e *Entry) { got = e })
		require.NoError(t, err)
		require.Equal(t, code, got.Code, failed)
	}
}

func TestLineThatIsTooLongIsSkipped(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	n := 0
	stats, err := Read(strings.NewReader(long+"\n"+`{"endpoint":"query","queries":["up"]}`+"\n"+long), func(*Entry) { n++ })
	require.NoError(t, err)
	require.Equal(t, Stats{Entries: 1, Broken: 2}, stats)
	require.Equal(t, 1, n)
	_, err = Read(iotest.ErrReader(io.ErrUnexpectedEOF), nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestLongQueriesAreCutAndMarked(t *testing.T) {
	log, path, lost := open(t, nil)
	whole := strings.Repeat("a", MaxText)
	log.Write(&Entry{Endpoint: "query", Queries: []string{whole}})
	log.Write(&Entry{Endpoint: "query", Queries: []string{whole + "b"}})
	log.Write(&Entry{Endpoint: "series", Queries: []string{"up", whole, "down"}})
	log.Write(&Entry{Endpoint: "query", Queries: []string{whole[1:] + "ä"}})
	require.NoError(t, log.Close())
	require.Zero(t, lost.Load())
	require.Equal(t, []*Entry{
		written(Entry{Endpoint: "query", Queries: []string{whole}}),
		written(Entry{Endpoint: "query", Queries: []string{whole}, Cut: true}),
		written(Entry{Endpoint: "series", Queries: []string{"up", whole[2:]}, Cut: true}),
		written(Entry{Endpoint: "query", Queries: []string{whole[1:]}, Cut: true}),
	}, read(t, path))
}

// A pipe that nobody reads is the slowest disk.
func TestEntriesThatWaitForASlowDiskAreBoundedInBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no named pipes: ", err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer reader.Close()
	log, _, lost := open(t, func(o *Options) { o.File = path })
	request := strings.Repeat("x", 1<<20)
	for i := range 2 * queueBytes / MaxText {
		log.Write(&Entry{Endpoint: "query", Queries: []string{request[i:]}})
	}
	require.LessOrEqual(t, log.waiting.Load(), int64(queueBytes))
	require.Greater(t, int(lost.Load()), queueBytes/MaxText/2)
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	require.NoError(t, log.Close())
	require.Zero(t, log.waiting.Load())
}

func FuzzRead(f *testing.F) {
	f.Add(upstreamLines)
	f.Add(`{"ts":"2026-01-01T00:00:00Z","endpoint":"query","queries":["up"],"limit":5,"step_seconds":1e300}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		stats, err := Read(strings.NewReader(text), func(e *Entry) {
			n++
			require.NotNil(t, e)
		})
		require.NoError(t, err)
		require.Equal(t, n, stats.Entries)
		require.LessOrEqual(t, stats.Entries+stats.Rules+stats.Broken, strings.Count(text, "\n")+1)
	})
}
