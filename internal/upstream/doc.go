// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstream knows the servers behind the guard: whether they are ready,
// which of them to read from, and what they are.
//
// A [Pool] has one server, or the two of an HA pair. It looks at them every few
// seconds. Reads go to one server at a time, so that graphs do not flip between
// two that scrape at different moments, and to the other while the first does not
// answer, replays its log or has no new samples.
//
// It also asks each what it is, see [Facts]. What differs from what the guard
// takes for granted is used, if it is a number, and told as a [Mismatch] if not.
package upstream
