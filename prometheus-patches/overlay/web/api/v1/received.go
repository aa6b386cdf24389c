// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"net/http"

	"github.com/prometheus/prometheus/storage"
)

// Ways in which the API receives samples.
const (
	PathRemoteWrite = "remote-write"
	PathOTLP        = "otlp"
)

// ReceivedAppendable is an Appendable that treats samples by the way in which they
// are received.
type ReceivedAppendable interface {
	storage.AppendableV2
	ReceivedBy(path string) storage.AppendableV2
	// Answer returns the handler that receives them, with answers that say what was
	// refused.
	Answer(path string, h http.Handler) http.Handler
}

// receivedBy returns what takes the samples that are received in that way.
func receivedBy(path string, a storage.AppendableV2) storage.AppendableV2 {
	if r, ok := a.(ReceivedAppendable); ok {
		return r.ReceivedBy(path)
	}
	return a
}

// answeredBy returns the handler of that way, h, with the answers of a.
func answeredBy(path string, a storage.AppendableV2, h http.Handler) http.Handler {
	if r, ok := a.(ReceivedAppendable); ok {
		return r.Answer(path, h)
	}
	return h
}
