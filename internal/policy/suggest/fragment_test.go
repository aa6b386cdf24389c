// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/config"
)

func TestAFragmentHasEachLimitAsAWholeAndNothingElse(t *testing.T) {
	const policy = `# mine
limits:
  deadline: {metadata: 5s}   # as agreed
  range:
    # a month
    max: 32d
  oldest: &never {mode: off}
tenants:
  1: &both
    limits: {oldest: *never}
  large: *both
rules:
- {name: r, match: {dashboard: [0123, 2026-01-02]}, deny: {mode: observe}} # which are texts
`
	s, err := suggest(t, policy, aLog(11_000, "1", 2)+aLog(100, "large", 40), func(o *Options) { o.MinRequests = 100 })
	require.NoError(t, err)
	require.Equal(t, `limits:
  deadline: {metadata: 5s, query: 23s} # as agreed
  query_bytes: {mode: enforce, max: 4100}
  query_operators: {mode: enforce, max: 100}
  range:
    # a month
    max: 1d7h
    mode: observe
  oldest: {mode: observe, max: 1d7h}
  response_bytes: {mode: observe, query: {wire_max: 4500000}}
tenants:
  large:
    limits:
      range: {mode: observe, max: 2d13h}
      oldest: {mode: observe, max: 2d13h}
`, string(s.Fragment))
}

func TestAPolicyStaysThatIsRewrittenWithoutSuggestions(t *testing.T) {
	paths, err := filepath.Glob("../../proxy/config/testdata/*.good.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		before, err := config.Parse(text)
		require.NoError(t, err)
		after, fragment, err := rewrite(text, nil)
		require.NoError(t, err, path)
		require.Empty(t, fragment)
		for _, tenant := range append(before.Rules.Tenants(), "") {
			now := before.Rules.Tenant(tenant).Options()
			require.Equal(t, now, after.Tenant(tenant).Options(), path)
			require.Equal(t, before.Rules.Variants(now), after.Variants(now), path)
		}
	}
}
