// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelike models what the scrape targets of a Kubernetes cluster
// expose: nodes, pods and containers, metric families with their real names and
// label shapes, counters that rise, gauges that move, and pods that are replaced
// over time. Benchmarks and demonstrations use it as input of a known size and
// shape.
//
// A Cluster is a pure function of its Config and of the time since its start: it
// keeps no samples, so a cluster of millions of series costs a few megabytes.
// There are two ways to read it. Target.WriteText streams a target's text
// exposition, as Prometheus would scrape it. Target.Groups iterates the same
// series as Prometheus would store them, for writing a write-ahead log directly.
//
// The package does not model a cluster's behaviour: values have the right form
// (monotone, cumulative, integral, idle) and no meaning.
package kubelike
