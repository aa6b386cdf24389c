// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes on this machine for tests: etcd, the API
// server, the controllers and the scheduler, the Prometheus operator with its
// admission, and for root a node with containerd. Nothing is simulated and nothing
// is downloaded: the parts are upstream's code, built by make cluster.
//
// For root, all of it lives in namespaces of its own (see Isolated), so that what a
// test starts, mounts and routes ends with it, however it ends.
package cluster
