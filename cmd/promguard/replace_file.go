// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkReplaceable finds out, before long work, what would keep replaceFile from
// writing to a path.
func checkReplaceable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case err == nil:
		return nil
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("%s cannot be written: there is no directory %s", path, filepath.Dir(path))
	}
	return nil
}

// replaceFile writes the file as a whole or not at all, with the mode that it has.
// A link stays one.
func replaceFile(path string, text []byte) (err error) {
	if err := checkReplaceable(path); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		if inner, ok := errors.AsType[*fs.PathError](err); ok { // It names the temporary file.
			err = inner.Err
		}
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, writeErr := tmp.Write(text)
	if err := cmp.Or(writeErr, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
