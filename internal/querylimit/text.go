// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "github.com/promguard/promguard/internal/promqltext"

// CheckText looks at the PromQL expressions or selectors of one request before
// they are parsed. Bytes are counted for each text, operators and the size of
// regular expressions over all of them.
func (p *Policy) CheckText(texts ...string) Refusals {
	_, rs := p.measureText(texts...)
	return rs
}

// measureText measures texts unless one of them is too long for that.
func (p *Policy) measureText(texts ...string) (promqltext.Cost, Refusals) {
	var c promqltext.Cost
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(t))
	}
	if rs := p.checkCount(nil, &counts[countQueryBytes], longest); rs.Err() != nil {
		return c, rs // Measuring would cost what the limit is there to save.
	}
	for _, t := range texts {
		c.Add(t)
	}
	return c, p.checkCost(c)
}

func (p *Policy) checkCost(c promqltext.Cost) Refusals {
	rs := p.checkCount(nil, &counts[countQueryBytes], c.Bytes)
	rs = p.checkCount(rs, &counts[countQueryOperators], c.Operators)
	return p.checkCount(rs, &counts[countRegexSize], c.RegexSize)
}
