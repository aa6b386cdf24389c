// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package answercache keeps answers of Prometheus's API for a short time, for
// those who ask the same again.
package answercache

import (
	"bytes"
	"compress/gzip"
	"container/list"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options says which answers are kept for those who ask the same again.
type Options struct {
	// MaxBytes bounds what is kept; 0 means that nothing is.
	MaxBytes int64
	// TTL is how long an answer may be given.
	TTL time.Duration
	// Round is to what the times of metadata requests are rounded before they are
	// compared; 0 means that they must be equal.
	Round time.Duration
}

// DefaultOptions keep nothing.
func DefaultOptions() Options {
	return Options{TTL: 30 * time.Second, Round: time.Minute}
}

// MinBytes is the least that a cache may have: room for some answers.
const MinBytes = 1 << 20

// Validate returns an error that says what is wrong with o.
func (o *Options) Validate() error {
	switch {
	case o.MaxBytes != 0 && o.MaxBytes < MinBytes:
		return fmt.Errorf("max_bytes is %d: use 0 for no cache, or at least %d", o.MaxBytes, MinBytes)
	case o.TTL <= 0 || o.TTL > time.Hour:
		return fmt.Errorf("ttl is %s: use a duration up to 1h", o.TTL)
	case o.Round < 0 || o.Round > time.Hour:
		return fmt.Errorf("round is %s: use 0s to 1h", o.Round)
	}
	return nil
}

// Stats count what a cache does.
type Stats struct {
	Hits, Misses prometheus.Counter
	// Bypass counts requests that asked for a fresh answer.
	Bypass prometheus.Counter
}

// NewStats registers the metrics of a cache and of those that come after it.
func NewStats(reg prometheus.Registerer) *Stats {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "promguard_cache_requests_total",
		Help: "Requests for answers that the cache may hold, by result: hit, miss, or bypass for those that ask for a fresh one.",
	}, []string{"result"})
	reg.MustRegister(requests)
	return &Stats{
		Hits: requests.WithLabelValues("hit"), Misses: requests.WithLabelValues("miss"), Bypass: requests.WithLabelValues("bypass"),
	}
}

// Cache keeps whole answers that say success and warn of nothing, the one that
// was used last for longest. Safe for concurrent use.
type Cache struct {
	opts  Options
	stats *Stats

	mu      sync.Mutex
	answers map[string]*list.Element // of *answer
	used    *list.List               // the one used last first
	bytes   int64                    // with what is being read
	reading map[string]bool
}

type answer struct {
	key    string
	header http.Header
	body   []byte
	came   time.Time
}

// New returns an empty cache, or nil if the options, which must be valid, keep
// nothing.
func New(opts Options, stats *Stats) *Cache {
	if opts.MaxBytes == 0 {
		return nil
	}
	return &Cache{opts: opts, stats: stats, answers: map[string]*list.Element{}, used: list.New(), reading: map[string]bool{}}
}

// Bytes returns about how many are held; of a nil Cache, none.
func (c *Cache) Bytes() int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Round returns to what times are rounded.
func (c *Cache) Round() time.Duration { return c.opts.Round }

// share is the largest part of the cache that one answer may take.
const share = 8

// perAnswer is about what an answer holds besides key and body.
const perAnswer = 2 << 10

func (a *answer) size() int64 { return int64(len(a.key)) + int64(len(a.body)) + perAnswer }

// RoundTrip answers from the cache, or sends the request and keeps the answer. The
// key is the same for requests that may have the same answer.
func (c *Cache) RoundTrip(req *http.Request, key string, send func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	read, write := mayCache(req.Header)
	if !read {
		c.stats.Bypass.Inc()
	} else if a := c.get(key, time.Now()); a != nil {
		c.stats.Hits.Inc()
		return a.response(req, time.Now()), nil
	} else {
		c.stats.Misses.Inc()
	}
	res, err := send(req)
	if err == nil && write {
		c.keep(key, res)
	}
	return res, err
}

// mayCache reads what a client says: no-cache and max-age=0 ask for a fresh
// answer, no-store for one that is not kept either.
func mayCache(h http.Header) (read, write bool) {
	read, write = true, true
	for _, name := range []string{"Cache-Control", "Pragma"} {
		for _, value := range h[name] {
			value = strings.ToLower(value)
			if strings.Contains(value, "no-cache") || strings.Contains(value, "max-age=0") {
				read = false
			}
			if strings.Contains(value, "no-store") {
				read, write = false, false
			}
		}
	}
	return read, write
}

