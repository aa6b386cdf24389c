// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		Uses           string            `yaml:"uses"`
		Needs          []string          `yaml:"needs"`
		TimeoutMinutes int               `yaml:"timeout-minutes"`
		Permissions    map[string]string `yaml:"permissions"`
		Steps          []struct {
			Uses string         `yaml:"uses"`
			Run  string         `yaml:"run"`
			With map[string]any `yaml:"with"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[filepath.Base(file)] = string(text)
	}
	return texts
}

func TestWorkflowsPinWhatTheyUseAndMayWriteOnlyWhereTheyPublish(t *testing.T) {
	pinned := regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`)
	pins := map[string]string{}
	for name, text := range workflows(t) {
		var w workflow
		require.NoError(t, yaml.Unmarshal([]byte(text), &w), name)
		require.Equal(t, map[string]string{"contents": "read"}, w.Permissions, name)
		for job, j := range w.Jobs {
			if j.Uses != "" {
				require.Contains(t, workflows(t), strings.TrimPrefix(j.Uses, "./.github/workflows/"), "%s: %s", name, job)
				continue
			}
			require.Positive(t, j.TimeoutMinutes, "%s: %s", name, job)
			if job != "publish" {
				require.Empty(t, j.Permissions, "%s: %s", name, job)
			}
			for _, step := range j.Steps {
				// What an event brings along is text of somebody else's.
				require.NotContains(t, step.Run, "${{", "%s: %s", name, job)
				if step.Uses == "" {
					continue
				}
				require.Regexp(t, pinned, step.Uses)
				// One version of an action everywhere, and said which it is.
				action, sha, _ := strings.Cut(step.Uses, "@")
				if pins[action] != "" {
					require.Equal(t, pins[action], sha, action)
				}
				pins[action] = sha
				require.Regexp(t, step.Uses+` # v[0-9]+\.[0-9]+\.[0-9]+\n`, text)
				if action == "actions/checkout" {
					require.Equal(t, false, step.With["persist-credentials"], "%s: %s", name, job)
				}
			}
		}
	}
}

func TestAReleaseWaitsForEverythingThatAChangeIsTestedBy(t *testing.T) {
	var w workflow
	require.NoError(t, yaml.Unmarshal([]byte(workflows(t)["release.yml"]), &w))
	require.Equal(t, "./.github/workflows/ci.yml", w.Jobs["test"].Uses)
	require.ElementsMatch(t, []string{"test", "build"}, w.Jobs["publish"].Needs)
}

func TestWorkflowsCallTargetsThatExist(t *testing.T) {
	targets := ""
	for _, file := range []string{"../../Makefile", "../packaging.mk", "../cluster.mk"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		targets += string(text)
	}
	called := regexp.MustCompile(`\bmake (?:--silent )?([a-z-]+)`)
	found := 0
	for name, text := range workflows(t) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "name: ") || strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			for _, m := range called.FindAllStringSubmatch(line, -1) {
				require.Regexp(t, `(?m)^([a-z-]+ )*`+m[1]+`( [a-z-]+)*:`, targets, "%s: make %s", name, m[1])
				found++
			}
		}
	}
	require.Positive(t, found)
}
