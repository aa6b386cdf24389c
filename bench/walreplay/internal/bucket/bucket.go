// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package bucket keeps recorded write-ahead logs in object storage.
//
// A recording NAME is the objects NAME/wal/00000000 and so on, as in a data
// directory, and its manifest NAME/walreplay.json, which is written last: a
// recording without one is not there.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/azure"
	"github.com/thanos-io/objstore/providers/filesystem"
	"github.com/thanos-io/objstore/providers/s3"
	"go.yaml.in/yaml/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
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

// providers by the type in the configuration. objstore has a factory of all; it is not used, because it brings the SDKs of ten
// clouds.
var providers = map[string]func(yaml []byte) (objstore.Bucket, error){
	"GCS":        openGCS,
	"FILESYSTEM": func(c []byte) (objstore.Bucket, error) { return filesystem.NewBucketFromConfig(c) },
	"S3": func(c []byte) (objstore.Bucket, error) {
		return s3.NewBucket(log.NewNopLogger(), c, "walreplay", nil)
	},
	"AZURE": func(c []byte) (objstore.Bucket, error) {
		return azure.NewBucket(log.NewNopLogger(), c, "walreplay", nil)
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
	open, ok := providers[strings.ToUpper(c.Type)]
	if !ok {
		return nil, fmt.Errorf("the configuration of the bucket: type must be FILESYSTEM, S3, GCS or AZURE, got %q", c.Type)
	}
	b, err := open(inner)
	if err != nil {
		return nil, fmt.Errorf("the configuration of the bucket: %s", oneLine(err))
	}
	b = objstore.NewPrefixedBucket(b, c.Prefix)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := b.Exists(ctx, "walreplay-asks-whether-you-are-there"); err != nil {
		return nil, told(b, "a first request", err)
	}
	return &Bucket{b}, nil
}

// told says in one line what went wrong with a bucket. The end of a context
// stays what it is.
func told(b objstore.Bucket, what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: the bucket %s: %s", what, b.Name(), oneLine(err))
}

// oneLine is an error's text in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// The objects of a recording lie below its name.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

// CheckName returns an error if a name cannot be used.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%q is not a name for an object in a bucket: use letters, digits, '.', '_' and '-', and '/' between such", name)
	}
	return nil
}

// Push uploads a data directory, and its manifest last, without which it is no
// recording. The name must be new. What an error or the end of ctx left behind is
// deleted as far as the bucket answers.
func (b *Bucket) Push(ctx context.Context, d *datadir.Dir, name string) (m *datadir.Manifest, err error) {
	manifest := path.Join(name, datadir.ManifestName)
	switch found, err := b.Exists(ctx, manifest); {
	case err != nil:
		return nil, told(b, "asking for "+name, err)
	case found:
		return nil, fmt.Errorf("the bucket %s holds %s already; choose another name", b.Name(), name)
	}
	if m, err = d.Manifest(ctx); err != nil {
		return nil, err
	}
	text, err := m.Text()
	if err != nil {
		return nil, err
	}
	var uploaded []string
	defer func() {
		if err != nil {
			b.forget(ctx, uploaded)
		}
	}()
	for _, f := range m.Files {
		object := path.Join(name, f.Path)
		uploaded = append(uploaded, object)
		if err := objstore.UploadFile(ctx, log.NewNopLogger(), b, d.Local(f), object); err != nil {
			return nil, told(b, "uploading "+object, err)
		}
	}
	uploaded = append(uploaded, manifest)
	if err := b.Upload(ctx, manifest, bytes.NewReader(text)); err != nil {
		return nil, told(b, "uploading "+manifest, err)
	}
	return m, nil
}

// forget deletes objects although ctx may have ended.
func (b *Bucket) forget(ctx context.Context, objects []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, object := range objects {
		_ = b.Delete(ctx, object) // Without its manifest it is no recording anyway.
	}
}

const maxManifest = 64 << 20

// Manifest reads the manifest of a recording.
func (b *Bucket) Manifest(ctx context.Context, name string) (*datadir.Manifest, error) {
	object := path.Join(name, datadir.ManifestName)
	r, err := b.Get(ctx, object)
	var text []byte
	if err == nil { // S3's client asks only when it is read from.
		defer r.Close()
		text, err = io.ReadAll(io.LimitReader(r, maxManifest+1))
	}
	switch {
	case b.IsObjNotFoundErr(err):
		return nil, fmt.Errorf("the bucket %s holds no recording named %s", b.Name(), name)
	case err != nil:
		return nil, told(b, "fetching "+object, err)
	case len(text) > maxManifest:
		return nil, fmt.Errorf("%s in the bucket %s is larger than %d MiB", object, b.Name(), maxManifest>>20)
	}
	m, err := datadir.ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s in the bucket %s: %w", name, b.Name(), err)
	}
	return m, nil
}

// Fetch downloads a recording into a directory that must be new, and checks its
// sums. If it returns an error there is nothing there.
func (b *Bucket) Fetch(ctx context.Context, name string, m *datadir.Manifest, to string) error {
	return datadir.Write(ctx, to, m, func(f datadir.File) (io.ReadCloser, error) {
		object := path.Join(name, f.Path)
		r, err := b.Get(ctx, object)
		if err != nil {
			return nil, told(b, "fetching "+object, err)
		}
		return r, nil
	})
}
