// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// Check looks at one selector. Prometheus answers a selector without a metric
// name and without an equality matcher, such as {le!=""}, by intersecting
// postings of nearly every series of the head and of every block.
func (p *Policy) Check(ms []*labels.Matcher) Refusals {
	if p.opts.Selectivity == ModeOff || p.selective(ms) || p.lists(ms) {
		return nil
	}
	return Refusals{p.refuseSelector(ms)}
}

// selectivity is the limit of that name.
type selectivity struct{}

func (selectivity) name() string { return LimitSelectivity }

// One refusal is enough.
func (selectivity) check(p *Policy, a *asked) *Refusal {
	p = p.forRequest(a)
	for _, q := range a.queries {
		if rs := p.checkSelectivity(q); rs != nil {
			return rs[0]
		}
	}
	return nil
}

func (l selectivity) explain(p *Policy, a *asked) (Finding, bool) {
	strict, seen := *p, 0
	strict.opts.Selectivity = ModeEnforce // In mode off it would not look.
	for _, q := range a.queries {
		seen += len(q.selectors)
	}
	allowed := "a metric or an equality in each"
	if len(p.opts.EqualityLabels) > 0 {
		allowed = "a metric or an equality on one of the labels in each"
	}
	return Finding{LimitSelectivity, p.opts.Selectivity, strconv.Itoa(seen) + " selectors", allowed, l.check(&strict, a) != nil}, true
}

// measure has no number: a selector is selective or is not.
func (selectivity) measure(*asked) (float64, bool) { return 0, false }

// forRequest returns the policy under which the selectors of a request are judged. On
// remote read, Prometheus turns an equality with one of its external labels into one
// with the empty value, which nearly every series has; only the metric name, or labels
// that the operator vouches for, make a selector selective.
func (p *Policy) forRequest(a *asked) *Policy {
	external := a.Endpoint.Name == EndpointRead && len(p.opts.EqualityLabels) == 0
	if !external && a.Label == "" {
		return p
	}
	own := *p
	own.listed = a.Label
	if external {
		own.opts.EqualityLabels = []string{labels.MetricName}
	}
	return &own
}

// lists reports whether the selector only says which values of the label that is
// listed are wanted. The server goes through these, and through no series.
func (p *Policy) lists(ms []*labels.Matcher) bool {
	return p.listed != "" && !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name != p.listed })
}

// checkSelectivity looks at every selector of a query, wherever it stands: in
// subqueries, on both sides of operators, in parameters of aggregations and as the
// second argument of info(), which Prometheus selects as it stands before it thinks of
// target_info. A query with a node that this version of the parser does not know is
// refused, whatever the mode.
func (p *Policy) checkSelectivity(q *Query) Refusals {
	if q.unknown != nil {
		return Refusals{p.refuse(LimitSelectivity, ModeEnforce, "Rewrite the query without its newest construct, or run a version that knows it.",
			"an expression", "cannot be checked: "+q.unknown.Error(), "")}
	}
	for i := range q.selectors {
		if rs := p.Check(q.selectors[i]); rs != nil {
			return rs // One refusal for each limit is enough.
		}
	}
	return nil
}

// selective reports whether at least one matcher narrows the selector down to
// postings that can be looked up by value. Equality is looked for first: it is
// what nearly every selector has, and regular expressions cost more to judge.
func (p *Policy) selective(ms []*labels.Matcher) bool {
	for _, m := range ms {
		if m.Type == labels.MatchEqual && m.Value != "" && p.counts(m.Name) {
			return true
		}
	}
	return slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Type == labels.MatchRegexp && p.counts(m.Name) && narrows(m) })
}

// counts reports whether an equality on the label makes a selector selective.
func (p *Policy) counts(label string) bool {
	return len(p.opts.EqualityLabels) == 0 || label == labels.MetricName || slices.Contains(p.opts.EqualityLabels, label)
}

func narrows(m *labels.Matcher) bool {
	if m.Matches("") {
		return false
	}
	return listed(m) != nil || m.Name == labels.MetricName && isPrefixed(m)
}

// listed returns the values of a regular expression that matches a finite list, as
// job=~"api|web" does, which Prometheus looks up one by one; or nothing. Prometheus gives up at 256 values, and the list behind a Grafana variable can
// have more: each of its branches is text.
func listed(m *labels.Matcher) []string {
	if set := m.SetMatches(); len(set) > 0 {
		return set
	}
	text := m.Value
	if inner, ok := strings.CutPrefix(text, "("); ok && strings.HasSuffix(inner, ")") {
		text = inner[:len(inner)-1]
	}
	var list []string
	for branch := range strings.SplitSeq(text, "|") {
		re, err := syntax.Parse(branch, syntax.Perl)
		if err != nil || re.Op != syntax.OpLiteral || strings.Contains(branch, "(?") { // Flags hold in the branches behind, too.
			return nil
		}
		list = append(list, string(re.Rune))
	}
	return list
}

