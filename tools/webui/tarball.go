// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// writeTarball writes assets to file, whole or not at all. Names are sorted and
// times, owners and modes fixed: the same assets give the same bytes.
func writeTarball(file string, assets map[string][]byte) (err error) {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, name := range sortedNames(assets) {
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(assets[name])), ModTime: time.Unix(0, 0)}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		if _, err := tw.Write(assets[name]); err != nil {
			return err
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(b.Bytes())
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// readTarball reads a file that writeTarball wrote.
func readTarball(file string) (map[string][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	assets := map[string][]byte{}
	tr := tar.NewReader(zr)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if assets[header.Name], err = io.ReadAll(tr); err != nil {
			return nil, err
		}
	}
	// gzip's checksum is behind the last entry: read on to have it checked.
	_, err = io.Copy(io.Discard, zr)
	return assets, err
}

// install replaces the assets in ui with those of tarball, and returns how many
// files that are. embed.go comes last, so that a tree where install was cut
// short does not build with half of the assets.
func install(tarball, ui string) (int, error) {
	assets, err := readTarball(tarball)
	if err == nil && assets[embedFile] == nil {
		err = errors.New("no " + embedFile + " in it")
	}
	if err != nil {
		return 0, fmt.Errorf("%s is damaged, remove it and run again: %w", tarball, err)
	}
	// A Root keeps a hostile tarball's names, and links in the tree, inside ui.
	root, err := os.OpenRoot(ui)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	for _, old := range []string{embedFile, staticDir} {
		if err := root.RemoveAll(old); err != nil {
			return 0, err
		}
	}
	for _, name := range sortedNames(assets) {
		if name == embedFile {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return 0, err
		}
		if err := root.WriteFile(name, assets[name], 0o644); err != nil {
			return 0, err
		}
	}
	return len(assets), root.WriteFile(embedFile, assets[embedFile], 0o644)
}
