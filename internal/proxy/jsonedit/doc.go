// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonedit changes an answer of Prometheus's API while it is streamed: it adds
// warnings to the envelope, and reports those of the server. What is no envelope passes
// as it is.
//
// It neither decodes nor holds an answer, and knows nothing of HTTP.
package jsonedit
