// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

// Takes says what kind of PromQL an endpoint takes.
type Takes uint8

// What endpoints take.
const (
	TakesNothing   Takes = iota
	TakesExpr            // query=, evaluated
	TakesBareExpr        // query=, of which only the selectors are read
	TakesSelectors       // match[]=
	TakesSelector        // match_target=
)

// Reads says which times of a request count.
type Reads uint8

// What endpoints read.
const (
	ReadsNothing  Reads = iota
	ReadsInstant        // time=, of an evaluation
	ReadsSteps          // start=, end=, step=, of an evaluation
	ReadsWindow         // start=, end=, of what is read as it stands
	ReadsMetadata       // the same, of metadata
	ReadsWindows        // of several queries, what each reads as it stands
)

// Endpoint is what the limits need to know of an endpoint of the read API.
type Endpoint struct {
	// Name is its path below /api/v1, as a Subject has it.
	Name  string
	Class Class
	Takes Takes
	Reads Reads
	// Limited is set if the parameter limit bounds series, names or values.
	Limited bool
}

var endpoints = func() []Endpoint {
	const q, m, s, b = ClassQuery, ClassMetadata, ClassStatus, ClassBulk
	return []Endpoint{
		{"query", q, TakesExpr, ReadsInstant, true},
		{"query_range", q, TakesExpr, ReadsSteps, true},
		{"query_cost", q, TakesExpr, ReadsInstant, true},
		{"query_range_cost", q, TakesExpr, ReadsSteps, true},
		{"query_exemplars", q, TakesBareExpr, ReadsWindow, false},
		{"format_query", s, TakesExpr, ReadsNothing, false},
		{"parse_query", s, TakesExpr, ReadsNothing, false},
		{"labels", m, TakesSelectors, ReadsMetadata, true},
		{"label/:name/values", m, TakesSelectors, ReadsMetadata, true},
		{"series", m, TakesSelectors, ReadsMetadata, true},
		{"metadata", m, TakesNothing, ReadsNothing, false},
		{"targets", m, TakesNothing, ReadsNothing, false},
		{"targets/metadata", m, TakesSelector, ReadsNothing, false},
		{"rules", s, TakesSelectors, ReadsNothing, false},
		{"alerts", s, TakesNothing, ReadsNothing, false},
		{"alertmanagers", s, TakesNothing, ReadsNothing, false},
		{"scrape_pools", m, TakesNothing, ReadsNothing, false},
		{"features", s, TakesNothing, ReadsNothing, false},
		{"status/buildinfo", s, TakesNothing, ReadsNothing, false},
		{"status/runtimeinfo", s, TakesNothing, ReadsNothing, false},
		{"status/flags", s, TakesNothing, ReadsNothing, false},
		{"status/config", s, TakesNothing, ReadsNothing, false},
		{"status/tsdb", m, TakesNothing, ReadsNothing, false},
		{"status/walreplay", s, TakesNothing, ReadsNothing, false},
		{EndpointFederate, b, TakesSelectors, ReadsNothing, false},
		{EndpointRead, b, TakesSelectors, ReadsWindows, false},
	}
}()

// The endpoints of ClassBulk. EndpointFederate is not below /api/v1.
const (
	EndpointFederate = "federate"
	EndpointRead     = "read"
)

// Endpoints returns the names of the endpoints of the read API.
func Endpoints() []string {
	names := make([]string, len(endpoints))
	for i := range endpoints {
		names[i] = endpoints[i].Name
	}
	return names
}

// FindEndpoint returns the endpoint of that name, or nil.
func FindEndpoint(name string) *Endpoint {
	for i := range endpoints {
		if endpoints[i].Name == name {
			return &endpoints[i]
		}
	}
	return nil
}
