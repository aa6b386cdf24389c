// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/features"
)

// parserVersion is the Prometheus whose parser promguard is built with.
const parserVersion = "3.16"

// Mismatch is something in which a server is not what promguard takes it for.
type Mismatch struct {
	// Name is one of the Mismatch constants.
	Name string
	// Text says what it is, why that matters and what to do.
	Text string
	// Fatal is set if limits cannot be enforced as the policy says.
	Fatal bool
}

// The names of mismatches.
const (
	MismatchPath    = "path"
	MismatchKind    = "kind"
	MismatchAgent   = "agent"
	MismatchPromQL  = "promql"
	MismatchVersion = "version"
)

// shownBy returns the question whose answer shows the mismatch.
func (m Mismatch) shownBy() question {
	switch m.Name {
	case MismatchAgent, MismatchPromQL:
		return askedFeatures
	case MismatchPath:
		return askedStep
	default:
		return askedBuild
	}
}

func mismatchNames() []string {
	return []string{MismatchPath, MismatchKind, MismatchAgent, MismatchPromQL, MismatchVersion}
}

// Mismatches compares a server with what it is configured to be.
func (f *Facts) Mismatches(kind Kind) []Mismatch {
	var list []Mismatch
	add := func(name string, fatal bool, format string, args ...any) {
		list = append(list, Mismatch{name, fmt.Sprintf(format, args...), fatal})
	}
	if f.NoAPI != "" {
		add(MismatchPath, true, "%s, so the API is not there: if the server has a path (--web.route-prefix, --web.external-url), add it to --upstream.url", f.NoAPI)
		return list
	}
	if f.Kind != "" && f.Kind != kind {
		add(MismatchKind, true, "it is %s, and --upstream.kind is %s: parameters would be lost and queries judged as of another language; use --upstream.kind=%s", f.describe(), kind, f.Kind)
	}
	if f.Features[features.Prometheus]["agent_mode"] {
		add(MismatchAgent, true, "it is a Prometheus in agent mode, which answers no queries: put the server that it writes to behind promguard")
	}
	if unknown := f.unknownPromQL(); len(unknown) > 0 {
		add(MismatchPromQL, false, "its PromQL has %s, which this promguard, with the parser of Prometheus %s, cannot judge: queries that use it are refused, unless limits.unknown_promql lets them pass; use a newer promguard", list3(unknown), parserVersion)
	}
	if f.Kind == KindPrometheus && newer(f.Version, parserVersion) {
		add(MismatchVersion, false, "it is Prometheus %s, and this promguard has the parser of %s: what is new in PromQL since is refused with 400; use a newer promguard", f.Version, parserVersion)
	}
	return list
}

func (f *Facts) describe() string {
	name := map[Kind]string{KindPrometheus: "Prometheus", KindThanos: "Thanos", KindMimir: "Mimir or Cortex", KindVictoriaMetrics: "VictoriaMetrics"}[f.Kind]
	if f.Application != "" {
		name = f.Application
	}
	if f.Version == "" || f.Kind == KindVictoriaMetrics { // Which tells that of a Prometheus.
		return name
	}
	return name + " " + f.Version
}

// unknownPromQL returns what is switched on in the PromQL of the server and unknown
// to the parser of promguard, sorted.
func (f *Facts) unknownPromQL() []string {
	known := features.NewRegistry()
	parser.NewParser(parser.Options{}).(interface{ RegisterFeatures(features.Collector) }).RegisterFeatures(known)
	for _, name := range evaluationFeatures {
		known.Enable(features.PromQL, name)
	}
	own := known.Get()
	var unknown []string
	for _, category := range []string{features.PromQL, features.PromQLFunctions, features.PromQLOperators} {
		for name, on := range f.Features[category] {
			if _, ok := own[category][name]; on && !ok {
				unknown = append(unknown, name)
			}
		}
	}
	slices.Sort(unknown)
	return unknown
}

// evaluationFeatures are those of Prometheus's engine, which change what a query
// returns and not what it reads.
var evaluationFeatures = []string{
	"at_modifier", "negative_offset", "per_step_stats", "delayed_name_removal", "type_and_unit_labels",
	"per_query_lookback_delta", "subqueries",
}

// list3 names three at most.
func list3(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + " and " + strconv.Itoa(len(names)-3) + " more"
	}
	return strings.Join(names, ", ")
}

// newer reports whether version is of a later minor release than than.
func newer(version, than string) bool {
	a, okA := minor(version)
	b, okB := minor(than)
	return okA && okB && slices.Compare(a, b) > 0
}

func minor(version string) ([]int, bool) {
	var parts []int
	for _, text := range strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3) {
		n, err := strconv.Atoi(text)
		if err != nil {
			break
		}
		parts = append(parts, n)
	}
	if len(parts) < 2 {
		return nil, false
	}
	return parts[:2], true
}
