// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// Widely used drop rules have been wrong in five ways. Each is here as the rule
// was meant, with what it broke, and with what the check says.

// burnRate is an error budget as rules of Kubernetes compute it: literal bounds,
// recorded, and an alert on what is recorded.
func burnRate(t *testing.T) (exprs []source.Expression) {
	t.Helper()
	for _, verb := range []string{"read", "write"} {
		e := expression(t, source.KindRecord, `(sum(rate(apiserver_request_sli_duration_seconds_count{job="apiserver"}[1h])) - `+
			`(sum(rate(apiserver_request_sli_duration_seconds_bucket{job="apiserver",le=~"1(\\.0)?"}[1h])) or vector(0)) + `+
			`sum(rate(apiserver_request_sli_duration_seconds_bucket{job="apiserver",scope="cluster",le=~"30(\\.0)?"}[1h]))) / `+
			`sum(rate(apiserver_request_total{job="apiserver"}[1h]))`)
		e.Record, e.Labels = "apiserver_request:burnrate1h", map[string]string{"verb": verb}
		exprs = append(exprs, e)
	}
	return append(exprs, expression(t, source.KindAlert, `sum(apiserver_request:burnrate1h) > 14.4 * 0.01`))
}

func TestDefectBoundsInTheSpellingOfOneVersionOnlyAreNoted(t *testing.T) {
	p := profile(t, "- {id: spelled, class: thin, source_labels: [__name__, le], regex: 'x_bucket;(0\\.15|3|45)', reason: for a test}\n"+
		"- {id: both, class: thin, source_labels: [__name__, le], regex: 'x_bucket;(0\\.15|3|45)(\\.0)?', reason: for a test}\n"+thinRule)
	c, err := New(p, nil)
	require.NoError(t, err)
	notes := c.Notes()
	require.Len(t, notes, 1, "%v", notes)
	require.Contains(t, notes["spelled"], `le="3" but not le="3.0"`)
}

func TestDefectDroppedBoundOfAnErrorBudget(t *testing.T) {
	// The list names 30, in the spelling of Prometheus 2.
	p := profile(t, "- {id: bounds, class: thin, source_labels: [__name__, le], "+
		"regex: 'apiserver_request_(sli_)?duration_seconds_bucket;(0\\.15|0\\.6|3|30)', reason: for a test}\n")
	for _, r := range check(t, p, burnRate(t)...) {
		require.Equal(t, Changed, r.Verdict, r.Expression.Text)
		require.Contains(t, r.Findings[0].Why, `apiserver_request_sli_duration_seconds_bucket{le="30"}`)
	}
	// In both spellings, nothing is left of the sum.
	p = profile(t, "- {id: bounds, class: thin, histograms: [apiserver_request_sli_duration_seconds], "+
		"drop_le: [30], bounds: [1, 5, 30, 60], reason: for a test}\n")
	for _, r := range check(t, p, burnRate(t)...) {
		require.Equal(t, Gone, r.Verdict, r.Expression.Text)
	}
	// What the error budget does not read may go.
	p = profile(t, "- {id: bounds, class: thin, histograms: [apiserver_request_sli_duration_seconds], "+
		"drop_le: [5], bounds: [1, 5, 30, 60], reason: for a test}\n")
	for _, r := range check(t, p, burnRate(t)...) {
		require.Equal(t, Invisible, r.Verdict, r.Expression.Text)
	}
}

func TestDefectNameThatARecordingRuleReads(t *testing.T) {
	p := profile(t, nameRule("memory", "container_memory_(mapped_file|swap)"))
	record := expression(t, source.KindRecord, `container_memory_swap{job="kubelet",image!=""} * on (pod) group_left (node) kube_pod_info`)
	record.Record = "node_namespace_pod_container:container_memory_swap"
	for _, r := range check(t, p, record,
		expression(t, source.KindPanel, `sum(container_memory_swap{container!=""}) by (container)`),
		expression(t, source.KindPanel, `sum(node_namespace_pod_container:container_memory_swap)`)) {
		require.Equal(t, Gone, r.Verdict, r.Expression.Text)
	}
}

