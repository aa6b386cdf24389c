// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Dashboards reads every dashboard below the paths: Grafana's JSON as exported,
// as the API returns it and as ConfigMaps and custom resources wrap it, with
// rows, library panels, variables and annotations.
func Dashboards(paths ...string) Found {
	var f Found
	b := &boards{library: map[string]string{}}
	for _, path := range paths {
		f.readAll(path, []string{".json", ".yaml", ".yml"}, b.read)
	}
	f.Add(b.libraryProblems())
	return f
}

// boards reads dashboards one after the other.
type boards struct {
	// library has the library panels that were found, by uid, and wanted those
	// that dashboards show.
	library map[string]string
	wanted  []wantedPanel
}

type wantedPanel struct{ file, place, uid string }

func (b *boards) libraryProblems() Found {
	var f Found
	for _, w := range b.wanted {
		if _, ok := b.library[w.uid]; !ok {
			f.problem(w.file, w.place, fmt.Errorf("shows the library panel %q, which is in none of the files: export it beside the dashboard", w.uid))
		}
	}
	return f
}

func (b *boards) read(file string, text []byte) Found {
	var f Found
	if strings.EqualFold(filepath.Ext(file), ".json") {
		b.readJSON(&f, file, "", text)
		return f
	}
	if err := documents(text, func(doc *yaml.Node) { b.readManifest(&f, file, doc) }); err != nil {
		f.problem(file, "", err)
	}
	return f
}

// readManifest reads what of a Kubernetes object is a dashboard.
func (b *boards) readManifest(f *Found, file string, doc *yaml.Node) {
	place := strings.TrimSpace(text(doc, "kind") + " " + text(doc, "metadata", "name"))
	switch kind := text(doc, "kind"); {
	case strings.HasSuffix(kind, "List"):
		for _, item := range items(doc, "items") {
			if strings.HasSuffix(text(item, "kind"), "List") {
				f.problem(file, place, errors.New("a list in a list is not read"))
				continue
			}
			b.readManifest(f, file, item)
		}
	case kind == "ConfigMap":
		pairs(doc, func(key string, value *yaml.Node) {
			if strings.HasSuffix(key, ".json") {
				b.readJSON(f, file, place+", "+key, []byte(value.Value))
			} else if text := strings.TrimSpace(value.Value); strings.HasPrefix(text, "{") && strings.Contains(text, `"panels"`) {
				b.readJSON(f, file, place+", "+key, []byte(text))
			}
		}, "data")
		pairs(doc, func(key string, _ *yaml.Node) {
			f.problem(file, place+", "+key, errors.New("binary data are not read"))
		}, "binaryData")
	case kind == "GrafanaDashboard":
		if text := text(doc, "spec", "json"); text != "" {
			b.readJSON(f, file, place, []byte(text))
		} else {
			f.problem(file, place, errors.New("has no spec.json: what it refers to was not checked"))
		}
	case kind == "Dashboard":
		var v any
		if err := doc.Decode(&v); err != nil {
			f.problem(file, place, err)
			return
		}
		b.readObject(f, file, place, v)
	case kind == "":
		f.problem(file, place, errors.New("neither a dashboard nor a Kubernetes object"))
	}
}

func (b *boards) readJSON(f *Found, file, place string, text []byte) {
	// Some editors put a byte order mark before the text.
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		f.problem(file, place, fmt.Errorf("not JSON: %w", jsonPlace(text, err)))
		return
	}
	if kind := str(object(v)["kind"]); kind == "ConfigMap" || strings.HasSuffix(kind, "List") {
		// An object of Kubernetes; JSON is YAML too.
		if err := documents(text, func(doc *yaml.Node) { b.readManifest(f, file, doc) }); err != nil {
			f.problem(file, place, err)
		}
		return
	}
	b.readObject(f, file, place, v)
}

// jsonPlace adds the line to an error of a JSON text.
func jsonPlace(text []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err
	}
	end := min(max(0, int(syntax.Offset)), len(text))
	return fmt.Errorf("line %d: %w", 1+strings.Count(string(text[:end]), "\n"), err)
}

