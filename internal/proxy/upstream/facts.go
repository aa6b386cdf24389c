// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
)

// Facts is what a server says of itself. What it does not tell has the zero value.
type Facts struct {
	// Application and Version are its own words; Kind is what they mean.
	Application, Version string
	Kind                 Kind
	// Lookback is --query.lookback-delta.
	Lookback time.Duration
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

	// built and flagged are what build information and flags say of the kind.
	built, flagged Kind

	answered question // what it has an answer to, be it that it does not know
	strange  int      // the status of what it has in place of build information; 0 if nothing
}

// asker sends GET requests to paths below the root of a server.
type asker func(ctx context.Context, path, query string) (answer, error)

// question is one of those that a server is asked, or a set of them.
type question uint8

const (
	askedBuild question = 1 << iota
	askedFlags
	askedFeatures
	askedStart
	askedStep

	askedAll = askedBuild | askedFlags | askedFeatures | askedStart | askedStep
)

// subqueryStep is answered with the step of a subquery that has none, in seconds.
// It reads no series.
const subqueryStep = "(max_over_time(vector(time())[1h:]) - min_over_time(vector(time())[1h:])) / (count_over_time(vector(1)[1h:]) - 1)"

// questions are what a server is asked. The answer to the first decides what the
// others mean.
var questions = []struct {
	question

	path, query string
	note        func(*Facts, answer)
}{
	{askedBuild, "status/buildinfo", "", (*Facts).noteBuild},
	{askedFlags, "status/flags", "", (*Facts).noteFlags},
	{askedFeatures, "features", "", (*Facts).noteFeatures},
	{askedStart, "status/runtimeinfo", "", (*Facts).noteStart},
	{askedStep, "query", url.Values{"query": {subqueryStep}}.Encode(), (*Facts).noteStep},
}

// askFacts asks a server what it is. What it has no answer to now, since it is
// overloaded or went away, stays as it was before. The error says so.
func askFacts(ctx context.Context, ask asker, before Facts) (*Facts, error) {
	f, answers, errs := before, make([]answer, len(questions)), make([]error, len(questions))
	put := func(i int) { answers[i], errs[i] = ask(ctx, apiPrefix+questions[i].path, questions[i].query) }
	put(0)
	if errs[0] != nil {
		return &f, errs[0]
	}
	if answers[0].isSecret() { // Rather than asking five times.
		f.Secret, f.answered = true, askedAll
		return &f, nil
	}
	var wg sync.WaitGroup // A query may wait for others, and what is asked beside it need not.
	for i := 1; i < len(questions); i++ {
		wg.Go(func() { put(i) })
	}
	wg.Wait()
	for i, q := range questions {
		switch a := answers[i]; {
		case errs[i] != nil:
		case a.isInconclusive():
			errs[i] = fmt.Errorf("status %d at %s", a.code, apiPrefix+q.path)
		default:
			f.answered |= q.question
			if a.isOfServer() {
				q.note(&f, a)
			}
		}
	}
	if f.Kind = f.built; f.Kind == "" && f.Application == "" {
		f.Kind = f.flagged
	}
	return &f, errors.Join(errs...)
}

type buildInfo struct{ Application, Version, Revision, GoVersion string }

func (f *Facts) noteBuild(a answer) {
	build := data[buildInfo](a)
	f.Application, f.Version, f.Secret = build.Application, build.Version, false
	f.built = kindOf(build.Application, build.Version, build.Revision+build.GoVersion != "")
	if f.strange = 0; !a.isEnvelope() {
		f.strange = a.code
	}
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

func (f *Facts) noteFlags(a answer) {
	flags := data[map[string]string](a)
	f.Lookback = 0
	if d, err := model.ParseDuration(flags["query.lookback-delta"]); err == nil {
		f.Lookback = time.Duration(d)
	}
	f.flagged = ""
	if _, ok := flags["query.replica-label"]; ok { // A build by hand tells no version.
		f.flagged = KindThanos
	}
}

func (f *Facts) noteFeatures(a answer) {
	f.Features = data[map[string]map[string]bool](a) // A new one: others may read the old one.
}

func (f *Facts) noteStart(a answer) {
	info := data[struct{ StartTime time.Time }](a)
	f.Started = info.StartTime
}

// noteStep notes the step, and whether a server without build information has the
// API: a gateway may let queries through and nothing else.
func (f *Facts) noteStep(a answer) {
	f.SubqueryStep = 0
	if f.NoAPI = ""; f.strange != 0 && !a.isEnvelope() {
		f.NoAPI = fmt.Sprintf("it answers %d at %sstatus/buildinfo and %d at %squery", f.strange, apiPrefix, a.code, apiPrefix)
	}
	vector := data[struct {
		Result []struct{ Value [2]any }
	}](a)
	if len(vector.Result) != 1 {
		return
	}
	text, _ := vector.Result[0].Value[1].(string)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && !math.IsInf(seconds, 0) { // Nor NaN.
		f.SubqueryStep = time.Duration(math.Round(seconds*1000)) * time.Millisecond
	}
}

// envelope is an answer of Prometheus's API.
type envelope[T any] struct {
	Status   string
	Data     T
	Warnings []string
}

const statusSuccess = "success"

// envelopeOf returns a successful answer; of another, the zero value.
func envelopeOf[T any](a answer) (e envelope[T]) {
	if a.code/100 != 2 || json.Unmarshal(a.body, &e) != nil || e.Status != statusSuccess {
		return envelope[T]{}
	}
	return e
}

// data returns the data of a successful answer; of another, the zero value.
func data[T any](a answer) T { return envelopeOf[T](a).Data }

// isEnvelope reports whether the answer is one of Prometheus's API, be it an error.
func (a answer) isEnvelope() bool {
	var e struct{ Status string }
	return json.Unmarshal(a.body, &e) == nil && (e.Status == statusSuccess || e.Status == "error")
}

func (a answer) isSecret() bool {
	return a.code == http.StatusUnauthorized || a.code == http.StatusForbidden
}

// isInconclusive reports whether the answer says nothing of what the server is: it,
// or what is before it, is overloaded or broken, or sends clients elsewhere.
func (a answer) isInconclusive() bool {
	switch a.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return a.code/100 == 3 || a.code/100 == 5
}

// isOfServer reports whether the answer is what was asked for, or says that there
// is no such thing. Other errors are about the request.
func (a answer) isOfServer() bool {
	switch a.code {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return true
	}
	return a.code/100 == 2
}
