// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "github.com/prometheus/prometheus/model/labels"

// regexCost estimates what the regular expressions of matchers cost the server
// for each value of their labels, in instructions. It runs them over all values
// that the label has anywhere, whatever the other matchers leave of the series:
// an equality on the metric name does not help.
func regexCost(ms []*labels.Matcher) int {
	n := 0
	for _, m := range ms {
		n += matcherCost(m)
	}
	return n
}

// matcherCost follows labels.FastRegexMatcher.
func matcherCost(m *labels.Matcher) int {
	switch {
	case m.Type != labels.MatchRegexp && m.Type != labels.MatchNotRegexp:
		return 0
	case m.Value == "" || m.Value == ".*" || m.Value == ".+":
		return 0 // Prometheus knows these without looking at values.
	case len(m.SetMatches()) > 0:
		return 0 // It looks the values up.
	case m.Prefix() != "" || m.IsRegexOptimized():
		return 1 // It compares strings first, which is all for most values.
	default:
		return regexSize(m.Value)
	}
}
