// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstream knows the upstream servers: whether they are ready,
// which of them to read from, and what they are.
//
// A [Pool] has one server, or the two of an HA pair. It looks at them every few
// seconds. Reads go to one server at a time, so that graphs do not flip between
// two that scrape at different moments. What is known of a server is whether it is
// ready, what it misses of the samples that the other has, and since when its data
// are complete; which one is chosen follows from that alone.
//
// It also asks each what it is, see [Facts]. What differs from what promguard
// takes for granted is used, if it is a number, and told as a [Mismatch] if not.
package upstream
