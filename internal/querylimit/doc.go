// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package querylimit decides what may be asked of a Prometheus server: which
// selectors, how much text, for how long. It is policy only. It knows nothing
// of HTTP, of files or of YAML.
//
// A [Ruleset] holds the limits of everybody, of tenants and of matching requests,
// and decides on the [Policy] of one request.
//
// A [Policy] is built once by [New] and never changes; any number of goroutines
// may use it at the same time. Its Check methods return the [Refusals] of every
// limit that a request exceeds, whatever the mode of the limit; what to do about
// them is the caller's business, and [Refusals.Err] is the usual answer.
package querylimit
