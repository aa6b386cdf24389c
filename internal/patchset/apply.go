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

// Ignored by the tree's repository: what a build of the web UI leaves there.
const treeExcludes = "/web/ui/static/\n/web/ui/embed.go\n"

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
	return true, errors.Join(tree.setMark(inputsMark, inputs), tree.setMark(headMark, head))
}

// resetToUpstream leaves the tree at upstream's files, from the repository
// when it is of the same source, else anew.
func (s *Set) resetToUpstream(ctx context.Context, source string, tree Tree) error {
	reuse := tree.exists() && tree.mark(sourceMark) == source
	// From here on the tree is half made: without this mark it is none, and the
	// next Apply starts afresh.
	if err := os.Remove(filepath.Join(tree.Dir, ".git", headMark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if reuse {
		for _, args := range [][]string{
			{"checkout", "--quiet", "--force", "--detach", upstreamRef},
			{"clean", "--quiet", "-d", "--force"},
		} {
			if _, err := tree.git(ctx, "", args...); err != nil {
				return err
			}
		}
		return nil
	}
	if err := removeTree(tree.Dir); err != nil {
		return err
	}
	if err := copyDir(source, tree.Dir); err != nil {
		return err
	}
	// The module's own workspace names modules that are not in its archive.
	if err := os.Remove(filepath.Join(tree.Dir, "go.work")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := tree.git(ctx, "", "init", "--quiet", "--template="); err != nil {
		return err
	}
	info := filepath.Join(tree.Dir, ".git", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(info, "exclude"), []byte(treeExcludes), 0o644); err != nil {
		return err
	}
	message := fmt.Sprintf("%s %s", s.Upstream.Module, s.Upstream.Version)
	if err := tree.commitAll(ctx, message, upstreamRef); err != nil {
		return err
	}
	return tree.setMark(sourceMark, source)
}

// removeTree deletes a tree, and nothing that is not one.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	isTree := len(entries) == 0
	for _, e := range entries {
		isTree = isTree || e.Name() == ".git" || e.Name() == "go.mod"
	}
	if !isTree {
		return fmt.Errorf("%s exists and is no source tree: choose another directory", dir)
	}
	return os.RemoveAll(dir)
}

// addNewFiles copies the overlay and the shared packages and commits them.
func (s *Set) addNewFiles(ctx context.Context, tree Tree) error {
	for _, from := range s.newFileDirs() {
		err := walkFiles(from.dir, func(rel string) error {
			dst := filepath.Join(tree.Dir, from.at, rel)
			if _, err := os.Lstat(dst); err == nil {
				return fmt.Errorf("%s is a file of upstream: change it with a patch", filepath.Join(from.at, rel))
			}
			return copyFile(filepath.Join(from.dir, rel), dst)
		})
		if err != nil {
			return err
		}
	}
	return tree.commitAll(ctx, "New files", newFilesRef)
}

// newFileDir is a directory whose files are copied into the tree below at.
type newFileDir struct{ dir, at string }

func (s *Set) newFileDirs() []newFileDir {
	dirs := []newFileDir{{dir: s.overlay()}}
	for _, c := range s.Upstream.Copy {
		dirs = append(dirs, newFileDir{dir: filepath.Join(s.Root, c), at: c})
	}
	return dirs
}

// applyPatch applies one patch and commits it.
func (t Tree) applyPatch(ctx context.Context, p Patch) error {
	if _, err := t.git(ctx, p.Diff, "apply", "--index", "--whitespace=nowarn", "-"); err != nil {
		return fmt.Errorf("%s does not apply: %w", p.Name, err)
	}
	_, err := t.git(ctx, p.Message, "commit", "--quiet", "--no-verify", "--cleanup=verbatim", "--file=-")
	return err
}

// inputs identifies everything that a tree is made of.
func (s *Set) inputs(source string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%+v\n", source, s.Upstream)
	for _, p := range s.Patches {
		fmt.Fprintf(h, "%s\n%s\n", p.Name, p.Format())
	}
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
	var downloaded struct{ Dir, Error string }
	if err := s.goJSON(ctx, &downloaded, "mod", "download", "-json", s.Upstream.Module+"@"+s.Upstream.Version); err != nil {
		return "", err
	}
	if downloaded.Error != "" {
		return "", errors.New(downloaded.Error)
	}
	return downloaded.Dir, nil
}

func (s *Set) goJSON(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.Root
	out, err := cmd.Output()
	if len(out) == 0 && err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("go %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
		}
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return json.Unmarshal(out, into)
}

// walkFiles calls f with the path of every regular file below dir, relative to
// dir and in lexical order. A directory that does not exist has no files.
func walkFiles(dir string, f func(rel string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir {
			return nil
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
