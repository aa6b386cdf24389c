// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Facts is what a server says of itself. What it does not tell has the zero value.
type Facts struct {
	// Application and Version are its own words; Kind is what they mean.
	Application, Version string
	Kind                 Kind
	// Lookback and QueryTimeout are its flags of these names, MaxSamples is
	// --query.max-samples.
	Lookback, QueryTimeout time.Duration
	MaxSamples             int
	// SubqueryStep is the step of a subquery without one, as it was seen.
	SubqueryStep time.Duration
	// Started is when the process started.
	Started time.Time
	// Features are what /api/v1/features lists, by category and name.
	Features map[string]map[string]bool
	// NoAPI, if not empty, says how it answered where the API should be.
	NoAPI string
	// Secret is set if it wants credentials, so that it told nothing.
	Secret bool
}

// asker sends GET requests to paths below the root of a server.
type asker func(ctx context.Context, path, query string) (answer, error)

// subqueryStep is answered with the step of a subquery that has none, in seconds.
// It reads no series.
const subqueryStep = "(max_over_time(vector(time())[1h:]) - min_over_time(vector(time())[1h:])) / (count_over_time(vector(1)[1h:]) - 1)"

// askFacts asks a server what it is. An error means that it went away meanwhile.
func askFacts(ctx context.Context, ask asker) (*Facts, error) {
	f := &Facts{}
	a, err := ask(ctx, apiPrefix+"status/buildinfo", "")
	if err != nil {
		return nil, err
	}
	var build struct{ Application, Version, Revision, GoVersion string }
	switch {
	case a.code == http.StatusUnauthorized || a.code == http.StatusForbidden:
		f.Secret = true
		return f, nil
	case a.data(&build):
		f.Application, f.Version = build.Application, build.Version
		f.Kind = kindOf(build.Application, build.Version, build.Revision+build.GoVersion != "")
	case !a.isEnvelope():
		if err := f.findAPI(ctx, ask, a.code); err != nil || f.NoAPI != "" {
			return f, err
		}
	}
	return f, errors.Join(f.askFlags(ctx, ask), f.askFeatures(ctx, ask), f.askStarted(ctx, ask), f.askSubqueryStep(ctx, ask))
}

// kindOf returns the kind that build information stands for. Thanos says of itself
// what Prometheus does, with versions that begin with 0; VictoriaMetrics tells the
// version of one Prometheus and nothing else.
func kindOf(application, version string, built bool) Kind {
	application, version = strings.ToLower(application), strings.TrimPrefix(version, "v")
	switch {
	case strings.Contains(application, "mimir"), strings.Contains(application, "cortex"):
		return KindMimir
	case application != "" && application != "prometheus":
		return ""
	case !built && version == "2.24.0":
		return KindVictoriaMetrics
	case built && strings.HasPrefix(version, "0."):
		return KindThanos
	case built && version != "" && version[0] >= '1' && version[0] <= '9':
		return KindPrometheus
	}
	return "" // A build from a branch, or something that nobody here knows.
}

// findAPI finds out whether a server without build information has the API: a
// gateway may let queries through and nothing else.
func (f *Facts) findAPI(ctx context.Context, ask asker, code int) error {
	a, err := ask(ctx, apiPrefix+"query", url.Values{"query": {"vector(1)"}}.Encode())
	if err != nil {
		return err
	}
	if !a.isEnvelope() && a.code != http.StatusUnauthorized && a.code != http.StatusForbidden {
		f.NoAPI = "it answers " + strconv.Itoa(code) + " at " + apiPrefix + "status/buildinfo and " + strconv.Itoa(a.code) + " at " + apiPrefix + "query"
	}
	return nil
}

func (f *Facts) askFlags(ctx context.Context, ask asker) error {
	a, err := ask(ctx, apiPrefix+"status/flags", "")
	flags := map[string]string{}
	if err != nil || !a.data(&flags) {
		return err
	}
	duration := func(name string) time.Duration {
		d, err := model.ParseDuration(flags[name])
		if err != nil {
			return 0
		}
		return time.Duration(d)
	}
	f.Lookback, f.QueryTimeout = duration("query.lookback-delta"), duration("query.timeout")
	if n, err := strconv.Atoi(flags["query.max-samples"]); err == nil {
		f.MaxSamples = n
	}
	return nil
}

func (f *Facts) askFeatures(ctx context.Context, ask asker) error {
	a, err := ask(ctx, apiPrefix+"features", "")
	if err != nil || a.data(&f.Features) {
		return err
	}
	f.Features = nil // As far as it was decoded.
	return nil
}

func (f *Facts) askStarted(ctx context.Context, ask asker) error {
	a, err := ask(ctx, apiPrefix+"status/runtimeinfo", "")
	var info struct{ StartTime time.Time }
	if err == nil && a.data(&info) {
		f.Started = info.StartTime
	}
	return err
}

func (f *Facts) askSubqueryStep(ctx context.Context, ask asker) error {
	a, err := ask(ctx, apiPrefix+"query", url.Values{"query": {subqueryStep}}.Encode())
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err != nil || !a.data(&data) || len(data.Result) != 1 {
		return err
	}
	text, _ := data.Result[0].Value[1].(string)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && !math.IsInf(seconds, 0) { // Nor NaN.
		f.SubqueryStep = time.Duration(math.Round(seconds*1000)) * time.Millisecond
	}
	return nil
}

// data decodes the data of a successful answer.
func (a answer) data(into any) bool {
	var envelope struct {
		Status string
		Data   json.RawMessage
	}
	return a.code/100 == 2 && json.Unmarshal(a.body, &envelope) == nil && envelope.Status == "success" &&
		json.Unmarshal(envelope.Data, into) == nil
}

// isEnvelope reports whether the answer is one of Prometheus's API, be it an error.
func (a answer) isEnvelope() bool {
	var envelope struct{ Status string }
	return json.Unmarshal(a.body, &envelope) == nil && (envelope.Status == "success" || envelope.Status == "error")
}
