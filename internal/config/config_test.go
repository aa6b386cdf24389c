// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGoodFilesLoad(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.good.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			c, err := Load(path)
			require.NoError(t, err)
			require.NotNil(t, c.Policy)
		})
	}
}

// Each *.bad.yml has its expected message beside it, so that every message is
// read by somebody when it changes.
func TestBadFilesAreRefusedWithAMessageThatNamesTheKey(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.bad.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			_, err := Load(path)
			require.Error(t, err)
			golden := strings.TrimSuffix(path, ".yml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644))
			}
			want, readErr := os.ReadFile(golden)
			require.NoError(t, readErr)
			require.Equal(t, string(want), err.Error()+"\n")
		})
	}
}

func TestFullFileSaysWhatTheDefaultsAre(t *testing.T) {
	full, err := Load("testdata/full.good.yml")
	require.NoError(t, err)
	none, err := Load("")
	require.NoError(t, err)
	require.Equal(t, none.Policy, full.Policy)
	require.NotEqual(t, none.Hash, full.Hash)
}

func TestFileOverridesOnlyWhatItNames(t *testing.T) {
	c, err := Load("testdata/partial.good.yml")
	require.NoError(t, err)
	require.Equal(t, 2*time.Minute, c.Policy.Deadline(querylimit.ClassQuery, 0))
	require.Zero(t, c.Policy.Deadline(querylimit.ClassMetadata, 0))
	rs := c.Policy.Check([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "job", "api")})
	require.NoError(t, rs.Err())
	require.Len(t, rs.Warnings(), 1)
}

func TestMissingFileIsNamed(t *testing.T) {
	_, err := Load("testdata/absent.yml")
	require.ErrorContains(t, err, "testdata/absent.yml")
}

func TestHashNumberIsExactAndFollowsTheContent(t *testing.T) {
	a, err := Parse([]byte("limits: {}\n"))
	require.NoError(t, err)
	b, err := Parse([]byte("limits: {}\n\n"))
	require.NoError(t, err)
	require.NotEqual(t, a.HashNumber(), b.HashNumber())
	require.Less(t, a.HashNumber(), float64(1<<48))
	require.Len(t, a.HashText(), 64)
}
