// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/promguard/promguard/tools/panels/sample"
)

// web is what draws: it is bundled with Grafana's packages and runs in Chromium.
//
//go:embed web/package.json web/package-lock.json web/.npmrc web/*.js web/*.jsx web/*.css web/*.mjs
var web embed.FS

// width of a picture of a dashboard, in pixels.
const width = 1600

// oldestNode is the oldest major version of Node.js that the packages run with.
const oldestNode = 20

// closeUps are single panels that have pictures of their own, by name.
var closeUps = map[string]map[string]string{
	"promguard-guard":  {"panel-requests-by-status": "Requests by status"},
	"promguard-server": {"panel-budget-of-reads": "Budget of reads"},
}

// drawer draws pages with Grafana's components.
type drawer struct {
	dir, out string
	chromium string
}

// newDrawer looks for what it needs, and installs Grafana's packages.
func newDrawer(o options) (drawer, error) {
	chromium, err := findPrograms()
	if err != nil {
		return drawer{}, err
	}
	dir, err := filepath.Abs(filepath.Join(o.work, "web"))
	if err != nil {
		return drawer{}, err
	}
	out, err := filepath.Abs(o.out)
	if err != nil {
		return drawer{}, err
	}
	d := drawer{dir: dir, out: out, chromium: chromium}
	return d, d.install()
}

// findPrograms says what is missing on this machine and which package has it. It
// returns the path of Chromium.
func findPrograms() (string, error) {
	var missing []error
	for program, pkg := range map[string]string{"node": "nodejs", "npm": "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("%s is not in PATH (Debian: `apt install %s`)", program, pkg))
		}
	}
	if out, err := exec.Command("node", "--version").Output(); err == nil {
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
			missing = append(missing, fmt.Errorf("node is %s, and Grafana's packages need v%d or newer", bytes.TrimSpace(out), oldestNode))
		}
	}
	chromium := os.Getenv("CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); chromium == "" && err == nil {
			chromium = path
		}
	}
	if chromium == "" {
		missing = append(missing, errors.New("no Chromium is in PATH nor named by CHROMIUM (Debian: `apt install chromium`)"))
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("pictures cannot be made; --check asks the panels' queries without them:\n%w", errors.Join(missing...))
	}
	return chromium, nil
}

// install brings the sources and the packages of the lock file up to date.
func (d drawer) install() error {
	lock, err := web.ReadFile("web/package-lock.json")
	if err != nil {
		return err
	}
	sources, err := fs.Sub(web, "web")
	if err != nil {
		return err
	}
	installed := filepath.Join(d.dir, "installed.json")
	before, _ := os.ReadFile(installed)
	modules := filepath.Join(d.dir, "node_modules")
	if err := fs.WalkDir(sources, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(d.dir, name), 0o755))
		}
		text, err := fs.ReadFile(sources, name)
		return errors.Join(err, os.WriteFile(filepath.Join(d.dir, name), text, 0o644))
	}); err != nil {
		return err
	}
	if _, err := os.Stat(modules); err == nil && bytes.Equal(before, lock) {
		return nil
	}
	fmt.Println("installing Grafana's packages ...")
	npm := exec.Command("npm", "ci")
	npm.Dir, npm.Stderr = d.dir, os.Stderr
	if err := npm.Run(); err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return os.WriteFile(installed, lock, 0o644)
}

// order is a page to be drawn, as draw.mjs reads it.
type order struct {
	File  string `json:"file"`
	Name  string `json:"name"`
	Width int    `json:"width"`
	// Panels are the ids of those that have pictures of their own, by name.
	Panels map[string]int `json:"panels"`
}

// draw writes a picture of every page.
func (d drawer) draw(ctx context.Context, pages []page) error {
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return err
	}
	var orders []order
	for _, p := range pages {
		o, err := d.order(p)
		if err != nil {
			return err
		}
		orders = append(orders, o)
	}
	text, err := json.Marshal(map[string]any{
		"modules": filepath.Join(d.dir, "node_modules"), "chromium": d.chromium, "out": d.out, "pages": orders,
	})
	if err != nil {
		return err
	}
	file := filepath.Join(d.dir, "orders.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	node := exec.CommandContext(ctx, "node", "draw.mjs", file)
	node.Dir, node.Stdout, node.Stderr = d.dir, os.Stdout, os.Stderr
	if err := node.Run(); err != nil {
		return fmt.Errorf("node draw.mjs: %w", err)
	}
	for _, o := range orders {
		for _, name := range slices.Sorted(maps.Keys(o.Panels)) {
			err = errors.Join(err, shrink(filepath.Join(d.out, name+".png")))
		}
		err = errors.Join(err, shrink(filepath.Join(d.out, o.Name+".png")))
	}
	return err
}

// order writes what there is to draw of a page into a file.
func (d drawer) order(p page) (order, error) {
	o := order{File: filepath.Join(d.dir, p.UID+".json"), Name: p.UID, Width: p.width(), Panels: map[string]int{}}
	for name, title := range closeUps[p.UID] {
		for _, panel := range p.Panels {
			if panel.Title == title && len(panel.Targets) > 0 {
				o.Panels[name] = panel.ID
			}
		}
		if o.Panels[name] == 0 {
			return order{}, fmt.Errorf("%s has no panel %q", p.UID, title)
		}
	}
	text, err := json.Marshal(map[string]any{
		"dashboard": p.json, "answers": p.answers, "variables": p.variables,
		"range": map[string]int64{"from": sample.End.Add(-sample.Shown).UnixMilli(), "to": sample.End.UnixMilli()},
	})
	if err != nil {
		return order{}, err
	}
	return o, os.WriteFile(o.File, text, 0o644)
}
