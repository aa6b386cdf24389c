// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/bench/oomstorm/internal/slots"
)

func TestEveryTargetRemembersWhenItWasScraped(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, err := Serve()
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Len(t, s.Paths, most)

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrape := func(path string) {
		res, err := client.Get("http://" + s.Addr + path)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NotEmpty(t, body)
	}
	for _, path := range s.Paths {
		scrape(path)
	}
	scrape(s.Paths[0])
	require.Equal(t, 1, s.Scraped())
	now := time.Now()
	require.Equal(t, slots.Count{Expected: 3 * most, Missed: 3 * most},
		s.Check(time.Minute, now.Add(30*time.Second), now.Add(4*time.Minute+30*time.Second)))
	s.Forget()
	require.Zero(t, s.Scraped())
}
