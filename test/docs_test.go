// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	documentedMetric = regexp.MustCompile("`(promguard_[a-z_]+)")
	exportedMetric   = regexp.MustCompile(`(?m)^# TYPE (promguard_[a-z_]+) `)
)

func TestTheTableOfMetricsNamesAllThatPromguardExportsAndNoOthers(t *testing.T) {
	t.Parallel()
	documented := metricNames(documentedMetric, section(t, "proxy-see.md", "Metrics"))

	// Of one server alone, the newest sample is not looked at.
	p := prometheus(t, t.TempDir(), emptyConfig)
	same := strings.Replace(p.url, "127.0.0.1", "localhost", 1)
	require.NotEqual(t, p.url, same)
	g := promguardBefore(t, "", "--upstream.url="+p.url, "--upstream.url="+same)
	var exported []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && !slices.Equal(documented, exported); time.Sleep(50 * time.Millisecond) {
		exported = metricNames(exportedMetric, get(t, g.telemetry+"/metrics").body)
	}
	require.Equal(t, documented, exported)
}

func TestThePageOnTheImageListsEveryFlagThatMakesItUpstream(t *testing.T) {
	flags := regexp.MustCompile(`--(?:no-)?guard\.[a-z-]+(?:=\w+)?`)
	var listed []string
	for i, block := range strings.Split(section(t, "image.md", "Migrating"), "```") {
		if i%2 == 1 && strings.HasPrefix(block, "\n--guard.") { // Odd ones are within fences.
			listed = append(listed, flags.FindAllString(block, -1)...)
		}
	}
	slices.Sort(listed)
	off := slices.DeleteFunc(guardOffFlags(false), func(flag string) bool {
		return strings.HasPrefix(flag, "--guard.queue-timeout=") // Nothing waits.
	})
	require.Equal(t, off, listed)
}

// section returns what a page of docs says under a heading of the second level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, "%s has no section %s", page, heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// metricNames returns what a pattern finds, sorted, each once.
func metricNames(pattern *regexp.Regexp, text string) []string {
	var names []string
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		names = append(names, found[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
