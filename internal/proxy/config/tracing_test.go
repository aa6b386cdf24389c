// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	httpconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/stretchr/testify/require"
)

func TestTracingIsReadAsPrometheusReadsIt(t *testing.T) {
	c, err := Load("testdata/tracing.good.yml")
	require.NoError(t, err)
	require.Equal(t, promconfig.TracingConfig{
		ClientType: promconfig.TracingClientHTTP, Endpoint: "otel:4318", SamplingFraction: 0.1,
		TLSConfig: httpconfig.TLSConfig{CAFile: "testdata/ca.pem", InsecureSkipVerify: true},
		Headers:   map[string]string{"X-Scope": "ops"}, Compression: promconfig.GzipCompression, Timeout: model.Duration(5 * time.Second),
	}, c.Tracing, "files are relative to that of the configuration")
	c, err = Parse(nil)
	require.NoError(t, err)
	require.Empty(t, c.Tracing.Endpoint)
}
