// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file in an archive.
type file struct {
	path  string // Relative, with slashes; that of a directory ends with one.
	mode  int64
	owner int    // Number of the user and of the group.
	text  string // The content, unless source is set.
	// source is the file on this machine with the content.
	source string
}

// textFile is a file that everyone may read.
func textFile(path, text string) file { return file{path: path, mode: 0o644, text: text} }

// copyOf is a file that everyone may read, with the content of another.
func copyOf(path, source string) file { return file{path: path, mode: 0o644, source: source} }

// program is a file that everyone may run.
func program(path, source string) file { return file{path: path, mode: 0o755, source: source} }

// below are all files below a directory that keep accepts, to lie below to.
func below(dir, to string, keep func(string) bool) ([]file, error) {
	var files []file
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && keep(name) {
			files = append(files, copyOf(path.Join(to, name), filepath.Join(dir, name)))
		}
		return err
	})
	return files, err
}

// writeTar writes files in the order of their paths, all of one time, and before
// each the directories that lead to it, which are root's unless they are among the
// files. The same files always give the same bytes.
func writeTar(w io.Writer, files []file, at time.Time) error {
	all := map[string]file{}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.path)); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir+"/"]; !ok {
				all[dir+"/"] = file{path: dir + "/", mode: 0o755}
			}
		}
		all[f.path] = f
	}
	archive := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := all[name].writeTo(archive, at); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

func (f file) writeTo(archive *tar.Writer, at time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), ModTime: at,
	}
	if strings.HasSuffix(f.path, "/") {
		header.Typeflag = tar.TypeDir
	}
	var content io.Reader = strings.NewReader(f.text)
	if f.source != "" {
		in, err := os.Open(f.source)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		header.Size, content = info.Size(), in
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	// A file that grew or shrank meanwhile is an error of the archive's.
	_, err := io.Copy(archive, content)
	return err
}

// packed is the compressed archive of the files.
func packed(files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	if err := writeTar(zipped, files, at); err != nil {
		return nil, err
	}
	err := zipped.Close()
	return buf.Bytes(), err
}
