// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBinariesAreNamedAndGivenArguments(t *testing.T) {
	for _, tc := range []struct {
		spec string
		want Binary
	}{
		{"bin/prometheus", Binary{Name: "prometheus", Path: "bin/prometheus", Args: []string{}}},
		{"/opt/Prometheus-3.15", Binary{Name: "prometheus-3.15", Path: "/opt/Prometheus-3.15", Args: []string{}}},
		{"off=bin/prometheus --guard.wal-replay-gomaxprocs=off", Binary{Name: "off", Path: "bin/prometheus", Args: []string{"--guard.wal-replay-gomaxprocs=off"}}},
		{"  bin/prometheus   --enable-feature  native-histograms ", Binary{Name: "prometheus", Path: "bin/prometheus", Args: []string{"--enable-feature", "native-histograms"}}},
	} {
		got, err := ParseBinary(tc.spec)
		require.NoError(t, err)
		require.Equal(t, tc.want, got)
	}
}

func TestBinariesThatWouldSpoilTheResultsAreRefused(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"", "empty"},
		{"Upper=bin/prometheus", `the name "Upper" must be`},
		{"a/b=bin/prometheus", `the name "a/b" must be`},
		{"p --log.level=debug", "--log.level is set by walreplay"},
		{"p --config.file x.yml", "--config.file is set by walreplay"},
	} {
		_, err := ParseBinary(tc.spec)
		require.ErrorContains(t, err, tc.want)
	}
}
