// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/thanos-io/objstore"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/progress"
)

const maxManifest = 64 << 20

// Manifest reads the manifest of a recording.
func (b *Bucket) Manifest(ctx context.Context, name string) (*datadir.Manifest, error) {
	text, err := b.read(ctx, path.Join(name, datadir.ManifestName), maxManifest)
	if b.IsObjNotFoundErr(err) {
		return nil, fmt.Errorf("the bucket %s holds no recording named %s", b.Name(), name)
	}
	if err != nil {
		return nil, err
	}
	m, err := datadir.ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s in the bucket %s: %w", name, b.Name(), err)
	}
	return m, nil
}

// Push uploads a data directory. The name must be new. What an error or the end
// of ctx left behind is deleted as far as the bucket answers. p gets the bytes
// twice: files are read to sum them, and to be uploaded.
func (b *Bucket) Push(ctx context.Context, d *datadir.Dir, name string, p *progress.Line) (m *datadir.Manifest, err error) {
	if err := b.checkNew(ctx, name, path.Join(name, datadir.ManifestName)); err != nil {
		return nil, err
	}
	if m, err = d.Manifest(ctx, p); err != nil {
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
		if err := b.uploadFile(ctx, object, d.Local(f), p); err != nil {
			return nil, err
		}
	}
	text, err := m.Text()
	if err != nil {
		return nil, err
	}
	uploaded = append(uploaded, path.Join(name, datadir.ManifestName))
	if err := b.upload(ctx, path.Join(name, datadir.ManifestName), bytes.NewReader(text)); err != nil {
		return nil, err
	}
	return m, nil
}

// CheckNew returns an error if there is a report of a name already.
func (b *Bucket) CheckNew(ctx context.Context, name string) error {
	return b.checkNew(ctx, name, name)
}

func (b *Bucket) checkNew(ctx context.Context, name, object string) error {
	found, err := b.Exists(ctx, object)
	if err != nil {
		return b.told("asking for "+name, err)
	}
	if found {
		return fmt.Errorf("the bucket %s holds %s already; choose another name", b.Name(), name)
	}
	return nil
}

// forget deletes objects although ctx may have ended.
func (b *Bucket) forget(ctx context.Context, objects []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, object := range objects {
		_ = b.Delete(ctx, object) // Without its manifest it is no recording anyway.
	}
}

func (b *Bucket) uploadFile(ctx context.Context, object, file string, p *progress.Line) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.upload(ctx, object, &uploading{f, p})
}

func (b *Bucket) upload(ctx context.Context, object string, r io.Reader) error {
	if err := b.Upload(ctx, object, r); err != nil {
		return b.told("uploading "+object, err)
	}
	return nil
}

// uploading is a file that tells how far its upload is. It can be rewound, so
// that a client can try again.
type uploading struct {
	*os.File
	progress *progress.Line
}

func (u *uploading) Read(b []byte) (int, error) {
	n, err := u.File.Read(b)
	u.progress.Add(float64(n))
	return n, err
}

// WriteTo hides the file's own, which would pass by Read.
func (u *uploading) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{u})
}

// ObjectSize implements objstore.ObjectSizer.
func (u *uploading) ObjectSize() (int64, error) {
	info, err := u.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Fetch downloads a recording into a directory that must be new, and checks its
// sums. If it returns an error there is nothing there. p gets the bytes.
func (b *Bucket) Fetch(ctx context.Context, name string, m *datadir.Manifest, to string, p *progress.Line) error {
	return datadir.Write(to, m, func(f datadir.File, w io.Writer) error {
		object := path.Join(name, f.Path)
		r, err := b.Get(ctx, object)
		if err != nil {
			return b.told("fetching "+object, err)
		}
		defer r.Close()
		if _, err := io.Copy(&downloading{ctx, w, p}, r); err != nil {
			return b.told("fetching "+object, err)
		}
		return nil
	})
}

// downloading tells how far a download is, and ends with its context.
type downloading struct {
	ctx      context.Context
	w        io.Writer
	progress *progress.Line
}

func (d *downloading) Write(b []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	d.progress.Add(float64(len(b)))
	return d.w.Write(b)
}

// PutReport writes a report. The name must be new.
func (b *Bucket) PutReport(ctx context.Context, name string, text []byte) error {
	if err := b.CheckNew(ctx, name); err != nil {
		return err
	}
	if err := b.upload(ctx, name, bytes.NewReader(text)); err != nil {
		b.forget(ctx, []string{name})
		return err
	}
	return nil
}

func (b *Bucket) read(ctx context.Context, object string, most int64) ([]byte, error) {
	r, err := b.Get(ctx, object)
	if err != nil {
		if b.IsObjNotFoundErr(err) {
			return nil, err
		}
		return nil, b.told("fetching "+object, err)
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		// S3's client asks only when it is read from.
		if b.IsObjNotFoundErr(err) {
			return nil, err
		}
		return nil, b.told("fetching "+object, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s in the bucket %s is larger than %d MiB", object, b.Name(), most>>20)
	}
	return text, nil
}

// told says in one line what went wrong with the bucket. The end of a context
// stays what it is.
func (b *Bucket) told(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: the bucket %s: %s", what, b.Name(), oneLine(err))
}

// Entry is something in a bucket.
type Entry struct {
	Name string
	// Manifest is nil unless it is a recording.
	Manifest *datadir.Manifest
}

// List calls fn for every recording and every other object that is in none, in
// the order of their names as far as the bucket has one.
func (b *Bucket) List(ctx context.Context, fn func(Entry)) error {
	var objects, recordings []string
	err := b.Iter(ctx, "", func(object string) error {
		if name, ok := strings.CutSuffix(filepath.ToSlash(object), "/"+datadir.ManifestName); ok {
			recordings = append(recordings, name)
			return nil
		}
		objects = append(objects, object)
		return nil
	}, objstore.WithRecursiveIter())
	if err != nil {
		return b.told("listing", err)
	}
	for _, name := range recordings {
		m, err := b.Manifest(ctx, name)
		if err != nil {
			return err
		}
		fn(Entry{name, m})
	}
next:
	for _, object := range objects {
		for _, name := range recordings {
			if strings.HasPrefix(object, name+"/") {
				continue next
			}
		}
		fn(Entry{object, nil})
	}
	return nil
}
