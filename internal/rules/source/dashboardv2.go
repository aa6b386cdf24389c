// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// readV2 reads the dashboards of Grafana 12 and later, in which panels are
// elements of a layout.
func (b *boards) readV2(f *Found, file, place string, o map[string]any) {
	spec := object(o["spec"])
	title := str(spec["title"])
	if title == "" {
		title = str(object(o["metadata"])["name"])
	}
	d := b.newBoard(f, file, place, title)
	variables := list(spec["variables"])
	for _, v := range variables {
		d.declareV2(object(v))
	}
	for _, v := range variables {
		d.variableV2(object(v))
	}
	for i, a := range list(spec["annotations"]) {
		s := object(object(a)["spec"])
		d.queriesV2(KindAnnotation, quotedName("annotation", str(s["name"]), strconv.Itoa(i+1)), s["query"])
	}
	elements := object(spec["elements"])
	for _, key := range slices.Sorted(maps.Keys(elements)) {
		d.elementV2(key, object(elements[key]))
	}
}

func (d *board) declareV2(v map[string]any) {
	spec := object(v["spec"])
	spec["type"] = map[string]string{
		"DatasourceVariable": "datasource", "CustomVariable": "custom", "ConstantVariable": "constant",
	}[str(v["kind"])]
	if kind := str(spec["pluginId"]); kind != "" {
		spec["query"] = kind
	}
	d.declare(spec)
}

func (d *board) variableV2(v map[string]any) {
	spec := object(v["spec"])
	if str(v["kind"]) != "QueryVariable" || !d.isPrometheusV2(object(spec["query"])) {
		return
	}
	query := object(object(spec["query"])["spec"])
	text := str(query["query"])
	if text == "" {
		text = str(query["__legacyStringValue"])
	}
	if text == "" {
		text = str(spec["definition"])
	}
	if text != "" {
		d.addVariable(quotedName("variable", str(spec["name"]), ""), text)
	}
}

func (d *board) elementV2(key string, e map[string]any) {
	spec := object(e["spec"])
	place := quotedName("panel", str(spec["title"]), key)
	if id := number(spec["id"]); id != "" {
		place += " (id " + id + ")"
	}
	if str(e["kind"]) == "LibraryPanel" {
		d.wanted = append(d.wanted, wantedPanel{d.file, d.prefix + ", " + place, str(object(spec["libraryPanel"])["uid"])})
		return
	}
	for i, q := range list(object(object(spec["data"])["spec"])["queries"]) {
		s := object(object(q)["spec"])
		ref := str(s["refId"])
		if ref == "" {
			ref = strconv.Itoa(i + 1)
		}
		d.queriesV2(KindPanel, place+", query "+ref, s["query"])
	}
}

func (d *board) queriesV2(kind Kind, place string, query any) {
	q := object(query)
	expr := str(object(q["spec"])["expr"])
	if strings.TrimSpace(expr) != "" && d.isPrometheusV2(q) {
		d.add(kind, place, expr)
	}
}

// isPrometheusV2 reads the type of data source, which has been in kind and is in
// group.
func (d *board) isPrometheusV2(q map[string]any) bool {
	kind := str(q["group"])
	if kind == "" {
		kind = str(q["kind"])
	}
	return d.isPrometheus(map[string]any{"type": kind})
}
