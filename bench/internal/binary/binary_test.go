// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package binary

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
		got, err := Parse(tc.spec)
		require.NoError(t, err)
		require.Equal(t, tc.want, got)
	}
}

func TestBinariesThatWouldSpoilTheResultsAreRefused(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"", "empty"},
		{"=bin/prometheus", `the name "" must be`},
		{"Upper=bin/prometheus", `the name "Upper" must be`},
		{"a/b=bin/prometheus", `the name "a/b" must be`},
		{"p --log.level=debug", "--log.level is set by the benchmark"},
		{"p --config.file x.yml", "--config.file is set by the benchmark"},
	} {
		_, err := Parse(tc.spec)
		require.ErrorContains(t, err, tc.want)
	}
}

func TestBinariesHaveNamesOfTheirOwn(t *testing.T) {
	got, err := ParseAll([]string{"a=bin/prometheus", "bin/prometheus --log=1"})
	require.NoError(t, err)
	require.Len(t, got, 2)
	_, err = ParseAll([]string{"bin/prometheus", "/opt/prometheus"})
	require.EqualError(t, err, `--binary: two binaries are named "prometheus"; name them as NAME=PATH`)
	_, err = ParseAll([]string{"a=bin/prometheus", ""})
	require.ErrorContains(t, err, "empty")
}
