// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package canonical reads a client's request to the read API of Prometheus, and writes
// it anew: what is not understood does not reach the server, so that promguard and the
// server cannot disagree on what was asked. It knows the endpoints, their parameters
// and how Prometheus's handlers read these, and judges nothing.
package canonical
