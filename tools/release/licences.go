// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	licencesFile = "third-party-licenses.txt"
	rootsModule  = "golang.org/x/crypto/x509roots/fallback"
	// webUIList is what the web UI's bundler writes of the packages in it.
	webUIList = "web/ui/static/mantine-ui/assets/third-party-licenses.txt.gz"
	webUITag  = "builtinassets"
)

// legal are the licences and notices that go along with binaries: those of the
// product itself below top, and all others below licences.
func (r release) legal(ctx context.Context, p product, platform string, binaries []string, top, licences string) ([]file, error) {
	texts, err := r.thirdParty(ctx, p, platform, binaries)
	if err != nil {
		return nil, err
	}
	files := []file{
		copyOf(top+"LICENSE", filepath.Join(r.source(p), "LICENSE")),
		copyOf(top+"NOTICE", filepath.Join(r.source(p), "NOTICE")),
		textFile(licences+licencesFile, texts.String()),
	}
	if p.patched {
		files = append(files, copyOf(licences+"NOTICE.promguard", filepath.Join(r.root, "NOTICE")))
	}
	return files, nil
}

// thirdParty are the texts in Go's own tree, in the modules that the linker put into
// the binaries, in that of the root certificates, and in the web UI.
func (r release) thirdParty(ctx context.Context, p product, platform string, binaries []string) (*licenceTexts, error) {
	var modules []string
	webUI := false
	for _, binary := range binaries {
		m, ui, err := linked(filepath.Join(r.binaries(platform), binary), platform)
		if err != nil {
			return nil, err
		}
		modules, webUI = append(modules, m...), webUI || ui
	}
	texts := &licenceTexts{owners: map[string][]string{}}
	// The root certificates are of the version that go.mod has.
	if err := errors.Join(texts.addModules(ctx, r.root, []string{rootsModule}), texts.addModules(ctx, r.source(p), modules)); err != nil {
		return nil, err
	}
	goroot, err := goCommand(ctx, r.root, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("the licence of Go must go along with the binaries: %w", err)
	}
	texts.add("Go's standard library, LICENSE", string(text))
	if webUI {
		text, err := readGzip(filepath.Join(r.source(p), webUIList))
		if err != nil {
			return nil, fmt.Errorf("the web UI is in the binaries, and its licences are not in the source: %w", err)
		}
		texts.add("npm packages in the web UI", text)
	}
	return texts, nil
}

// linked reads in a binary which modules the linker put in, and whether the web UI is
// there. The binary must be for the platform.
func linked(file, platform string) (modules []string, webUI bool, err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", file, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if is := settings["GOOS"] + "/" + settings["GOARCH"]; is != platform {
		return nil, false, fmt.Errorf("%s is for %s, not for %s", file, is, platform)
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m.Path+"@"+m.Version)
	}
	return modules, slices.Contains(strings.Split(settings["-tags"], ","), webUITag), nil
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s %s: %w %s", args[0], args[1], err, out)
	}
	return out, nil
}

func readGzip(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(plain)
	return string(text), err
}

// licenceTexts are texts, in the order in which they came, each with those that
// come under it.
type licenceTexts struct {
	texts  []string
	owners map[string][]string
}

func (l *licenceTexts) add(owner, text string) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if l.owners[text] == nil {
		l.texts = append(l.texts, text)
	}
	l.owners[text] = append(l.owners[text], owner)
}

// addModules adds what is in modules, in the order of their names. The go command runs
// in dir, the root of the module that requires them.
func (l *licenceTexts) addModules(ctx context.Context, dir string, modules []string) error {
	if len(modules) == 0 {
		return nil
	}
	slices.Sort(modules)
	out, err := goCommand(ctx, dir, append([]string{"mod", "download", "-json"}, slices.Compact(modules)...)...)
	if err != nil {
		return err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m struct{ Path, Version, Dir string }
		if err := decoder.Decode(&m); err != nil {
			return err
		}
		if err := l.addDir(m.Path+" "+m.Version, m.Dir); err != nil {
			return err
		}
	}
	return nil
}

var (
	licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|copyright)([._-][a-z0-9._-]+)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([._-][a-z0-9._-]+)?$`)
	sourceFile  = regexp.MustCompile(`(?i)\.(go|ya?ml|json|tmpl|sh|s|c|h)$`)
)

// addDir adds the licences and notices of a module: those at its root, and those of
// code that it took from others. A module without one at its root is an error: it may
// not be handed on.
func (l *licenceTexts) addDir(owner, dir string) error {
	licensed := false
	err := fs.WalkDir(os.DirFS(dir), ".", func(file string, d fs.DirEntry, err error) error {
		name := path.Base(file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (name == "testdata" || name[0] == '.'):
			return fs.SkipDir
		case !d.Type().IsRegular() || sourceFile.MatchString(name) || !licenceFile.MatchString(name) && !noticeFile.MatchString(name):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		l.add(owner+", "+file, string(text))
		licensed = licensed || licenceFile.MatchString(file) && len(bytes.TrimSpace(text)) > 0
		return err
	})
	if err == nil && !licensed {
		err = errors.New("no licence is in the module")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", owner, err)
	}
	return nil
}

func (l *licenceTexts) String() string {
	var parts []string
	for _, text := range l.texts {
		parts = append(parts, strings.Join(l.owners[text], "\n")+"\n\n"+text+"\n")
	}
	return strings.Join(parts, "\n"+strings.Repeat("=", 80)+"\n\n")
}
