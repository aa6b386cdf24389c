// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/readapi"
	api_v1 "github.com/prometheus/prometheus/web/api/v1"
)

func TestOnlyWhatIsUnavailableHasAnotherStatusAndOnlyWithLimits(t *testing.T) {
	require.Nil(t, statusOfErrors(nil))
	status := statusOfErrors(&readapi.Handlers{})
	code, override := status(api_v1.ErrorUnavailable, errors.New("search API disabled"))
	require.True(t, override)
	require.Equal(t, http.StatusServiceUnavailable, code)
	_, override = status(api_v1.ErrorInternal, errors.New("anything"))
	require.False(t, override)
}
