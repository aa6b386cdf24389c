// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/readapi"
)

func TestTheWebUIIsToldOfThePageOnlyWithLimits(t *testing.T) {
	const index = "<head></head><body></body>"
	require.Equal(t, index, string((&Handler{options: &Options{}}).withPage([]byte(index))))
	h := &Handler{options: &Options{Reads: &readapi.Handlers{}}}
	require.Contains(t, string(h.withPage([]byte(index))), `<meta name="guard" content="on"></head>`)
}
