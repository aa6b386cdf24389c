// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/answercache"
	"github.com/promguard/promguard/internal/querylimit"
)

func TestCacheAndStepsAreRead(t *testing.T) {
	c, err := Load("testdata/see.good.yml")
	require.NoError(t, err)
	require.Equal(t, answercache.Options{MaxBytes: 1 << 20, TTL: 10 * time.Second}, c.Cache)
	require.Equal(t, querylimit.StepRounding{Mode: querylimit.ModeWarn, Interval: 30 * time.Second, Points: 1000}, c.Rules.Tenant("").Options().StepRounding)
	c, err = Parse(nil)
	require.NoError(t, err)
	require.Zero(t, c.Cache.MaxBytes, "off by default")
}
