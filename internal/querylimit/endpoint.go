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
	// Results is what the parameter limit counts; nil if that is not limited.
	Results *ResultSet
}

var endpoints = func() []Endpoint {
	sets := ResultSets()
	query, series, names, values := &sets[ResultsQuery], &sets[ResultsSeries], &sets[ResultsLabels], &sets[ResultsLabelValues]
	const q, m, s, b = ClassQuery, ClassMetadata, ClassStatus, ClassBulk
	return []Endpoint{
		{"query", q, TakesExpr, ReadsInstant, query},
		{"query_range", q, TakesExpr, ReadsSteps, query},
		{"query_cost", q, TakesExpr, ReadsInstant, query},
		{"query_range_cost", q, TakesExpr, ReadsSteps, query},
		{"query_exemplars", q, TakesBareExpr, ReadsWindow, nil},
		{"format_query", s, TakesExpr, ReadsNothing, nil},
		{"parse_query", s, TakesExpr, ReadsNothing, nil},
		{"labels", m, TakesSelectors, ReadsMetadata, names},
		{"label/:name/values", m, TakesSelectors, ReadsMetadata, values},
		{"series", m, TakesSelectors, ReadsMetadata, series},
		{"metadata", m, TakesNothing, ReadsNothing, nil},
		{"targets", m, TakesNothing, ReadsNothing, nil},
		{"targets/metadata", m, TakesSelector, ReadsNothing, nil},
		{"rules", s, TakesSelectors, ReadsNothing, nil},
		{"alerts", s, TakesNothing, ReadsNothing, nil},
		{"alertmanagers", s, TakesNothing, ReadsNothing, nil},
		{"scrape_pools", m, TakesNothing, ReadsNothing, nil},
		{"features", s, TakesNothing, ReadsNothing, nil},
		{"status/buildinfo", s, TakesNothing, ReadsNothing, nil},
		{"status/runtimeinfo", s, TakesNothing, ReadsNothing, nil},
		{"status/flags", s, TakesNothing, ReadsNothing, nil},
		{"status/config", s, TakesNothing, ReadsNothing, nil},
		{"status/tsdb", m, TakesNothing, ReadsNothing, nil},
		{"status/walreplay", s, TakesNothing, ReadsNothing, nil},
		{EndpointFederate, b, TakesSelectors, ReadsNothing, nil},
		{EndpointRead, b, TakesSelectors, ReadsWindows, nil},
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
