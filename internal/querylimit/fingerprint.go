// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"encoding/hex"
	"hash"
	"hash/fnv"

	"github.com/prometheus/prometheus/model/labels"
)

// fingerprint hashes the shape of a query: names, labels, functions and how they
// nest, without values.
type fingerprint struct{ sum hash.Hash64 }

func newFingerprint() *fingerprint { return &fingerprint{fnv.New64a()} }

// word adds a word and an end that no word contains.
func (f *fingerprint) word(s string) { _, _ = f.sum.Write(append([]byte(s), 0xff)) }

func (f *fingerprint) flag(set bool) {
	if set {
		f.word("+")
	} else {
		f.word("-")
	}
}

func (f *fingerprint) matchers(ms []*labels.Matcher) {
	f.word("{")
	for _, m := range ms {
		f.word(m.Name)
		f.word(m.Type.String())
		if m.Name == labels.MetricName {
			f.word(m.Value)
		}
	}
	f.word("}")
}

func (f *fingerprint) text() string { return hex.EncodeToString(f.sum.Sum(nil)) }
