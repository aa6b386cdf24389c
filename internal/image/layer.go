// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is a file of a layer, or a directory where Mode has fs.ModeDir.
type File struct {
	// Path in the image: absolute, clean, with slashes.
	Path string
	// Mode is fs.ModeDir, the permissions and fs.ModeSticky; nothing else counts.
	Mode fs.FileMode
	// UID and GID are numbers: names would need the image's own /etc/passwd.
	UID, GID int
	// Text is the content, unless Source is set.
	Text []byte
	// Source is the path of a file on this machine with the content.
	Source string
}

// Dir is a directory.
func Dir(path string, mode fs.FileMode, uid, gid int) File {
	return File{Path: path, Mode: fs.ModeDir | mode, UID: uid, GID: gid}
}

// Text is a file of root's that everyone may read.
func Text(path, text string) File { return File{Path: path, Mode: 0o644, Text: []byte(text)} }

// Copy is a file of root's with the content of one on this machine.
func Copy(path string, mode fs.FileMode, source string) File {
	return File{Path: path, Mode: mode, Source: source}
}

// pack makes a compressed layer of the files. It is kept in memory, as it is
// read several times: for its digest, for a layout, and for an archive.
func pack(files []File, at time.Time) (v1.Layer, error) {
	var buf bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&buf, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if err := WriteTar(zipped, files, at); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// WriteTar writes the files in the order of their paths, all of one time, and
// before each the directories that lead to it. Those that are not among the
// files are root's, with mode 0755. It is the archive that the same files
// always give.
func WriteTar(w io.Writer, files []File, at time.Time) error {
	files, err := withParents(files)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, f := range files {
		if err := f.writeTo(archive, at); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return archive.Close()
}

// withParents returns the files sorted, with the directories that lead to them.
func withParents(files []File) ([]File, error) {
	all := map[string]File{}
	for _, f := range files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" {
			return nil, fmt.Errorf("%q is no absolute, clean path of a file", f.Path)
		}
		if _, twice := all[f.Path]; twice {
			return nil, fmt.Errorf("%s is there twice", f.Path)
		}
		all[f.Path] = f
	}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			parent, ok := all[dir]
			if ok && !parent.Mode.IsDir() {
				return nil, fmt.Errorf("%s is a file, and %s lies in it", dir, f.Path)
			}
			if !ok {
				all[dir] = Dir(dir, 0o755, 0, 0)
			}
		}
	}
	sorted := make([]File, 0, len(all))
	for _, f := range all {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return sorted, nil
}

func (f File) writeTo(archive *tar.Writer, at time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(f.Path, "/"),
		Mode:     int64(f.Mode.Perm()),
		Uid:      f.UID,
		Gid:      f.GID,
		ModTime:  at.UTC().Truncate(time.Second),
	}
	if f.Mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	if f.Mode.IsDir() {
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		return archive.WriteHeader(header)
	}
	content, size, err := f.open()
	if err != nil {
		return err
	}
	defer content.Close()
	header.Size = size
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	// A file that grew or shrank meanwhile is an error of the archive's.
	_, err = io.Copy(archive, content)
	return err
}

// open returns the file's content and its size in bytes.
func (f File) open() (io.ReadCloser, int64, error) {
	if f.Source == "" {
		return io.NopCloser(bytes.NewReader(f.Text)), int64(len(f.Text)), nil
	}
	in, err := os.Open(f.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := in.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.Source)
	}
	if err != nil {
		in.Close()
		return nil, 0, err
	}
	return in, info.Size(), nil
}
