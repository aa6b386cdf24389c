// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteEvidence says on what the suggestion rests.
func (e *Evidence) WriteEvidence(w io.Writer) {
	fmt.Fprintf(w, "%d requests that were answered, from %s to %s, in hours that are %s together\n",
		e.Requests, e.First.UTC().Format(time.DateTime), e.Last.UTC().Format(time.DateTime), durationText(e.period()))
	if rest := e.LeftOut + e.Log.Rules + e.Log.Broken; rest > 0 {
		fmt.Fprintf(w, "left out: %d not answered, malformed, redacted, cut, without a time or of other endpoints, %d evaluations of rules by the server itself, %d lines that are not entries\n",
			e.LeftOut, e.Log.Rules, e.Log.Broken)
	}
	if e.partial {
		fmt.Fprintln(w, "the log leaves out fast requests: limits that refuse requests stay, besides deadlines, and percentiles are those of slow requests. With query_log.slower_than: 0s it holds all")
	}
}

// WriteLines says what is suggested for each limit, and why nothing for others.
func (s *Suggestion) WriteLines(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tLIMIT\tREQUESTS\tP99\tMOST\tNOW\tSUGGESTED")
	for _, l := range s.Lines {
		then := cmp.Or(l.Then, "(stays: "+l.Why+")")
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", cmp.Or(l.Tenant, "(all)"), l.Limit, l.Requests, l.P99, l.Most, l.Now, then)
	}
	_ = t.Flush() // Printing fails in no way that matters.
}