// isPrefixed reports whether the regular expression asks for values that begin with
// given text, in every branch, as "node_.+|kube_.+" does. Such a regular expression on
// the metric name names a family of metrics. A letter is enough, but not a letter in
// each of many branches: all of the alphabet would be all metrics.
func isPrefixed(m *labels.Matcher) bool {
	re, err := syntax.Parse(m.Value, syntax.Perl|syntax.DotNL)
	return err == nil && beginnings(re) <= 1.0/letters
}

// letters is how many a name can begin with, roughly.
const letters = 26

// beginnings returns which share of all texts begin as the regular expression asks for,
// if all letters were as frequent.
func beginnings(re *syntax.Regexp) float64 {
	share, _ := beginningsOf(re)
	return share
}

// beginningsOf is beginnings that also says whether what follows re stands at a known
// place, so that it counts, too.
func beginningsOf(re *syntax.Regexp) (share float64, closed bool) {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpBeginLine, syntax.OpEmptyMatch:
		return 1, true
	case syntax.OpLiteral:
		return math.Pow(letters, -float64(len(re.Rune))), true
	case syntax.OpCharClass:
		n := 0
		for i := 0; i+1 < len(re.Rune) && n < letters; i += 2 {
			n += int(re.Rune[i+1]-re.Rune[i]) + 1
		}
		return min(1, float64(n)/letters), true
	case syntax.OpCapture:
		return beginningsOf(re.Sub[0])
	case syntax.OpPlus:
		share, _ = beginningsOf(re.Sub[0])
		return share, false
	case syntax.OpRepeat:
		if re.Min == 0 {
			return 1, false
		}
		share, _ = beginningsOf(re.Sub[0])
		return share, false
	case syntax.OpAlternate:
		closed = true
		for _, sub := range re.Sub {
			s, c := beginningsOf(sub)
			share, closed = min(1, share+s), closed && c
		}
		return share, closed
	case syntax.OpConcat:
		share = 1
		for _, sub := range re.Sub {
			s, c := beginningsOf(sub)
			if share *= s; !c {
				return share, false
			}
		}
		return share, true
	default:
		return 1, false
	}
}

func (p *Policy) refuseSelector(ms []*labels.Matcher) *Refusal {
	cause := "names no metric and has no equality matcher, so the server would go through nearly every series it holds"
	label := "job"
	if len(p.opts.EqualityLabels) > 0 {
		label = p.opts.EqualityLabels[0]
		cause = "names no metric and has no equality matcher on " + strings.Join(p.opts.EqualityLabels, ", ") +
			", so the server would go through far too many series"
	}
	return p.refuse(LimitSelectivity, p.opts.Selectivity, remedyFor(ms, label), "the selector "+formatSelector(ms), cause, "")
}

// The selectors that refusals give as examples: by a metric name, by the beginning of
// one, and by the value of a label.
var (
	byName   = &labels.Matcher{Type: labels.MatchEqual, Name: labels.MetricName, Value: "http_requests_total"}
	byPrefix = &labels.Matcher{Type: labels.MatchRegexp, Name: labels.MetricName, Value: "http_.+"}
	byValue  = labels.Matcher{Type: labels.MatchEqual, Value: "api"}
)

// remedyFor gives selectors that pass as examples: the client's own, with one matcher
// put in the place of those on the same label. A selector that is too long to be
// repeated is left out of them.
func remedyFor(ms []*labels.Matcher, label string) string {
	remedy := remedyWith(ms, label)
	if len(remedy) > maxRemedy {
		remedy = remedyWith(nil, label)
	}
	return remedy
}

func remedyWith(ms []*labels.Matcher, label string) string {
	name := "Name a metric, as in "
	if hasName := func(m *labels.Matcher) bool { return m.Name == labels.MetricName }; slices.ContainsFunc(ms, hasName) || label == labels.MetricName {
		name += formatSelector(with(byPrefix, ms))
	} else {
		name += byName.Value + formatSelector(ms)
	}
	if label == labels.MetricName {
		return strings.TrimSuffix(name, "{}") + "."
	}
	equality := byValue
	equality.Name = label
	return strings.TrimSuffix(name, "{}") + ", or use an equality matcher, as in " + formatSelector(with(&equality, ms)) + "."
}

// with returns the matchers of ms with m in the place of those on its label, or in
// front.
func with(m *labels.Matcher, ms []*labels.Matcher) []*labels.Matcher {
	all := []*labels.Matcher{m}
	for _, other := range ms {
		if other.Name != m.Name {
			all = append(all, other)
		}
	}
	return all
}

// formatSelector writes matchers as a selector. The result is shortened, so it
// is for people, not for a parser.
func formatSelector(ms []*labels.Matcher) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range ms {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.String())
		if b.Len() > maxQuoted {
			break
		}
	}
	s := b.String()
	if len(s) > maxQuoted {
		return shorten(s) + "}"
	}
	return s + "}"
}
