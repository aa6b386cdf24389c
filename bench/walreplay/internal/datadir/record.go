// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// ManifestName is the name of the manifest in a recording.
const ManifestName = "walreplay.json"

// Manifest lists the files of a recording.
type Manifest struct {
	Format  int       `json:"format"` // 1
	Created time.Time `json:"created"`
	Files   []File    `json:"files"`
}

// File is a file of a recording.
type File struct {
	Path   string `json:"path"` // in the data directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // in hexadecimal
}

// Bytes is the size of all files, math.MaxInt64 if together they have more.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		if f.Size > math.MaxInt64-n {
			return math.MaxInt64
		}
		n += f.Size
	}
	return n
}

// Text is the manifest as ParseManifest reads it.
func (m *Manifest) Text() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", " ")
	return append(b, '\n'), err
}

// ParseManifest parses and checks a manifest. No path of a manifest that it
// returns leads out of a directory, or names what is not replayed.
func ParseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", ManifestName, err)
	}
	if m.Format != 1 {
		return nil, fmt.Errorf("%s has the format %d, and this walreplay knows 1", ManifestName, m.Format)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		root, _, _ := strings.Cut(f.Path, "/")
		sum, err := hex.DecodeString(f.SHA256)
		switch {
		case !filepath.IsLocal(filepath.FromSlash(f.Path)) || filepath.ToSlash(filepath.Clean(f.Path)) != f.Path || !isReplayed(root) || seen[f.Path]:
			return nil, fmt.Errorf("%s names %q, which is not a file of a recording", ManifestName, f.Path)
		case f.Size < 0 || err != nil || len(sum) != sha256.Size:
			return nil, fmt.Errorf("%s has no right size and sum of %s", ManifestName, f.Path)
		}
		seen[f.Path] = true
	}
	if len(m.Files) == 0 {
		return nil, fmt.Errorf("%s names no files", ManifestName)
	}
	return m, nil
}

// isReplayed says whether a start of Prometheus reads what has this name in the
// data directory.
func isReplayed(name string) bool {
	switch name {
	case "wal", wlog.WblDirName, "chunks_head", "series_state.json":
		return true
	}
	return strings.HasPrefix(name, "chunk_snapshot.")
}

// Local is where a file of the directory's manifest is.
func (d *Dir) Local(f File) string {
	for _, part := range d.parts {
		if rel, ok := strings.CutPrefix(f.Path, part.to+"/"); ok {
			return filepath.Join(part.from, filepath.FromSlash(rel))
		}
		if f.Path == part.to {
			return part.from
		}
	}
	return filepath.Join(d.Path, filepath.FromSlash(f.Path))
}

// Manifest reads and sums all files that are replayed.
func (d *Dir) Manifest(ctx context.Context) (*Manifest, error) {
	m := &Manifest{Format: 1, Created: time.Now().UTC().Truncate(time.Second)}
	err := d.walk(func(from, to string, info fs.FileInfo) error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		sum := sha256.New()
		n, err := io.Copy(&cancellable{ctx, sum}, f)
		if err != nil {
			return err
		}
		if n != info.Size() {
			return changed(from)
		}
		m.Files = append(m.Files, File{filepath.ToSlash(to), n, hex.EncodeToString(sum.Sum(nil))})
		return nil
	})
	return m, err
}

func changed(path string) error {
	return fmt.Errorf("%s changed while it was read: something still writes there; stop it, or take a snapshot of the file system and record that", path)
}

// cancellable ends with its context.
type cancellable struct {
	ctx context.Context
	w   io.Writer
}

func (w *cancellable) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(b)
}

// Record copies what is replayed, and a manifest, to a directory that must be
// new. Files that change meanwhile are an error. If it returns an error there is
// nothing there.
func (d *Dir) Record(ctx context.Context, to string) (*Manifest, error) {
	before, err := d.stat()
	if err != nil {
		return nil, err
	}
	m, err := d.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	local := func(f File) (io.ReadCloser, error) { return os.Open(d.Local(f)) }
	if err := Write(ctx, to, m, local, func() error { return d.unchanged(before) }); err != nil {
		return nil, err
	}
	return m, nil
}

type stamp struct {
	size int64
	time time.Time
}

