// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "github.com/promguard/promguard/internal/promqltext"

// measureText measures the text of an expression or selector before it is parsed.
func (p *Policy) measureText(text string) (c promqltext.Cost, rs Refusals) {
	if rs = p.checkCount(nil, &counts[countQueryBytes], len(text)); rs.Err() != nil {
		return c, rs // Measuring would cost what the limit is there to save.
	}
	c.Add(text)
	return c, p.checkCost(c)
}

// checkCost looks at the texts of one request: bytes are those of the longest, operators
// and the size of regular expressions add up.
func (p *Policy) checkCost(c promqltext.Cost) Refusals {
	rs := p.checkCount(nil, &counts[countQueryBytes], c.Bytes)
	rs = p.checkCount(rs, &counts[countQueryOperators], c.Operators)
	return p.checkCount(rs, &counts[countRegexSize], c.RegexSize)
}
