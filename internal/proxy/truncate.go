// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import "io"

// bounded is an answer that may be broken off because of its size.
type bounded interface {
	io.ReadCloser
	// tooLarge reports whether it was.
	tooLarge() bool
}

// sizeLimiter breaks an answer off that is longer than allowed, or only notices.
type sizeLimiter struct {
	io.ReadCloser

	left     int64
	exceeded func()
	observe  bool
}

// Read implements io.Reader.
func (l *sizeLimiter) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left < 0 {
		return n, err
	}
	if l.left -= int64(n); l.left >= 0 {
		return n, err
	}
	l.exceeded()
	if l.observe {
		return n, err
	}
	return 0, errTooLarge
}

// tooLarge implements bounded.
func (l *sizeLimiter) tooLarge() bool { return l.left < 0 && !l.observe }

// truncateWithWarning bounds an envelope, and adds the warning if that leaves
// something out. Lost is called if that includes warnings of the server.
func truncateWithWarning(body io.ReadCloser, limit int64, warning string, exceeded, lost func()) *editor {
	e := newEditor(body, nil, lost)
	e.truncateAt(limit, warningItems([]string{warning}), exceeded)
	return e
}
