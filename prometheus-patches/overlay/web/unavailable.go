// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"github.com/prometheus/prometheus/promguard/readapi"
	api_v1 "github.com/prometheus/prometheus/web/api/v1"
)

// statusOfErrors returns what chooses the status of the API's errors: nothing,
// which means upstream's, without limits.
func statusOfErrors(limits *readapi.Handlers) api_v1.OverrideErrorCode {
	if limits == nil {
		return nil
	}
	return api_v1.UnavailableIs503
}
