// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/route"

	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
	"github.com/prometheus/prometheus/promguard/reads"
)

const (
	// statusRoute is where the state of the server is told, below /api/v1,
	// statusRoute/queries where reads are listed and stopped, and statusRoute/top which
	// of them cost most.
	statusRoute = "/status/guard"
	// stopWait is how long an answer waits for a stopped read to end.
	stopWait = time.Second
)

// Register adds the endpoints that tell the state, list the reads and stop one, and tell
// which cost most. Their answers name users and addresses: none has CORS headers, whatever
// --web.cors.origin allows, and a page of another origin cannot send DELETE.
func (h *Handlers) Register(r *route.Router) {
	if h == nil {
		return
	}
	r.Get(statusRoute, h.status)
	r.Get(statusRoute+"/queries", h.list)
	r.Del(statusRoute+"/queries/:id", h.stop)
	r.Get(statusRoute+"/top", h.top)
}

// guardStatus is how much memory the server has, and who takes more.
type guardStatus struct {
	Memory    *memory.Status    `json:"memory,omitempty"`
	NewSeries *newseries.Report `json:"newSeries,omitempty"`
}

func (h *Handlers) status(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, envelope{Status: "success", Data: guardStatus{h.opts.Memory.Status(), h.opts.NewSeries.Recent()}})
}

func (h *Handlers) list(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, envelope{Status: "success", Data: h.table.List()})
}

func (h *Handlers) top(w http.ResponseWriter, r *http.Request) {
	report, err := h.seen.top.Asked(time.Now(), r.FormValue)
	if err != nil {
		respond(w, http.StatusBadRequest, envelope{Status: "error", ErrorType: "bad_data", Error: err.Error()})
		return
	}
	for i := range report.Queries {
		report.Queries[i].Fingerprint = "" // It only tells texts apart, and is no fingerprint of a policy.
	}
	respond(w, http.StatusOK, envelope{Status: "success", Data: report})
}

// stoppedByOperator is what the client is told.
var stoppedByOperator = &reads.Stop{Reason: reads.ReasonOperator, Text: "an operator stopped this request"}

// stopped is what the answer to a stop says.
type stopped struct {
	reads.Status
	// Ended says that the read has given back what it had reserved.
	Ended bool `json:"ended"`
}

func (h *Handlers) stop(w http.ResponseWriter, r *http.Request) {
	if !h.opts.EnableStop {
		respond(w, http.StatusForbidden, envelope{Status: "error", ErrorType: "unavailable", Error: noStop})
		return
	}
	text := route.Param(r.Context(), "id")
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		respond(w, http.StatusBadRequest, envelope{Status: "error", ErrorType: "bad_data", Error: fmt.Sprintf("Give an id from GET %s/queries: %q is not a number", statusRoute, text)})
		return
	}
	status, done, ok := h.table.Stop(id, stoppedByOperator)
	if !ok {
		respond(w, http.StatusNotFound, envelope{Status: "error", ErrorType: "not_found", Error: fmt.Sprintf("no request with id %d runs or waits", id)})
		return
	}
	answer := stopped{Status: status}
	select {
	case <-done:
		answer.Ended = true
	case <-time.After(stopWait):
	}
	respond(w, http.StatusOK, envelope{Status: "success", Data: answer})
}

// envelope is the API's JSON envelope.
type envelope struct {
	Status    string `json:"status"`
	Data      any    `json:"data,omitempty"`
	ErrorType string `json:"errorType,omitempty"`
	Error     string `json:"error,omitempty"`
}

func respond(w http.ResponseWriter, code int, e envelope) {
	body, _ := json.Marshal(e)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
