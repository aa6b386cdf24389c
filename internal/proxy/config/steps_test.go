// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

func TestStepRoundingIsRead(t *testing.T) {
	c, err := Load("testdata/steps.good.yml")
	require.NoError(t, err)
	require.Equal(t, querylimit.StepRounding{Mode: querylimit.ModeWarn, Interval: 30 * time.Second, Points: 1000}, c.Rules.Tenant("").Options().StepRounding)
}
