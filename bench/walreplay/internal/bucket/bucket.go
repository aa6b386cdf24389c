// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package bucket keeps recorded write-ahead logs and reports in object storage.
//
// A recording NAME is the objects NAME/wal/00000000 and so on, as in a data
// directory, and its manifest NAME/walreplay.json, which is written last: a
// recording without one is not there. A report is one object.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/azure"
	"github.com/thanos-io/objstore/providers/filesystem"
	"github.com/thanos-io/objstore/providers/s3"
	"go.yaml.in/yaml/v2"

	"github.com/promguard/promguard/internal/didyoumean"
)

// DefaultConfig is a bucket that is a directory.
const DefaultConfig = "type: FILESYSTEM\nconfig:\n  directory: walreplay-bucket\n"

// Bucket is a bucket that has answered.
type Bucket struct{ objstore.Bucket }

// config is the YAML that Thanos takes.
type config struct {
	Type   string        `yaml:"type"`
	Config yaml.MapSlice `yaml:"config"`
	Prefix string        `yaml:"prefix"`
}

// roundTripper wraps what a provider sends its requests with.
type roundTripper = func(http.RoundTripper) http.RoundTripper

// provider makes a bucket of the YAML below config. objstore has a factory of
// all its providers; it is not used, because it brings the SDKs of ten clouds.
type provider func(yaml []byte, wrap roundTripper) (objstore.Bucket, error)

const component = "walreplay"

// providers by the type in the configuration; gcs.go adds one if it is built in.
var providers = map[string]provider{
	"FILESYSTEM": func(c []byte, _ roundTripper) (objstore.Bucket, error) { return filesystem.NewBucketFromConfig(c) },
	"S3": func(c []byte, wrap roundTripper) (objstore.Bucket, error) {
		return s3.NewBucket(log.NewNopLogger(), c, component, wrap)
	},
	"AZURE": func(c []byte, wrap roundTripper) (objstore.Bucket, error) {
		return azure.NewBucket(log.NewNopLogger(), c, component, wrap)
	},
}

// Open opens the bucket of a configuration as Thanos takes it. It returns an
// error if the bucket does not answer a first request within timeout.
func Open(ctx context.Context, text []byte, timeout time.Duration) (*Bucket, error) {
	var c config
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, fmt.Errorf("the configuration of the bucket: %s", oneLine(didyoumean.Field(err, c)))
	}
	inner, err := yaml.Marshal(c.Config)
	if err != nil {
		return nil, err
	}
	kind := strings.ToUpper(c.Type)
	open, ok := providers[kind]
	switch {
	case !ok && kind == "GCS":
		return nil, errors.New("the configuration of the bucket: this walreplay was built without GCS; build it with: go build -tags gcs ./bench/walreplay, or use the type S3 with the endpoint storage.googleapis.com and an HMAC key")
	case !ok:
		return nil, fmt.Errorf("the configuration of the bucket: type must be FILESYSTEM, S3, GCS or AZURE, got %q", c.Type)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := &lastAnswer{}
	b, err := answered(ctx, func() (objstore.Bucket, error) {
		b, err := open(inner, answers.wrap)
		if err != nil {
			return nil, fmt.Errorf("the configuration of the bucket: %s", oneLine(err))
		}
		b = objstore.NewPrefixedBucket(b, c.Prefix)
		if _, err := b.Exists(ctx, "walreplay-asks-whether-you-are-there"); err != nil {
			return nil, fmt.Errorf("the bucket %s does not answer: %s", b.Name(), oneLine(errors.Join(err, answers.error())))
		}
		return b, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("the bucket does not answer within %s: %s", timeout, oneLine(errors.Join(answers.error(), err)))
	}
	if err != nil {
		return nil, err
	}
	return &Bucket{b}, nil
}

// answered waits for fn, but not for longer than ctx: not all providers listen
// to one when they are made.
func answered(ctx context.Context, fn func() (objstore.Bucket, error)) (objstore.Bucket, error) {
	type result struct {
		b   objstore.Bucket
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := fn()
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return r.b, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lastAnswer remembers why the last request failed: a client that tries again
// and again until its deadline tells of nothing but the deadline.
type lastAnswer struct {
	mu  sync.Mutex
	err error
}

func (l *lastAnswer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(r)
		if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
		}
		return res, err
	})
}

func (l *lastAnswer) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// oneLine is an error's text in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// The objects of a recording or report lie below or at its name.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

// CheckName returns an error if a name cannot be used.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%q is not a name for an object in a bucket: use letters, digits, '.', '_' and '-', and '/' between such", name)
	}
	return nil
}
