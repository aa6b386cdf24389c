// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"maps"
	"slices"
)

// classic returns a dashboard of Grafana 12 and later, in which panels are elements
// of a layout, in the form that dashboards had before.
func classic(o map[string]any) map[string]any {
	spec := object(o["spec"])
	var variables, annotations, panels []any
	for _, v := range list(spec["variables"]) {
		variables = append(variables, classicVariable(object(v)))
	}
	for _, a := range list(spec["annotations"]) {
		s := object(object(a)["spec"])
		annotation := classicQuery(s["query"])
		annotation["name"] = s["name"]
		annotations = append(annotations, annotation)
	}
	elements := object(spec["elements"])
	for _, key := range slices.Sorted(maps.Keys(elements)) {
		panels = append(panels, classicPanel(key, object(elements[key])))
	}
	return map[string]any{
		"title":      cmp.Or(str(spec["title"]), str(object(o["metadata"])["name"])),
		"templating": map[string]any{"list": variables}, "annotations": map[string]any{"list": annotations}, "panels": panels,
	}
}

func classicVariable(v map[string]any) map[string]any {
	spec := object(v["spec"])
	spec["type"] = map[string]string{
		"DatasourceVariable": "datasource", "CustomVariable": "custom", "ConstantVariable": "constant", "QueryVariable": "query",
	}[str(v["kind"])]
	if kind := str(spec["pluginId"]); kind != "" {
		spec["query"] = kind
	}
	if spec["type"] == "query" {
		spec["datasource"] = classicSource(spec["query"])
		query := object(object(spec["query"])["spec"])
		query["query"] = cmp.Or(str(query["query"]), str(query["__legacyStringValue"]))
		spec["query"] = query
	}
	return spec
}

func classicPanel(key string, e map[string]any) map[string]any {
	spec := object(e["spec"])
	panel := map[string]any{"title": cmp.Or(str(spec["title"]), key), "id": spec["id"]}
	if str(e["kind"]) == "LibraryPanel" {
		panel["libraryPanel"] = map[string]any{"uid": object(spec["libraryPanel"])["uid"]}
		return panel
	}
	var targets []any
	for _, q := range list(object(object(spec["data"])["spec"])["queries"]) {
		s := object(object(q)["spec"])
		target := classicQuery(s["query"])
		target["refId"] = s["refId"]
		targets = append(targets, target)
	}
	panel["targets"] = targets
	return panel
}

func classicQuery(query any) map[string]any {
	return map[string]any{"expr": object(object(query)["spec"])["expr"], "datasource": classicSource(query)}
}

// classicSource reads the type of data source, which has been in kind and is in
// group.
func classicSource(query any) map[string]any {
	q := object(query)
	return map[string]any{"type": cmp.Or(str(q["group"]), str(q["kind"]))}
}
