// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package answercache keeps answers of Prometheus's API for a short time, for
// those who ask the same again.
package answercache

import (
	"bytes"
	"container/list"
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
	reading int64                    // of it, what is being read
}

type answer struct {
	key    string
	header http.Header
	body   []byte
	// It may be given from when it came until the server or the options say.
	came, until time.Time
}

// New returns an empty cache, or nil if the options, which must be valid, keep
// nothing.
func New(opts Options, stats *Stats) *Cache {
	if opts.MaxBytes == 0 {
		return nil
	}
	return &Cache{opts: opts, stats: stats, answers: map[string]*list.Element{}, used: list.New()}
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

// perAnswer and perValue are about what an answer holds besides key, header and
// body, and what a value of the header holds besides its text.
const (
	perAnswer = 2 << 10
	perValue  = 64
)

func (a *answer) size() int64 {
	n := perAnswer + len(a.key) + len(a.body)
	for name, values := range a.header {
		for _, value := range values {
			n += perValue + len(name) + len(value)
		}
	}
	return int64(n)
}

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
	if !now.Before(a.until) {
		c.drop(e)
		return nil
	}
	c.used.MoveToFront(e)
	return a
}

// response returns a copy whose body is shared.
func (a *answer) response(req *http.Request, now time.Time) *http.Response {
	h := a.header.Clone()
	age := int64(now.Sub(a.came).Seconds()) + seconds(h.Get("Age"))
	h.Set("Age", strconv.FormatInt(age, 10))
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Header: h, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)),
	}
}

// keep remembers an answer while it is read, if it is one to be kept.
func (c *Cache) keep(key string, res *http.Response) {
	fresh := min(c.opts.TTL, freshFor(res.Header))
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") ||
		len(res.Header["Set-Cookie"]) > 0 || fresh <= 0 || !variesByKey(res.Header) {
		return
	}
	now := time.Now()
	a := &answer{key: key, header: res.Header.Clone(), came: now, until: now.Add(fresh)}
	most := c.opts.MaxBytes/share - a.size()
	if most <= 0 || res.ContentLength > most {
		return
	}
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
		b.cache.finish(b.answer, whole && b.cache.isGood(b.answer))
		b.answer = nil
	}
}

// isGood reports whether an answer is one to be kept. Decoded, it must not be
// longer than any that is kept.
func (c *Cache) isGood(a *answer) bool {
	body := a.decoded()
	return body != nil && isSuccess(io.LimitReader(body, c.opts.MaxBytes/share))
}

// reserve makes room for n more bytes of an answer that is being read. What is
// being read takes half of the room at most: clients that read slowly, or many
// with the same question, leave the rest to what is kept.
func (c *Cache) reserve(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading+n > c.opts.MaxBytes/2 {
		return false
	}
	c.reading += n
	c.bytes += n
	c.makeRoom()
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

// finish puts an answer in place of one with the same key that came earlier, or
// forgets it.
func (c *Cache) finish(a *answer, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading -= int64(len(a.body))
	c.bytes -= int64(len(a.body))
	e, ok := c.answers[a.key]
	if !good || ok && e.Value.(*answer).came.After(a.came) {
		return
	}
	if ok {
		c.drop(e)
	}
	a.body = bytes.Clone(a.body) // Without what append has left over.
	c.answers[a.key] = c.used.PushFront(a)
	c.bytes += a.size()
	c.makeRoom()
}