func TestDefectThinningThatTakesTheLargestFiniteBound(t *testing.T) {
	text := "name: test\nsummary: x\nrules:\n- {id: top, class: thin, histograms: [storage_operation_duration_seconds], drop_le: [600], bounds: [120, 300, 600], reason: x}\n"
	_, err := relabel.ParseProfile("test.yaml", []byte(text))
	require.ErrorContains(t, err, "600 is the largest finite bound")

	// As a regex, the rule's text does not say which bounds there are; data do.
	p := profile(t, "- {id: top, class: thin, source_labels: [__name__, le], "+
		"regex: 'storage_operation_duration_seconds_bucket;(15|120|600)(\\.0)?', reason: for a test}\n")
	panel := expression(t, source.KindPanel, `histogram_quantile(0.99, sum by (le) (rate(storage_operation_duration_seconds_bucket[5m])))`)
	r := check(t, p, panel)[0]
	require.Equal(t, Changed, r.Verdict)
	require.Contains(t, r.Findings[0].Why, "no rule states the bounds")
	c, err := New(p, map[string][][]float64{"storage_operation_duration_seconds": {{1, 15, 50, 120, 300, 600}}})
	require.NoError(t, err)
	r = c.Check([]source.Expression{panel})[0]
	require.Equal(t, Changed, r.Verdict)
	require.Contains(t, r.Findings[0].Why, "the largest finite one, 600")
}

func TestDefectThinningByJob(t *testing.T) {
	for _, rule := range []string{
		"{id: job, class: thin, source_labels: [__name__, le], regex: 'x_bucket;3', jobs: [apiserver], reason: x}",
		"{id: job, class: thin, source_labels: [job, __name__, le], regex: 'apiserver;x_bucket;3', reason: x}",
		"{id: job, class: thin, histograms: [x], drop_le: [1], bounds: [1, 3], jobs: [apiserver], reason: x}",
	} {
		_, err := relabel.ParseProfile("test.yaml", []byte("name: test\nsummary: x\nrules:\n- "+rule+"\n"))
		require.ErrorContains(t, err, "a histogram must lose a bound in every job or in none")
	}
}

func TestDefectNamesThatAnotherJobExportsToo(t *testing.T) {
	mixin := []source.Expression{
		expression(t, source.KindAlert, `max without(endpoint) (etcd_server_has_leader{job=~".*etcd.*"}) == 0`),
		expression(t, source.KindPanel, `histogram_quantile(0.99, sum(rate(etcd_disk_wal_fsync_duration_seconds_bucket{job=~".*etcd.*"}[5m])) by (instance, le))`),
		expression(t, source.KindPanel, `sum(rate(etcd_server_proposals_failed_total{job=~".*etcd.*"}[5m]))`),
		expression(t, source.KindAlert, `rate(etcd_debugging_mvcc_put_total{job="kube-etcd"}[5m]) > 100`),
	}
	everywhere := profile(t, nameRule("etcd", "etcd_(debugging|disk|server).*"))
	for _, r := range check(t, everywhere, mixin...) {
		require.Equal(t, Gone, r.Verdict, r.Expression.Text)
	}
	scoped := profile(t, "- {id: etcd, class: unused, source_labels: [__name__], regex: 'etcd_(debugging|disk|server).*', jobs: [apiserver], reason: x}\n")
	for _, r := range check(t, scoped, mixin...) {
		require.Equal(t, Invisible, r.Verdict, r.Expression.Text)
	}
}

func TestStatusReasonBehindUnlessRaisesAlerts(t *testing.T) {
	p := profile(t, "- {id: reasons, class: disjoint, source_labels: [__name__, reason], "+
		"regex: 'kube_pod_status_reason;(Evicted|SchedulingGated)', reason: x}\n")
	r := check(t, p, expression(t, source.KindAlert,
		`sum by (pod) (kube_pod_status_phase{phase="Pending"} unless on (pod) kube_pod_status_reason{reason="SchedulingGated"} > 0) > 0`))[0]
	require.Equal(t, Changed, r.Verdict)
	require.Contains(t, r.Findings[0].Why, "unless no longer takes away")
}
