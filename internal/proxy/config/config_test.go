// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
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
			require.NotNil(t, c.Rules)
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
	require.Equal(t, none.Rules.Tenant(""), full.Rules.Tenant(""))
	require.Equal(t, none.Admission, full.Admission)
	require.Equal(t, none.Collapse, full.Collapse)
	require.Equal(t, none.QueryLog, full.QueryLog)
	require.NotEqual(t, none.Hash, full.Hash)
}

func TestTheTableOfLimitsSaysWhatTheDefaultsAre(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "limits", "README.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| `(\\{.*?\\})`").FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, len(querylimit.Limits())-1, "all but deny")
	text := "limits:\n"
	for _, row := range rows {
		text += "  " + row[1] + ": " + row[2] + "\n"
	}
	table, err := Parse([]byte(text))
	require.NoError(t, err)
	none, err := Load("")
	require.NoError(t, err)
	require.Equal(t, none.Rules.Tenant(""), table.Rules.Tenant(""))
}

func TestFileOverridesOnlyWhatItNames(t *testing.T) {
	c, err := Load("testdata/partial.good.yml")
	require.NoError(t, err)
	require.Equal(t, 2*time.Minute, c.Rules.Tenant("").Deadline(querylimit.ClassQuery, 0))
	require.Zero(t, c.Rules.Tenant("").Deadline(querylimit.ClassMetadata, 0))
	rs := c.Rules.Tenant("").Check([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "job", "api")})
	require.NoError(t, rs.Err())
	require.Len(t, rs.Warnings(), 1)
}

func TestEmptySectionsAndListsSayNothing(t *testing.T) {
	for _, text := range []string{
		"# nothing\n", "limits:\n", "rules: []\n", "rules:\n", "tenants:\n", "tenants: {a: }\n", "tenants: {a: {limits: }}\n", "admission:\n",
		"identity: {pass_headers: []}\n", "page: {users: []}\n", "open: []\n", "query_log:\n", "tracing:\n",
	} {
		_, err := Parse([]byte(text))
		require.NoError(t, err, text)
	}
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

func TestTenantsAndRulesChangeWhatTheyName(t *testing.T) {
	c, err := Load("testdata/rules.good.yml")
	require.NoError(t, err)
	require.Equal(t, []string{"team-a", "team-b"}, c.Rules.Tenants())
	check := func(tenant, text string) error {
		_, rs, err := querylimit.NewAnalyzer(0).Expr(c.Rules.Tenant(tenant), text)
		require.NoError(t, err)
		return rs.Err()
	}
	require.ErrorContains(t, check("", strings.Repeat("a", 1001)), "exceeds the 1000 allowed")
	chain := "a" + strings.Repeat("+a", 100)
	require.NoError(t, check("", chain))
	require.NoError(t, check("team-a", chain))
	require.ErrorContains(t, check("team-b", chain+"+a"), "Limit query_operators of tenant team-b")

	yearly := []string{"sum_over_time(x[1y])"}
	d := c.Rules.Decide(&querylimit.Subject{}, yearly, nil)
	require.Equal(t, []string{"no-yearly-sums"}, d.Rules)
	require.Contains(t, d.Refusals.Warnings()[0], "rule no-yearly-sums")
	require.Empty(t, c.Rules.Decide(&querylimit.Subject{Alert: true}, yearly, nil).Rules)
	require.Empty(t, c.Rules.Decide(&querylimit.Subject{Tenant: "team-a", Dashboard: "def", Panel: "3"}, yearly, nil).Refusals)

	d = c.Rules.Decide(&querylimit.Subject{Endpoint: "series", Class: querylimit.ClassMetadata, User: "ann", UserAgent: "export/2"}, nil, nil)
	require.Equal(t, []string{"exports"}, d.Rules)
	require.Equal(t, 5*time.Minute, d.Policy.Deadline(querylimit.ClassMetadata, 0))
	d = c.Rules.Decide(&querylimit.Subject{}, []string{"up"}, []string{"0123456789abcdef"})
	require.Equal(t, 5*time.Minute, d.Policy.Deadline(querylimit.ClassQuery, 0))
}

func TestEveryErrorIsReportedWithFileAndLine(t *testing.T) {
	_, err := Load("testdata/rules.bad.yml")
	var errs Errors
	require.ErrorAs(t, err, &errs)
	require.Greater(t, len(errs), 15)
	for _, err := range errs {
		require.Regexp(t, `^testdata/rules\.bad\.yml: line \d+: `, err.Error())
	}
}

func TestLimitOfATenantOrRuleIsComparedWithWhatHoldsForEverybody(t *testing.T) {
	_, err := Parse([]byte(`
tenants:
  a:
    limits: {metadata_range: {default: 50d}}
rules:
  - name: r
    match: {tenant: a}
    limits: {metadata_range: {default: 99d}}
limits:
  metadata_range: {default: 60d, max: 100d}
`))
	require.NoError(t, err)
	_, err = Parse([]byte(`
tenants:
  a:
    limits: {metadata_range: {default: 50d}}
limits:
  metadata_range: {max: 40d}
`))
	require.EqualError(t, err, "line 4: metadata_range: default 50d is more than max 40d")
}

// FuzzParse looks for files that end the process: whatever is wrong is an error.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.yml")
	require.NoError(f, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("rules: &a [*a]"))
	f.Add([]byte("limits: &a {deadline: *a}"))
	for _, scalar := range []string{`!!bool ""`, "!!bool yes", "! a", "!x a", "!!null a"} {
		f.Add([]byte("limits: " + scalar))
		f.Add([]byte("admission: {collapse: " + scalar + "}"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		require.NotEqual(t, c == nil, err == nil)
	})
}
