// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package paritytest compares what Prometheus's own API answers with and without
// promguard in front of it. It has tests only, and is a package of its own so
// that those of package proxy need not build all of Prometheus.
package paritytest
