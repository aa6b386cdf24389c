// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import "net/http"

// UnavailableIs503 is an OverrideErrorCode that answers what is unavailable with
// 503, where the default is 500. To load balancers and to Grafana a 500 is a
// defect of the server; a TSDB that is not ready, or an API that is not enabled,
// is none.
func UnavailableIs503(num errorNum, _ error) (code int, override bool) {
	return http.StatusServiceUnavailable, num == ErrorUnavailable
}
