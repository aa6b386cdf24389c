// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestTargetsStayChurnAndExplode(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, err := Serve(4000, 4000)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrape := func(path string) map[string]bool {
		res, err := client.Get("http://" + s.Addr + path)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode)
		names := map[string]bool{}
		for line := range strings.Lines(string(body)) {
			if name, _, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
				names[name] = true
			}
		}
		return names
	}
	require.Equal(t, len(s.Jobs[Steady])+1, s.Len(Steady, Exploding))
	steady := scrape(s.Jobs[Steady][0])
	require.NotEmpty(t, steady)
	require.Equal(t, steady, scrape(s.Jobs[Steady][0]))

	pods := s.Jobs[Churning][slices.IndexFunc(s.Jobs[Churning], func(p string) bool { return strings.Contains(p, "cadvisor") })]
	before := scrape(pods)
	require.Equal(t, before, scrape(pods), "nobody has asked for churn")
	s.Churn(1e6)
	require.Eventually(t, func() bool { return len(before) > 0 && !mapsEqual(before, scrape(pods)) }, time.Minute, time.Millisecond)

	path := s.Jobs[Exploding][0]
	require.Len(t, scrape(path), base)
	s.Explode(1_000_000)
	require.Eventually(t, func() bool { return len(scrape(path)) > base }, time.Minute, time.Millisecond)
	s.Explode(0)
	require.Len(t, scrape(path), base)
	require.Positive(t, s.Exploded())
}

func mapsEqual(a, b map[string]bool) bool {
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return len(a) == len(b)
}
