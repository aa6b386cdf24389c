// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package mixin renders deploy/mixin into the files that are checked in: dashboards
// for Grafana, rules for Prometheus, and the same rules for the Prometheus operator.
package mixin

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/google/go-jsonnet"
	"sigs.k8s.io/yaml"
)

const generated = "# Generated from deploy/mixin: make deploy-render.\n"

// Render evaluates the mixin in the repository root and returns every file that
// comes of it, by its path below the root.
func Render(root string) (map[string][]byte, error) {
	vm := jsonnet.MakeVM()
	vm.Importer(&jsonnet.FileImporter{JPaths: []string{root}})
	text, err := vm.EvaluateAnonymousSnippet("render.jsonnet", `
		local mixin = import 'deploy/mixin/mixin.libsonnet';
		{ dashboards: mixin.grafanaDashboards, rules: { groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups } }
	`)
	if err != nil {
		return nil, err
	}
	var mixin struct {
		Dashboards map[string]json.RawMessage `json:"dashboards"`
		Rules      map[string]any             `json:"rules"`
	}
	if err := json.Unmarshal([]byte(text), &mixin); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, dashboard := range mixin.Dashboards {
		var b bytes.Buffer
		if err := json.Indent(&b, dashboard, "", "  "); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.WriteByte('\n')
		files["deploy/grafana/dashboards/"+name] = b.Bytes()
	}
	if files["deploy/grafana/rules/promguard.yaml"], err = withHeader(mixin.Rules); err != nil {
		return nil, err
	}
	files["deploy/grafana/prometheusrule.yaml"], err = withHeader(prometheusRule(mixin.Rules))
	return files, err
}

func prometheusRule(spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "monitoring.coreos.com/v1",
		"kind":       "PrometheusRule",
		"metadata": map[string]any{
			"name":      "promguard",
			"namespace": "monitoring",
			// kube-prometheus' Prometheus selects rules of any label, others by these.
			"labels": map[string]string{"app.kubernetes.io/name": "promguard", "prometheus": "k8s", "role": "alert-rules"},
		},
		"spec": spec,
	}
}

func withHeader(object any) ([]byte, error) {
	text, err := yaml.Marshal(object)
	return append([]byte(generated), text...), err
}