// readObject finds what the JSON is: a dashboard, one within an envelope, or
// library panels.
func (b *boards) readObject(f *Found, file, place string, v any) {
	o := object(v)
	switch {
	case o["dashboard"] != nil:
		b.readObject(f, file, place, o["dashboard"])
		return
	case o["result"] != nil:
		b.readObject(f, file, place, o["result"])
		return
	case object(o["spec"])["elements"] != nil:
		b.readClassic(f, file, place, classic(o))
		return
	case o["elements"] != nil && o["layout"] != nil:
		b.readClassic(f, file, place, classic(map[string]any{"spec": o}))
		return
	case o["spec"] != nil && o["apiVersion"] != nil:
		b.readObject(f, file, place, o["spec"])
		return
	case object(o["model"])["targets"] != nil:
		b.libraryPanel(f, file, place, o, nil)
		return
	case o["panels"] == nil && o["rows"] == nil && o["templating"] == nil && list(o["elements"]) != nil:
		for _, e := range list(o["elements"]) {
			b.libraryPanel(f, file, place, object(e), nil)
		}
		return
	case o["panels"] == nil && o["rows"] == nil && o["templating"] == nil:
		f.problem(file, place, errors.New("not a dashboard: there are neither panels nor rows nor elements"))
		return
	}
	b.readClassic(f, file, place, o)
}

// board is the dashboard being read.
type board struct {
	*boards
	found *Found
	file  string
	// prefix is the dashboard's place, with the comma that follows it.
	prefix, uid string
	vars        []variable
	// sources has the type of data source that a variable or an input names.
	sources map[string]string
}

func (b *boards) newBoard(f *Found, file, place, title string) *board {
	name := quotedName("dashboard", title, "")
	if place != "" {
		name = place + ", " + name
	}
	return &board{boards: b, found: f, file: file, prefix: name, sources: map[string]string{}}
}

func (b *boards) readClassic(f *Found, file, place string, o map[string]any) {
	d := b.newBoard(f, file, place, str(o["title"]))
	d.uid = str(o["uid"])
	for _, in := range list(o["__inputs"]) {
		d.sources[str(object(in)["name"])] = str(object(in)["pluginId"])
	}
	variables := list(object(o["templating"])["list"])
	for _, v := range variables {
		d.declare(object(v))
	}
	for _, v := range variables {
		d.variable(object(v))
	}
	for i, a := range list(object(o["annotations"])["list"]) {
		a := object(a)
		expr := cmp.Or(str(a["expr"]), str(object(a["target"])["expr"]))
		if expr != "" && d.isPrometheus(a["datasource"]) {
			d.add(KindAnnotation, quotedName("annotation", str(a["name"]), strconv.Itoa(i+1)), expr)
		}
	}
	d.panels(list(o["panels"]))
	for _, r := range list(o["rows"]) {
		d.panels(list(object(r)["panels"]))
	}
	for uid, e := range object(o["__elements"]) {
		e := object(e)
		if str(e["uid"]) == "" {
			e["uid"] = uid
		}
		b.libraryPanel(f, file, place, e, d)
	}
}

// declare remembers a variable before any expression is read.
func (d *board) declare(v map[string]any) {
	name := str(v["name"])
	out := variable{name: name}
	switch str(v["type"]) {
	case "datasource":
		d.sources[name] = str(v["query"])
		return
	case "custom":
		out.values = optionValues(v)
	case "textbox":
		_, err := strconv.ParseFloat(str(v["query"]), 64)
		out.number = err == nil
	case "constant":
		if q := str(v["query"]); q != "" {
			out.values = []string{q}
		}
	}
	d.vars = append(d.vars, out)
}

