// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command bounds searches the bounds that thinned histograms keep: the fewest with
// which no quantile that a published panel or alert draws moves by more than it may,
// on real scrapes and on any data. It prints what each limit costs.
//
// It knows, in testdata, which quantiles are drawn of which histograms, and the counts
// of the histograms that they are drawn of, in one scrape of every component of two
// clusters. go test -update reads both anew from expositions beside the repository.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	dir := flag.String("facts", "tools/bounds/testdata", "directory of the facts")
	flag.Parse()
	f, err := readFacts(*dir)
	if err == nil {
		err = report(os.Stdout, f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bounds:", err)
		os.Exit(1)
	}
}

// limits are how far a quantile may move on any data, as a factor, from the strictest
// to none.
var limits = []float64{2, 3, 4, 6, none}

// report prints the curve and, for the limit that recommended has, what stays of each
// histogram.
func report(w io.Writer, f *facts) error {
	hs, err := f.histograms()
	if err != nil {
		return err
	}
	table, err := curve(f, hs)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, table)
	if table, err = shares(f); err != nil {
		return err
	}
	fmt.Fprintln(w, table)
	fmt.Fprintf(w, "What stays within %s:\n\n", factorText(recommendedLimit))
	for _, h := range hs {
		fmt.Fprintf(w, "%s: %s\n", h.rule.ID, boundsText(h.search(measuredLimit, recommendedLimit)))
	}
	return nil
}
