// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy"
)

func TestTimeToConnectIsBoundedWithAnyHTTPConfig(t *testing.T) {
	errStop := errors.New("no connection wanted")
	file := filepath.Join(t.TempDir(), "http.yml")
	require.NoError(t, os.WriteFile(file, []byte("basic_auth: {username: a, password: b}\n"), 0o600))
	for _, path := range []string{"", file} {
		dialer, bounded := proxy.NewDialer(), false
		dialer.ControlContext = func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
			_, bounded = ctx.Deadline()
			return errStop
		}
		transport, err := transportWith(path, dialer)
		require.NoError(t, err)
		req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:9/", nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.ErrorIs(t, err, errStop)
		require.True(t, bounded, "with %q", path)
	}
}

func TestStaleAfterIsNoShorterThanTheTimeBetweenTwoQuestions(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0: "", 30 * time.Second: "", 2 * time.Minute: "",
		-time.Second:     "--upstream.stale-after is -1s: use 0s for never, or at least 30s",
		29 * time.Second: "--upstream.stale-after is 29s: use 0s for never, or at least 30s",
	} {
		f := upstreamFlags{urls: []string{"http://a"}, kind: "prometheus", probe: "require", staleAfter: after}
		_, err := f.parse()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
}
