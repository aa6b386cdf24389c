// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrEdited is returned by Apply for a tree with work in it that Export has
// not written back.
var ErrEdited = errors.New("the tree was edited")

// Apply makes the tree from source, the unpacked upstream module: upstream's
// files, the new files, then every patch, one commit each. A tree that is up to
// date is left alone, and then applied is false. A tree that was edited is
// refused with ErrEdited unless discard is set.
func (s *Set) Apply(ctx context.Context, source string, tree Tree, discard bool) (applied bool, err error) {
	inputs, err := s.inputs(source)
	if err != nil {
		return false, err
	}
	if tree.exists() && !discard {
		edited, err := tree.edited(ctx)
		if err != nil {
			return false, err
		}
		if edited != "" {
			return false, fmt.Errorf("%w: %s has %s that are in no patch: export them, or discard them with --discard", ErrEdited, tree.Dir, edited)
		}
		if tree.mark(inputsMark) == inputs {
			return false, nil
		}
	}
	if err := s.resetToUpstream(ctx, source, tree); err != nil {
		return false, err
	}
	if err := s.addNewFiles(ctx, tree); err != nil {
		return false, err
	}
	for _, p := range s.Patches {
		if err := tree.applyPatch(ctx, p); err != nil {
			return false, err
		}
	}
	head, err := tree.Revision(ctx)
	if err != nil {
		return false, err
	}
	marks := errors.Join(tree.setMark(inputsMark, inputs), tree.setMark(patchesMark, s.patchesHash()))
	return true, errors.Join(marks, tree.setMark(headMark, head))
}

// resetToUpstream leaves the tree at upstream's files, from its repository when
// they came from the same source, else anew.
func (s *Set) resetToUpstream(ctx context.Context, source string, tree Tree) error {
	reuse := tree.exists() && tree.mark(sourceMark) == source && !tree.rebasing()
	if err := tree.unmark(); err != nil {
		return err
	}
	if reuse {
		return tree.restoreUpstream(ctx)
	}
	if err := tree.create(ctx); err != nil {
		return err
	}
	if err := tree.commitSource(ctx, source, s.Upstream); err != nil {
		return err
	}
	return tree.setMark(sourceMark, source)
}

// commitSource copies upstream's files into the tree and commits them.
func (t Tree) commitSource(ctx context.Context, source string, u Upstream) error {
	var paths []string
	err := walkFiles(source, func(rel string) error {
		// The module's own workspace names modules that are not in its archive.
		if rel == "go.work" {
			return nil
		}
		paths = append(paths, rel)
		return copyFile(filepath.Join(source, rel), filepath.Join(t.Dir, rel))
	})
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s has no files: it is no module's source", source)
	}
	return t.commit(ctx, fmt.Sprintf("%s %s\n", u.Module, u.Version), upstreamRef, paths)
}

// addNewFiles copies the overlay and the shared packages and commits them.
func (s *Set) addNewFiles(ctx context.Context, tree Tree) error {
	upstream, err := tree.paths(ctx, upstreamRef)
	if err != nil {
		return err
	}
	var paths []string
	from := map[string]string{}
	for _, d := range s.newFileDirs() {
		err := walkFiles(d.dir, func(rel string) error {
			src, path := filepath.Join(d.dir, rel), filepath.Join(d.at, rel)
			if upstream[path] {
				return fmt.Errorf("%s: %s is a file of upstream: change it with a patch, or choose another name", s.rel(src), path)
			}
			if other := from[path]; other != "" {
				return fmt.Errorf("%s and %s both become %s: remove one", other, s.rel(src), path)
			}
			from[path] = s.rel(src)
			paths = append(paths, path)
			return copyFile(src, filepath.Join(tree.Dir, path))
		})
		if err != nil {
			return err
		}
	}
	return tree.commit(ctx, "New files\n", newFilesRef, paths)
}

// newFileDir is a directory whose files are copied into the tree below at.
type newFileDir struct{ dir, at string }

func (s *Set) newFileDirs() []newFileDir {
	var dirs []newFileDir
	if s.overlay != "" {
		dirs = append(dirs, newFileDir{dir: s.overlay})
	}
	for _, c := range s.Upstream.Copy {
		dirs = append(dirs, newFileDir{dir: filepath.Join(s.Root, c), at: c})
	}
	return dirs
}

// applyPatch applies one patch and commits it.
func (t Tree) applyPatch(ctx context.Context, p Patch) error {
	if _, err := t.git(ctx, p.Diff, "apply", "--index", "--whitespace=nowarn", "-"); err != nil {
		return fmt.Errorf("%s does not apply: %w\n%s stands at the commit before it: correct the patch, apply again, then export", p.Name, err, t.Dir)
	}
	_, err := t.git(ctx, p.Message, "commit", "--quiet", "--no-verify", "--cleanup=verbatim", "--file=-")
	return err
}

// patchesHash identifies the patches.
func (s *Set) patchesHash() string {
	h := sha256.New()
	for _, p := range s.Patches {
		fmt.Fprintf(h, "%s\n%s\n", p.Name, p.Format())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inputs identifies everything that a tree is made of. The files of source are
// not read: a module in the module cache never changes.
func (s *Set) inputs(source string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%+v\n%s\n", source, s.Upstream, s.patchesHash())
	for _, from := range s.newFileDirs() {
		err := walkFiles(from.dir, func(rel string) error {
			b, err := os.ReadFile(filepath.Join(from.dir, rel))
			fmt.Fprintf(h, "%s %d\n%s\n", filepath.Join(from.at, rel), len(b), b)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Source returns the directory of the pinned module in the module cache,
// downloading it first if need be. The repository's own go.mod must pin the
// same version, so that both are built against one upstream.
func (s *Set) Source(ctx context.Context) (string, error) {
	var required struct{ Version string }
	if err := s.goJSON(ctx, &required, "list", "-m", "-json", s.Upstream.Module); err != nil {
		return "", err
	}
	if required.Version != s.Upstream.Version {
		return "", fmt.Errorf("go.mod requires %s %s and %s names %s: make them the same",
			s.Upstream.Module, required.Version, filepath.Join(s.Dir, upstreamFile), s.Upstream.Version)
	}
	_, dir, err := s.download(ctx, s.Upstream.Version)
	return dir, err
}

// download returns the version of upstream that a query finds, and its directory
// in the module cache.
func (s *Set) download(ctx context.Context, query string) (version, dir string, err error) {
	var downloaded struct{ Version, Dir, Error string }
	if err := s.goJSON(ctx, &downloaded, "mod", "download", "-json", s.Upstream.Module+"@"+query); err != nil {
		return "", "", err
	}
	if downloaded.Error != "" {
		return "", "", errors.New(downloaded.Error)
	}
	return downloaded.Version, downloaded.Dir, nil
}

func (s *Set) goJSON(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.Root
	out, err := cmd.Output()
	if len(out) == 0 && err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return fmt.Errorf("go %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
		}
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return json.Unmarshal(out, into)
}

// walkFiles calls f with the path of every regular file below dir, relative to
// dir and in lexical order, but for those of a git repository. A directory that
// does not exist has no files.
func walkFiles(dir string, f func(rel string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir {
			return nil
		}
		if err == nil && d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil // Of a worktree or a submodule.
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return f(rel)
	})
}

// copyDir copies the files below src, which may be read-only, as writable ones.
func copyDir(src, dst string) error {
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	return walkFiles(src, func(rel string) error {
		return copyFile(filepath.Join(src, rel), filepath.Join(dst, rel))
	})
}

func copyFile(src, dst string) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}
