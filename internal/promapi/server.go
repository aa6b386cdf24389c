// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// Server is where an API is. It is asked without a budget.
type Server struct {
	base *url.URL
	http *http.Client
}

// NewServer returns the server at a URL, which is without /api/v1. Redirects are not
// followed: credentials go nowhere else.
func NewServer(text string, transport http.RoundTripper) (*Server, error) {
	base, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Server{base, &http.Client{Transport: transport, CheckRedirect: stay}}, nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		// The error would show a password.
		return nil, errors.New("the URL of the server must be one such as http://127.0.0.1:9090")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	switch {
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("the URL %s must end with its path: remove what follows", u.Redacted())
	case strings.HasSuffix(u.Path, "/api/v1"):
		return nil, fmt.Errorf("the URL %s must not include /api/v1: it is added", u.Redacted())
	}
	return u, nil
}

// String is the URL without a password.
func (s *Server) String() string { return s.base.Redacted() }

// Close closes the connections.
func (s *Server) Close() { s.http.CloseIdleConnections() }

// Ask makes one request of an endpoint below /api/v1, and decodes the data of the answer,
// which may have so many bytes. The error is a StatusError if there was an answer.
func Ask[T any](ctx context.Context, s *Server, method, endpoint string, params url.Values, most int64) (data T, err error) {
	req, err := s.newRequest(ctx, method, endpoint, params)
	if err != nil {
		return data, err
	}
	var a answer[T]
	if _, err := s.exchange(req, most, &a); err != nil {
		if failed, ok := errors.AsType[*failure](err); ok && failed.unreached && ctx.Err() != nil {
			return data, fmt.Errorf("%s: %w", where(req), context.Cause(ctx))
		}
		return data, err
	}
	return *a.Data, nil
}

func (s *Server) target(endpoint string) *url.URL { return s.base.JoinPath("api/v1", endpoint) }

func (s *Server) newRequest(ctx context.Context, method, endpoint string, params url.Values) (*http.Request, error) {
	target := s.target(endpoint)
	target.RawQuery = params.Encode()
	return http.NewRequestWithContext(ctx, method, target.String(), http.NoBody)
}

// where is what a request asks, without parameters and password.
func where(req *http.Request) string {
	u := *req.URL
	u.RawQuery = ""
	return u.Redacted()
}

// exchange makes a request and decodes its answer, which may have so many bytes, and
// returns how many were read.
func (s *Server) exchange(req *http.Request, most int64, into envelope) (read int64, err error) {
	res, err := s.http.Do(req)
	if err != nil {
		return 0, unreached(where(req), err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	read = int64(len(text))
	switch {
	case read > most:
		return read, fmt.Errorf("%s: the answer is longer than %s", where(req), bytesText(most))
	case err != nil && req.Context().Err() != nil:
		return read, unreached(where(req), err)
	case err != nil:
		return read, &failure{error: fmt.Errorf("%s: the answer breaks off after %s: %w", where(req), bytesText(read), err)}
	}
	return read, judge(where(req), res, text, into)
}

// unreached says why there is no answer, and what to do.
func unreached(where string, err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	way := ""
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted:
		way = " (name who signed it in --prometheus.http-config.file)"
	case errors.Is(err, http.ErrSchemeMismatch):
		way = ": use http://"
	case errors.Is(err, syscall.ECONNREFUSED):
		way = ": nothing listens there (is it down, or a port-forward missing?)"
	}
	return &failure{error: fmt.Errorf("%s: %w%s", where, err, way), unreached: true}
}
