// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"fmt"

	"github.com/prometheus/prometheus/internal/promqltext"
)

// printedMost is how many bytes are copied at most while PromQL is formatted. The
// formatter prints what is in each bracket to see whether it fits on a line, and
// each of those prints copies what is in the brackets within: once for every two
// operators. It cannot be interrupted.
const printedMost = 200_000_000

// checkPrinted is checkText for endpoints that print what they have parsed.
func checkPrinted(texts ...string) error {
	if err := checkText(texts...); err != nil {
		return err
	}
	for _, text := range texts {
		var cost promqltext.Cost
		cost.Add(text)
		if copied := cost.Operators * cost.Operators * cost.Bytes; copied > printedMost {
			return fmt.Errorf("Split the expression, or format its parts: %d bytes with %d operators, calls and brackets take too long to format (--guard.query-text-limits)", cost.Bytes, cost.Operators) //nolint:staticcheck // It is what a client reads.
		}
	}
	return nil
}
