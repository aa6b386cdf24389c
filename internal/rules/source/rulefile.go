// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// RuleFiles reads everything but dashboards that evaluates expressions, below
// the paths: Prometheus's rule files, PrometheusRule objects, Grafana's alert
// rules, the configuration of prometheus-adapter, and what HorizontalPodAutoscaler
// and ScaledObject objects read, by themselves and within ConfigMaps and Secrets.
// Kubernetes objects that are known to read no series are passed over; the first of
// each other kind is a problem.
func RuleFiles(paths ...string) Found {
	var f Found
	told := map[string]bool{}
	for _, path := range paths {
		f.readAll(path, []string{".yaml", ".yml", ".json", ".rules"}, func(file string, text []byte) Found {
			return readRules(file, text, told)
		})
	}
	return f
}

// RuleText reads the text of one file, as RuleFiles reads files.
func RuleText(file string, text []byte) Found { return readRules(file, text, map[string]bool{}) }

// readRules reads a file. told has the kinds of objects, unknown to this check,
// that have been told, and gets those of the file.
func readRules(file string, text []byte, told map[string]bool) Found {
	r := &rules{file: file, told: told}
	if err := documents(text, func(doc *yaml.Node) { r.document(doc, "") }); err != nil {
		r.problem(file, "", err)
	}
	return r.Found
}

// rules reads one file.
type rules struct {
	Found
	file string
	told map[string]bool
}

// document reads what a YAML document is. place says where in the file it is, if
// it is not all of it.
func (r *rules) document(doc *yaml.Node, place string) {
	kind := text(doc, "kind")
	if name := text(doc, "metadata", "name"); kind != "" {
		place = strings.TrimPrefix(place+", ", ", ") + strings.TrimSpace(kind+" "+name)
	}
	switch {
	case strings.HasSuffix(kind, "List"):
		for _, item := range items(doc, "items") {
			if strings.HasSuffix(text(item, "kind"), "List") {
				r.problem(r.file, place, errors.New("a list in a list is not read"))
				continue
			}
			r.document(item, "")
		}
	case kind == "PrometheusRule", kind == "VMRule":
		r.groups(field(doc, "spec"), place)
	case kind == "ConfigMap":
		r.configMap(doc, place)
	case kind == "Secret":
		r.secret(doc, place)
	case kind == "HorizontalPodAutoscaler":
		r.horizontalPodAutoscaler(doc, place)
	case kind == "ScaledObject", kind == "ScaledJob":
		r.scaledObject(doc, place)
	case kind != "":
		r.otherObject(doc, kind, place)
	case field(doc, "groups") != nil:
		r.groups(doc, place)
	case isAdapter(doc):
		r.adapter(doc, place)
	case r.values(doc, place):
	default:
		r.problem(r.file, place, errors.New("neither rule groups, nor a configuration of prometheus-adapter, nor a Kubernetes object"))
	}
}

// values reads the rule groups in the values of a chart, such as prometheus and
// kube-prometheus-stack: below keys of any name. It reports whether there are any.
func (r *rules) values(n *yaml.Node, place string) bool {
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return false
	}
	if ruleGroups(n) {
		r.groups(n, place)
		return true
	}
	found := false
	for key, value := range entries(n) {
		at := strings.TrimPrefix(place+"."+key, ".")
		elements := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			elements = value.Content
		}
		for _, e := range elements {
			found = r.values(e, at) || found
		}
		if isQuery(key, value) {
			r.problem(r.file, at, fmt.Errorf("line %d looks like a query, but what it is for is not known to this check", value.Line))
			found = true
		}
	}
	return found
}

// ruleGroups reports whether a mapping has groups of rules.
func ruleGroups(n *yaml.Node) bool {
	groups := items(n, "groups")
	return len(groups) > 0 && items(groups[0], "rules") != nil
}

func (r *rules) groups(doc *yaml.Node, place string) {
	groups := field(doc, "groups")
	if groups == nil || groups.Kind != yaml.SequenceNode {
		r.problem(r.file, place, errors.New("groups: not a list"))
		return
	}
	for _, g := range items(doc, "groups") {
		prefix := strings.TrimPrefix(place+", ", ", ") + quotedName("group", text(g, "name"), "")
		for i, rule := range items(g, "rules") {
			if data := items(rule, "data"); data != nil {
				r.grafanaAlert(rule, data, prefix)
				continue
			}
			r.rule(rule, prefix, i)
		}
	}
}

func (r *rules) rule(n *yaml.Node, prefix string, i int) {
	e := Expression{File: r.file, Text: text(n, "expr"), Record: text(n, "record")}
	switch alert := text(n, "alert"); {
	case alert != "" && e.Record == "":
		e.Kind, e.Place, e.Alert = KindAlert, quotedName("alert", alert, ""), alert
	case alert == "" && e.Record != "":
		e.Kind, e.Place = KindRecord, quotedName("recording rule", e.Record, "")
	default:
		r.problem(r.file, fmt.Sprintf("%s, rule %d (line %d)", prefix, i+1, n.Line), errors.New("needs exactly one of alert and record"))
		return
	}
	e.Place = fmt.Sprintf("%s, %s (line %d)", prefix, e.Place, n.Line)
	e.Labels = map[string]string{}
	pairs(n, func(key string, value *yaml.Node) {
		e.Labels[key] = value.Value
		if e.Alert != "" && strings.Contains(value.Value, "{{") {
			e.Labels[key] = Marker(0) // It may be anything.
		}
	}, "labels")
	if strings.TrimSpace(e.Text) == "" {
		r.problem(r.file, e.Place, errors.New("has no expr"))
		return
	}
	r.expression(e)
	if e.Kind == KindAlert {
		r.templates(n, e.Place)
	}
}

// expression parses the text and adds the expression.
func (r *rules) expression(e Expression) {
	expr, err := Parse(e.Text)
	if err != nil {
		r.problem(r.file, e.Place, err)
		return
	}
	e.Queries = append(e.Queries, expr)
	r.Expressions = append(r.Expressions, e)
}

// grafanaAlert reads an alert rule of Grafana's own, whose data are queries and
// expressions over them.
func (r *rules) grafanaAlert(n *yaml.Node, data []*yaml.Node, prefix string) {
	place := prefix + ", " + quotedName("alert", text(n, "title"), text(n, "uid"))
	for _, d := range data {
		query := text(d, "model", "expr")
		source := map[string]any{"type": text(d, "model", "datasource", "type"), "uid": text(d, "datasourceUid")}
		b := board{}
		if query == "" || !b.isPrometheus(source) {
			continue
		}
		at := fmt.Sprintf("%s, query %s (line %d)", place, text(d, "refId"), d.Line)
		exprs, err := parseTemplate(query, nil)
		if err != nil {
			r.problem(r.file, at, err)
			continue
		}
		r.Expressions = append(r.Expressions, Expression{File: r.file, Place: at, Kind: KindAlert, Text: query, Queries: exprs})
	}
}
