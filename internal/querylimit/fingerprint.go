// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
)

// fingerprint hashes the shape of a query: names, labels, functions and how they
// nest, without values. It is cryptographic, so that two shapes have the same by
// chance only; whoever makes 2^64 queries finds one with that of a rule.
type fingerprint struct{ sum hash.Hash }

// fingerprintBytes is how much of the hash is used.
const fingerprintBytes = 8

func newFingerprint() *fingerprint { return &fingerprint{sha256.New()} }

// word adds a word and an end that no word contains.
func (f *fingerprint) word(s string) { _, _ = f.sum.Write(append([]byte(s), 0xff)) }

// words adds a list, with its length, so that it is not taken for another with
// what follows.
func (f *fingerprint) words(list []string) {
	f.word(strconv.Itoa(len(list)))
	for _, s := range list {
		f.word(s)
	}
}

func (f *fingerprint) flag(set bool) {
	if set {
		f.word("+")
	} else {
		f.word("-")
	}
}

func (f *fingerprint) matchers(ms []*labels.Matcher) {
	f.word("{")
	f.word(strconv.Itoa(len(ms)))
	for _, m := range ms {
		f.word(m.Name)
		f.word(m.Type.String())
		if m.Name == labels.MetricName {
			f.word(m.Value)
		}
	}
	f.word("}")
}

func (f *fingerprint) text() string { return hex.EncodeToString(f.sum.Sum(nil)[:fingerprintBytes]) }