// optionValues returns the values of a custom variable, or nil if it can have
// others too.
func optionValues(v map[string]any) []string {
	if str(v["allValue"]) != "" {
		return nil
	}
	var out []string
	for _, o := range list(v["options"]) {
		if value := str(object(o)["value"]); value != "" && value != "$__all" {
			out = append(out, value)
		}
	}
	// Grafana makes the options anew from the query when it loads the dashboard.
	for part := range strings.SplitSeq(str(v["query"]), ",") {
		// "text : value" shows one thing and means another.
		if _, value, ok := strings.Cut(part, " : "); ok {
			part = value
		}
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}

// variable reads the query that fills a variable.
func (d *board) variable(v map[string]any) {
	if str(v["type"]) != "query" || !d.isPrometheus(v["datasource"]) {
		return
	}
	place := quotedName("variable", str(v["name"]), "")
	query := str(v["query"])
	if o := object(v["query"]); len(o) > 0 {
		// The editor's own form goes with each kind of query; all have the
		// query as text but that for label values, which some write in parts.
		query = str(o["query"])
		if query == "" && str(o["label"]) != "" {
			query = "label_values(" + str(o["label"]) + ")"
			if metric := str(o["metric"]); metric != "" {
				query = "label_values(" + metric + "," + str(o["label"]) + ")"
			}
		}
	}
	if query = cmp.Or(query, str(v["definition"])); query == "" {
		return
	}
	exprs, listing, err := parseVariableQuery(query, d.vars)
	if err != nil {
		d.found.problem(d.file, d.prefix+", "+place, err)
		return
	}
	d.found.Expressions = append(d.found.Expressions, Expression{
		File: d.file, Place: d.prefix + ", " + place, Kind: KindVariable, Text: query, Dashboard: d.uid, Queries: exprs, Listing: listing,
	})
}

func (d *board) panels(panels []any) {
	for _, p := range panels {
		d.panel(object(p))
	}
}

func (d *board) panel(p map[string]any) {
	place := quotedName("panel", str(p["title"]), "")
	if id := number(p["id"]); id != "" {
		place += " (id " + id + ")"
	}
	if lib := object(p["libraryPanel"]); len(lib) > 0 {
		if model := object(lib["model"]); len(model) > 0 {
			d.library[str(lib["uid"])] = d.file
			p = model
		} else if list(p["targets"]) == nil {
			d.wanted = append(d.wanted, wantedPanel{d.file, d.prefix + ", " + place, str(lib["uid"])})
		}
	}
	for i, t := range list(p["targets"]) {
		t := object(t)
		source := t["datasource"]
		if source == nil && !isMixed(p["datasource"]) {
			source = p["datasource"]
		}
		expr := str(t["expr"])
		if strings.TrimSpace(expr) == "" || !d.isPrometheus(source) {
			continue
		}
		d.add(KindPanel, place+", query "+cmp.Or(str(t["refId"]), strconv.Itoa(i+1)), expr)
	}
	d.panels(list(p["panels"]))
}

func (d *board) add(kind Kind, place, expr string) {
	place = d.prefix + ", " + place
	exprs, err := parseTemplate(expr, d.vars)
	if err != nil {
		d.found.problem(d.file, place, err)
		return
	}
	d.found.Expressions = append(d.found.Expressions, Expression{
		File: d.file, Place: place, Kind: kind, Text: expr, Dashboard: d.uid, Queries: exprs,
	})
}

// libraryPanel reads a panel that dashboards share. It may come with a dashboard,
// whose variables it then uses.
func (b *boards) libraryPanel(f *Found, file, place string, e map[string]any, in *board) {
	model := object(e["model"])
	if len(model) == 0 {
		f.problem(file, place, errors.New("not a library panel: there is no model"))
		return
	}
	b.library[str(e["uid"])] = file
	d := in
	if d == nil {
		d = b.newBoard(f, file, place, "")
		d.prefix = quotedName("library panel", str(e["name"]), str(e["uid"]))
	}
	if str(model["title"]) == "" {
		model["title"] = str(e["name"])
	}
	d.panel(model)
}

// object, list, str and number read JSON whose shape differs between versions of
// Grafana: what is not of the kind asked for is empty. An object can always be
// written to.
func object(v any) map[string]any {
	if o, ok := v.(map[string]any); ok && o != nil {
		return o
	}
	return map[string]any{}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

func number(v any) string {
	switch v.(type) {
	case float64, int:
		return fmt.Sprint(v)
	}
	return ""
}
