// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
)

// fingerprint hashes the shape of a query: names, labels, functions and how they
// nest, without values. It is cryptographic, so that two shapes have the same by
// chance only; whoever makes 2^64 queries finds one with that of a rule.
type fingerprint struct{ words []byte }

// fingerprintBytes is how much of the hash is used.
const fingerprintBytes = 8

// word adds a word and an end that no word contains.
func (f *fingerprint) word(s string) { f.words = append(append(f.words, s...), 0xff) }

// list adds a list, with its length, so that it is not taken for another with
// what follows.
func (f *fingerprint) list(words []string) {
	f.word(strconv.Itoa(len(words)))
	for _, s := range words {
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

func (f *fingerprint) text() string {
	sum := sha256.Sum256(f.words)
	return hex.EncodeToString(sum[:fingerprintBytes])
}