func (d *Dir) stat() (map[string]stamp, error) {
	all := map[string]stamp{}
	err := d.walk(func(from, _ string, info fs.FileInfo) error {
		all[from] = stamp{info.Size(), info.ModTime()}
		return nil
	})
	return all, err
}

// unchanged returns an error if the files are no more those of an earlier stat.
func (d *Dir) unchanged(before map[string]stamp) error {
	after, err := d.stat()
	if err != nil {
		return err
	}
	for path, s := range after {
		if was, ok := before[path]; !ok || was.size != s.size || !was.time.Equal(s.time) {
			return changed(path)
		}
	}
	if len(after) != len(before) {
		return changed(d.Path)
	}
	return nil
}

// Write writes a recording to a directory that must be new: beside it at first,
// synced to disk, and renamed when all is there and each file has the size and
// sum that the manifest says. open gives a file's content, of which no more is
// written than the manifest says; checks are asked before the renaming. If Write
// returns an error there is nothing there.
func Write(ctx context.Context, to string, m *Manifest, open func(File) (io.ReadCloser, error), checks ...func() error) (err error) {
	switch _, err := os.Lstat(to); {
	case err == nil:
		return fmt.Errorf("%s exists; name a new directory, or remove it first", to)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(filepath.Clean(to))
	if free, err := freeBytes(parent); err != nil {
		return err
	} else if uint64(m.Bytes()) > free {
		return fmt.Errorf("the recording takes %d MiB and %s has %d MiB free", m.Bytes()>>20, parent, free>>20)
	}
	tmp, err := os.MkdirTemp(parent, ".walreplay-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // As of any directory; MkdirTemp makes it private.
		return err
	}
	w := recorder{dir: tmp, made: map[string]bool{tmp: true}}
	for _, f := range m.Files {
		if err := w.file(f, func(out io.Writer) error {
			in, err := open(f)
			if err != nil {
				return err
			}
			defer in.Close()
			_, err = io.Copy(&cancellable{ctx, out}, in)
			return err
		}); err != nil {
			return err
		}
	}
	text, err := m.Text()
	if err != nil {
		return err
	}
	if err := w.put(ManifestName, func(out io.Writer) error { _, err := out.Write(text); return err }); err != nil {
		return err
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return w.rename(to)
}

// recorder writes the files of a recording below a directory.
type recorder struct {
	dir  string
	made map[string]bool
}

// file writes a file and compares it with what the manifest says.
func (w *recorder) file(f File, write func(io.Writer) error) error {
	sum := &summing{file: f, hash: sha256.New()}
	err := w.put(filepath.FromSlash(f.Path), func(out io.Writer) error {
		sum.w = out
		return write(sum)
	})
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.hash.Sum(nil)); sum.n != f.Size || !strings.EqualFold(got, f.SHA256) {
		return fmt.Errorf("%s has %d bytes with the SHA-256 %s, and not the %d bytes with %s of its manifest", f.Path, sum.n, got, f.Size, f.SHA256)
	}
	return nil
}

// summing sums what is written of a file, and refuses what is beyond its size:
// the sizes of a manifest are what there is room for on the disk.
type summing struct {
	file File
	w    io.Writer
	hash hash.Hash
	n    int64
}

func (s *summing) Write(b []byte) (int, error) {
	if int64(len(b)) > s.file.Size-s.n {
		return 0, fmt.Errorf("%s has more than the %d bytes of its manifest", s.file.Path, s.file.Size)
	}
	n, err := s.w.Write(b)
	s.hash.Write(b[:n])
	s.n += int64(n)
	return n, err
}

func (w *recorder) put(rel string, write func(io.Writer) error) (err error) {
	path := filepath.Join(w.dir, rel)
	for dir := filepath.Dir(path); !w.made[dir]; dir = filepath.Dir(dir) {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		w.made[dir] = true
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := write(f); err != nil {
		return err
	}
	return f.Sync()
}

// rename syncs the directories and gives the whole its name.
func (w *recorder) rename(to string) error {
	for dir := range w.made {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(w.dir, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(to)))
}

func syncDir(path string) error {
	dir, err := fileutil.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fdatasync(dir), dir.Close())
}
