// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// untar writes an archive of files, directories and symbolic links below dir,
// which it makes. Nothing is written outside of dir, whatever the archive says.
func untar(r io.Reader, dir string, owners bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(r)
	// A directory's mode may keep its own files out, so it is set at the end.
	var dirs []*tar.Header
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		h.Name = strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Name == "" {
			continue
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
		if err := untarOne(root, h, archive, owners); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	for _, dir := range slices.Backward(dirs) {
		if err := root.Chmod(dir.Name, modeOf(dir)); err != nil {
			return err
		}
	}
	return nil
}

func untarOne(root *os.Root, h *tar.Header, content io.Reader, owners bool) error {
	if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(h.Name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeSymlink:
		if err := root.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), h.Name)
	case tar.TypeReg:
		if err := writeFile(root, h, content); err != nil {
			return err
		}
	default:
		return fmt.Errorf("a file of type %q is no part of an image that runs without privileges", h.Typeflag)
	}
	if owners {
		return root.Lchown(h.Name, h.Uid, h.Gid)
	}
	return nil
}

func writeFile(root *os.Root, h *tar.Header, content io.Reader) error {
	out, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	// Not as given to OpenFile: the umask would take bits away.
	return errors.Join(err, out.Chmod(modeOf(h)), out.Close())
}

func modeOf(h *tar.Header) fs.FileMode {
	mode := fs.FileMode(h.Mode).Perm()
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}
