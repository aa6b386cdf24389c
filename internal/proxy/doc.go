// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package proxy puts a querylimit.Ruleset in front of the read API of a
// Prometheus server. A request makes six stops: route, who asks (see package
// identity), read, judge, forward, release; see [Proxy.ServeHTTP].
//
// What reaches the upstream server is never the client's bytes but a request
// written anew from what was understood of them; see package canonical. Answers are
// streamed and not looked into, except to add a warning that a limit in mode warn
// asks for; see package jsonedit.
//
// The package reads no files and knows no flags.
package proxy