func (c *Cache) get(key string, now time.Time) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.answers[key]
	if !ok {
		return nil
	}
	a := e.Value.(*answer)
	if now.Sub(a.came) >= c.opts.TTL {
		c.drop(e)
		return nil
	}
	c.used.MoveToFront(e)
	return a
}

// response returns a copy whose body is shared.
func (a *answer) response(req *http.Request, now time.Time) *http.Response {
	h := a.header.Clone()
	h.Set("Age", strconv.Itoa(int(now.Sub(a.came).Seconds())))
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Header: h, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)),
	}
}

// keep remembers an answer while it is read, if it is one to be kept.
func (c *Cache) keep(key string, res *http.Response) {
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") || len(res.Header["Set-Cookie"]) > 0 || res.Header.Get("Vary") == "*" {
		return
	}
	for _, value := range res.Header["Cache-Control"] {
		if value = strings.ToLower(value); strings.Contains(value, "no-store") || strings.Contains(value, "private") {
			return
		}
	}
	most := c.opts.MaxBytes/share - perAnswer - int64(len(key))
	if most <= 0 || res.ContentLength > most {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading[key] {
		return // Another one with the same answer is being read.
	}
	c.reading[key] = true
	a := &answer{key: key, header: res.Header.Clone(), came: time.Now()}
	res.Body = &keptBody{ReadCloser: res.Body, cache: c, answer: a, left: most}
}

// keptBody copies an answer on its way, and hands it over when it is whole.
type keptBody struct {
	io.ReadCloser

	cache  *Cache
	answer *answer // nil once it is handed over or given up
	left   int64
}

// Read implements io.Reader.
func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.answer == nil {
		return n, err
	}
	if b.left -= int64(n); b.left < 0 || !b.cache.reserve(int64(n)) {
		b.end(false)
		return n, err
	}
	b.answer.body = append(b.answer.body, p[:n]...)
	if err != nil {
		b.end(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close implements io.Closer.
func (b *keptBody) Close() error {
	b.end(false)
	return b.ReadCloser.Close()
}

func (b *keptBody) end(whole bool) {
	if b.answer != nil {
		b.cache.finish(b.answer, whole && isSuccess(b.answer))
		b.answer = nil
	}
}

// reserve makes room for n more bytes of an answer that is being read.
func (c *Cache) reserve(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += n
	c.makeRoom()
	if c.bytes > c.opts.MaxBytes {
		c.bytes -= n
		return false
	}
	return true
}

// makeRoom drops what was not used for longest.
func (c *Cache) makeRoom() {
	for c.bytes > c.opts.MaxBytes && c.used.Len() > 0 {
		c.drop(c.used.Back())
	}
}

func (c *Cache) drop(e *list.Element) {
	a := e.Value.(*answer)
	delete(c.answers, a.key)
	c.used.Remove(e)
	c.bytes -= a.size()
}

// finish puts an answer in place of one with the same key, or forgets it.
func (c *Cache) finish(a *answer, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reading, a.key)
	c.bytes -= int64(len(a.body))
	if good {
		if e, ok := c.answers[a.key]; ok {
			c.drop(e)
		}
		a.body = bytes.Clone(a.body) // Without what append has left over.
		c.answers[a.key] = c.used.PushFront(a)
		c.bytes += a.size()
	}
	c.makeRoom()
}

// isSuccess reports whether an answer is whole, and neither an error nor one with
// warnings, such as that something was left out.
func isSuccess(a *answer) bool {
	var body io.Reader = bytes.NewReader(a.body)
	switch a.header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		gz, err := gzip.NewReader(body)
		if err != nil {
			return false
		}
		body = gz
	default:
		return false
	}
	const mostDecoded = 16 << 20
	text, err := io.ReadAll(io.LimitReader(body, mostDecoded+1))
	if err != nil || len(text) > mostDecoded {
		return false
	}
	var e struct {
		Status          string
		Data            json.RawMessage
		Warnings, Infos json.RawMessage
	}
	return json.Unmarshal(text, &e) == nil && e.Status == "success" && len(e.Data) > 0 && len(e.Warnings) == 0 && len(e.Infos) == 0
}
