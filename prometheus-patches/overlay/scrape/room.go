// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"fmt"
	"io"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"
)

// What a target exposes takes memory before any of its series is known. These are the most
// parts of the memory limit that it may be.
const (
	bodyPart = 8 // A body.
	// linePart is for what is parsed at once: a line. Labels of a few bytes take some forty
	// times as much while they are parsed, and buckets of protobuf a hundred times.
	linePart   = 256
	metricPart = 1024 // A metric of protobuf.
	metaPart   = 64   // All metadata of a target.

	// droppedBytes is what the cache takes for a line that is dropped or refused, and
	// metaBytes for a metric's metadata, besides its texts.
	droppedBytes = 40
	metaBytes    = 300
)

// scrapeBody is the body of a scrape as it is read.
type scrapeBody struct {
	b  []byte
	sl *scrapeLoop
	// known is how large the target's body may be in any case: it was before, also before a
	// reload, which hands the cache on.
	known int
	taken int64
}

func (sl *scrapeLoop) newBody(b []byte) *scrapeBody {
	s := &scrapeBody{b: b, sl: sl, known: max(1<<20, sl.cache.body+sl.cache.body/4)}
	s.take(cap(b))
	return s
}

// part returns a part of the memory limit, or 0 if there is none.
func (sl *scrapeLoop) part(part int64) int64 {
	if sl.seriesGate == nil {
		return 0
	}
	return sl.seriesGate.Limit() / part
}

func (s *scrapeBody) take(n int) bool {
	if s.sl.seriesGate == nil {
		return true
	}
	if n > 0 && !s.sl.seriesGate.Take(int64(n)) {
		return false
	}
	s.taken += int64(n)
	return true
}

// done gives back what the body took.
func (s *scrapeBody) done() {
	if s.taken > 0 {
		s.sl.seriesGate.Give(s.taken)
	}
}

// Bytes returns what was read.
func (s *scrapeBody) Bytes() []byte { return s.b }

// Write implements io.Writer.
func (s *scrapeBody) Write(p []byte) (int, error) {
	if err := s.grow(len(p)); err != nil {
		return 0, err
	}
	s.b = append(s.b, p...)
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom.
func (s *scrapeBody) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		if err := s.grow(bytes.MinRead); err != nil {
			return n, err
		}
		m, err := r.Read(s.b[len(s.b):cap(s.b)])
		s.b = s.b[:len(s.b)+m]
		n += int64(m)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// grow makes room for n bytes. A large body grows by a quarter: doubled, it would take
// three times its size at the end.
func (s *scrapeBody) grow(n int) error {
	if len(s.b)+n <= cap(s.b) {
		return nil
	}
	size := max(len(s.b)+n, cap(s.b)+min(cap(s.b), max(1<<20, cap(s.b)/4)))
	if most := s.sl.part(bodyPart); most > 0 && int64(len(s.b)+n) > most+bytes.MinRead {
		return s.tooLarge("a body of more than %d bytes, an eighth of the memory limit", most)
	}
	if !s.take(size-cap(s.b)) && size > s.known {
		return s.tooLarge("a body of %d bytes, and no memory for more", len(s.b))
	}
	b := make([]byte, len(s.b), size)
	copy(b, s.b)
	s.b = b
	return nil
}

func (s *scrapeBody) tooLarge(format string, args ...any) error {
	s.sl.metrics.targetScrapeExceededBodySizeLimit.Inc()
	return fmt.Errorf("%w: %s: let the target expose less, or raise --guard.memory-limit", errBodySizeLimit, fmt.Sprintf(format, args...))
}

// check takes what reading the body has led to, and looks for lines that are too long.
func (s *scrapeBody) check(contentType string, err error) (string, error) {
	if err != nil {
		return contentType, err
	}
	long, part := hasLongLine, int64(linePart)
	if mediaType, _, _ := mime.ParseMediaType(contentType); mediaType == "application/vnd.google.protobuf" {
		long, part = hasLongMetric, metricPart
	}
	if most := s.sl.part(part); most > 0 && long(s.b, int(most)) {
		return contentType, s.tooLarge("a line or metric of more than %d bytes, 1/%d of the memory limit", most, part)
	}
	s.sl.cache.body = max(len(s.b), s.sl.cache.body/2) // A short answer says little of the next.
	return contentType, nil
}

// hasLongLine reports whether a line has twice as many bytes as n; if none has n, it has
// none. It looks for the first line break in each n bytes, not for all.
func hasLongLine(b []byte, n int) bool {
	for ; len(b) >= n; b = b[n:] {
		if bytes.IndexByte(b[:n], '\n') < 0 {
			return true
		}
	}
	return false
}

// hasLongMetric reports whether a metric, or another field of a family, has more than n
// bytes. What is malformed is left to the parser.
func hasLongMetric(b []byte, n int) bool {
	for len(b) > n {
		family, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		for len(family) > n {
			_, kind, size := protowire.ConsumeTag(family)
			if size < 0 {
				break
			}
			family = family[size:]
			if kind == protowire.BytesType {
				if field, size := protowire.ConsumeBytes(family); size > 0 && len(field) > n {
					return true
				}
			}
			if size = protowire.ConsumeFieldValue(1, kind, family); size < 0 {
				break
			}
			family = family[size:]
		}
	}
	return false
}

// hasRoom says that the cache takes bytes, or that it must not.
func (c *scrapeCache) hasRoom(bytes int64) bool { return c.gate == nil || c.gate.Take(bytes) }

// metaFull returns the metadata of a metric and whether it must stay as it is, as there is
// no room for a text of so many bytes in its place. It may be nil.
func (c *scrapeCache) metaFull(name []byte, text int) (*metaEntry, bool) {
	if c.gate == nil {
		return nil, false
	}
	e, grow := c.metadata[string(name)], text
	if e != nil {
		grow -= max(len(e.Help), len(e.Unit))
	} else {
		grow += metaBytes + len(name)
	}
	if grow <= 0 {
		return e, false
	}
	size := c.metadataSize + c.metaNames + metaBytes*len(c.metadata)
	if c.gate.Limit() > 0 && int64(size+grow) > c.gate.Limit()/metaPart || !c.hasRoom(int64(grow)) {
		if e != nil {
			e.lastIter = c.iter
		}
		return e, true
	}
	if e == nil {
		c.metaNames += len(name)
	}
	return e, false
}
