// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package mixin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/stretchr/testify/require"
)

// The types are generated from Grafana's own schema, of dashboards, of the types of
// panels used here and of Prometheus's queries: they know every field there is.
func TestDashboardsAreOfGrafanasModel(t *testing.T) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())

	files, err := filepath.Glob(root + "/deploy/grafana/dashboards/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard.Dashboard
		require.NoError(t, d.UnmarshalJSONStrict(text), file)
		require.NoError(t, d.Validate(), file)
		for _, p := range d.Panels {
			require.True(t, p.Panel != nil || p.RowPanel != nil, file)
		}
	}
}
