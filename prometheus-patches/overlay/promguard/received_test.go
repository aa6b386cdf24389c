// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/prometheus/prometheus/web/api/v1"
)

func withDropRules(t *testing.T, flag string) (*Flags, *prometheus.Registry) {
	t.Helper()
	f, _, err := parse(t, "--guard.drop-rules="+flag)
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	_, err = f.DropRules(promslog.NewNopLogger(), reg)
	require.NoError(t, err)
	return f, reg
}

func TestWhatIsReceivedIsDroppedByTheRulesOfItsPath(t *testing.T) {
	f, reg := withDropRules(t, "off,otlp=minimal")
	app := teststorage.NewAppendable()
	all := f.Received(app)
	dropped, kept := labels.FromStrings("__name__", "kubernetes_feature_enabled"), labels.FromStrings("__name__", "up")
	write := func(path string) {
		by := all.(v1.ReceivedAppendable).ReceivedBy(path).AppenderV2(context.Background())
		for _, ls := range []labels.Labels{dropped, kept} {
			for at := range int64(2) {
				ref, err := by.Append(0, ls, 0, at, 1, nil, nil, storage.AppendV2Options{})
				require.NoError(t, err)
				_, err = by.(storage.ExemplarAppenderV2).AppendExemplars(ref, ls, []exemplar.Exemplar{{Value: 1, Ts: at}})
				require.NoError(t, err)
			}
		}
		require.NoError(t, by.Commit())
	}
	stored := func() (names string) {
		for _, s := range app.ResultSamples() {
			names += s.L.Get("__name__") + " "
		}
		return names
	}

	write(v1.PathOTLP)
	require.Equal(t, "up up ", stored())
	const want = `# HELP prometheus_guard_drop_rules_dropped_samples_total Samples dropped by the default drop rules that did not come by a scrape, by the first rule that matches and by how they came.
# TYPE prometheus_guard_drop_rules_dropped_samples_total counter
prometheus_guard_drop_rules_dropped_samples_total{path="otlp",profile="minimal",rule="kubernetes-feature-gates"} 2
`
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "prometheus_guard_drop_rules_dropped_samples_total"))

	write(v1.PathRemoteWrite)
	require.Equal(t, "up up kubernetes_feature_enabled kubernetes_feature_enabled up up ", stored())
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "prometheus_guard_drop_rules_dropped_samples_total"))
}

func TestWithoutDropRulesNothingStandsBeforeTheStorage(t *testing.T) {
	f, reg := withDropRules(t, "off")
	app := teststorage.NewAppendable()
	require.Equal(t, storage.AppendableV2(app), f.Received(app))
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}
