// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonedit changes an answer of Prometheus's API while it is streamed: it
// adds warnings to the envelope, tells those of the server, and truncates a list that is too long. The list is
// data, or result in it if its entries are objects. Entries are sent whole or not at
// all, and what stands around the list is kept. What is no envelope passes as it is.
//
// It neither decodes an answer nor holds more of it than an entry, and knows nothing
// of HTTP.
package jsonedit
