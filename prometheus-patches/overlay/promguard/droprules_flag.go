// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/web/api/v1"
)

// dropRulesFlag is the value of --guard.drop-rules: PROFILE[,PATH=PROFILE]...
type dropRulesFlag struct {
	text string
	// source is the name of a profile, or a file.
	source string
	// received has the built-in profiles that hold for what comes by other paths
	// than a scrape, where the flag names them.
	received map[string]string
}

// receivePaths are the ways in which samples come but by scrapes.
var receivePaths = []string{v1.PathRemoteWrite, v1.PathOTLP}

// Set implements kingpin.Value.
func (f *dropRulesFlag) Set(s string) error {
	*f = dropRulesFlag{text: s, source: s, received: map[string]string{}}
	for {
		i := strings.LastIndexByte(f.source, ',')
		path, profile, ok := strings.Cut(f.source[i+1:], "=")
		if i < 0 || !ok {
			return nil // What is left may be a file of any name.
		}
		if !slices.Contains(receivePaths, path) {
			return fmt.Errorf("%q: %q is not one of %s", s, path, strings.Join(receivePaths, ", "))
		}
		if !slices.Contains(relabel.ProfileNames(), profile) {
			return fmt.Errorf("%q: %s=%s is not one of %s", s, path, profile, strings.Join(relabel.ProfileNames(), ", "))
		}
		if _, twice := f.received[path]; twice {
			return fmt.Errorf("%q: %s is there twice", s, path)
		}
		f.received[path] = profile
		f.source = f.source[:i]
	}
}

// String implements kingpin.Value.
func (f *dropRulesFlag) String() string { return f.text }

// of returns the source of the rules that hold for what comes by the path.
func (f *dropRulesFlag) of(path string) string {
	if profile, ok := f.received[path]; ok {
		return profile
	}
	return f.source
}

// off reports whether nothing is dropped anywhere.
func (f *dropRulesFlag) off() bool {
	return f.source == relabel.ProfileOff &&
		!slices.ContainsFunc(receivePaths, func(path string) bool { return f.of(path) != relabel.ProfileOff })
}
