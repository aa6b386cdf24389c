// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/promguard/promguard/internal/querylimit"
)

// The error types of Prometheus's API that promguard uses; clients decode them.
const (
	typeBadData     = "bad_data"
	typeExecution   = "execution"
	typeTimeout     = "timeout"
	typeCanceled    = "canceled"
	typeUnavailable = "unavailable"
	typeNotFound    = "not_found"
)

// retryAfterSeconds is what a client is told to wait when the upstream server
// is away; about the time between two probes of it.
const retryAfterSeconds = 5

// apiError is an answer that promguard gives itself.
type apiError struct {
	code   int    // HTTP status
	typ    string // errorType of the envelope
	reason string // label of promguard_refused_total or promguard_shed_total; "" where another counter has it
	err    error
	shed   bool // there was no room for it
}

func (e *apiError) Error() string { return e.err.Error() }
func (e *apiError) Unwrap() error { return e.err }

func badData(err error) error {
	return &apiError{code: http.StatusBadRequest, typ: typeBadData, reason: "bad_data", err: err}
}

func notFound(err error) error {
	return &apiError{code: http.StatusNotFound, typ: typeNotFound, reason: "not_found", err: err}
}

// asAPIError returns how err is told to a client. A policy's refusal is 422 with
// the error type that Prometheus gives a query it cannot run: Grafana reads the
// bodies of 400, 422 and 503 only, and repeats a POST as a GET after a 400.
func asAPIError(err error) *apiError {
	if ae, ok := errors.AsType[*apiError](err); ok {
		return ae
	}
	if refusal, ok := errors.AsType[*querylimit.Refusal](err); ok {
		return &apiError{code: http.StatusUnprocessableEntity, typ: typeExecution, reason: refusal.Limit, err: err}
	}
	return &apiError{code: http.StatusInternalServerError, typ: "internal", reason: "internal", err: err}
}

// writeData answers with data as Prometheus does.
func writeData(w http.ResponseWriter, data any) {
	body, err := json.Marshal(map[string]any{"status": "success", "data": data})
	if err != nil {
		writeError(w, asAPIError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // An error means that the client is gone.
}

// envelope is Prometheus's answer without data: a data key, even null, makes
// Grafana hide the message.
type envelope struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
}

func writeError(w http.ResponseWriter, e *apiError) {
	body, _ := json.Marshal(envelope{"error", e.typ, e.Error()}) // Strings always marshal.
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if e.typ == typeUnavailable {
		h.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	w.WriteHeader(e.code)
	// An error here means that the client is gone; there is nobody to tell.
	_, _ = w.Write(body)
}
