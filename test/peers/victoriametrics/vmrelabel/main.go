// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command vmrelabel applies a file of relabel configs as vmagent does: with its own
// packages. It reads series from the standard input, a JSON object of labels a line,
// and writes a line for each: true if it is dropped.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/VictoriaMetrics/VictoriaMetrics/lib/promrelabel"
	"github.com/VictoriaMetrics/VictoriaMetrics/lib/promutil"
)

func main() {
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vmrelabel:", err)
		os.Exit(1)
	}
}

func run(config string, in io.Reader, out io.Writer) error {
	rules, err := promrelabel.LoadRelabelConfigs(config)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	dec := json.NewDecoder(in)
	for {
		var series map[string]string
		switch err := dec.Decode(&series); {
		case errors.Is(err, io.EOF):
			return w.Flush()
		case err != nil:
			return err
		}
		left := rules.Apply(promutil.NewLabelsFromMap(series).GetLabels(), 0)
		fmt.Fprintln(w, len(left) == 0)
	}
}
