// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// viaPrefix begins the name of a proxy in the header Via. The rest is random, so
// that each process has a name of its own, and nobody else knows it but the servers
// behind it.
const viaPrefix = "promguard-"

// StatusLoop is what a proxy answers to a request of its own. No server has a reason
// to.
const StatusLoop = http.StatusLoopDetected

var errLoop = errors.New("it is this promguard, or one that asks this promguard: --upstream.url must lead to a Prometheus")

func newName() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // It never fails.
	return viaPrefix + hex.EncodeToString(random)
}

// Name is what promguard calls itself in the header Via of all that it asks.
func (p *Pool) Name() string { return p.via }

// Sign adds promguard to the header Via of a request.
func (p *Pool) Sign(h http.Header) { h["Via"] = append(slices.Clip(h["Via"]), "1.1 "+p.via) }

// Passed says which other proxies a request has passed, and whether it has passed
// this one.
func (p *Pool) Passed(h http.Header) (others []string, own bool) {
	for _, line := range h["Via"] {
		for hop := range strings.SplitSeq(line, ",") {
			words := strings.Fields(hop) // The protocol, a name, and maybe a comment.
			switch {
			case len(words) < 2 || !strings.HasPrefix(words[1], viaPrefix):
			case words[1] == p.via:
				own = true
			default:
				others = append(others, words[1])
			}
		}
	}
	return others, own
}
