// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
)

// configuration is Prometheus'. The server scrapes itself for the figures that it
// answers. Series of other names differ by the label metric, too: functions over
// ranges take the names away, and refuse series that are then the same. The
// heartbeat is the last rule: a group that was not evaluated to its end has none.
// Where nothing is scraped, garbage is collected often, so that memory is what is
// held.
var configuration = template.Must(template.New("").Parse(`{{with .Set}}global:
  scrape_interval: {{$.Scrape}}
  scrape_timeout: {{$.Scrape}}
  evaluation_interval: {{$.Evaluation}}
rule_files: [rules.yml]
scrape_configs:
- job_name: prometheus
  static_configs: [{targets: ['{{$.Self}}']}]
{{- range $job, $targets := .Jobs}}
- job_name: {{$job}}
  metric_relabel_configs: [{source_labels: [__name__], target_label: metric}]
  static_configs:
  {{- range $targets}}
  - {targets: ['{{$.Set.Addr}}'], labels: {__metrics_path__: '{{.}}', instance: '{{.}}'}}
  {{- end}}
{{- end}}
{{else}}runtime: {gogc: 10}
{{end}}`))

const rules = `groups:
- name: storm
  rules:
  - {record: "storm:up:sum", expr: "sum by (job) (up)"}
  - {record: "storm:scrape_duration_seconds:max", expr: "max by (job) (scrape_duration_seconds)"}
  - {record: "storm:scrape_samples_scraped:rate1m", expr: "sum by (instance) (sum_over_time(scrape_samples_scraped[1m])) / 60"}
  - {alert: StormTargetDown, expr: "up == 0", for: 10s}
  - {record: "storm:heartbeat", expr: "vector(1)"}
`

// writeConfig writes the configuration of a server into a directory. set may be
// nil: then nothing is scraped or evaluated.
func writeConfig(dir, self string, set *targets.Set, scrape, evaluation time.Duration) (file string, err error) {
	if err := os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(rules), 0o666); err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(dir, "prometheus.yml"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), configuration.Execute(f, struct {
		Set                *targets.Set
		Self               string
		Scrape, Evaluation time.Duration
	}{set, self, scrape, evaluation})
}
