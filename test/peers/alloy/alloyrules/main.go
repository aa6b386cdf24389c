// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command alloyrules reads a prometheus.relabel component with Grafana Alloy's own
// parser and evaluator, and writes its rules as JSON. Alloy's component itself cannot
// be imported; it hands the rules to Prometheus's relabelling.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/grafana/alloy/syntax/ast"
	"github.com/grafana/alloy/syntax/parser"
	"github.com/grafana/alloy/syntax/vm"
)

// rule has the attributes of Alloy's relabelling rules that a drop rule may have.
type rule struct {
	SourceLabels []string `alloy:"source_labels,attr" json:"source_labels"`
	Regex        string   `alloy:"regex,attr" json:"regex"`
	Action       string   `alloy:"action,attr" json:"action"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "alloyrules:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile("rules.alloy", text)
	if err != nil {
		return err
	}
	rules := []rule{}
	for _, component := range file.Body {
		block, ok := component.(*ast.BlockStmt)
		if !ok || block.GetBlockName() != "prometheus.relabel" {
			return fmt.Errorf("%T is no prometheus.relabel", component)
		}
		for _, stmt := range block.Body {
			b, ok := stmt.(*ast.BlockStmt)
			if !ok {
				continue // forward_to
			}
			var r rule
			if err := vm.New(b).Evaluate(nil, &r); err != nil {
				return err
			}
			rules = append(rules, r)
		}
	}
	return json.NewEncoder(out).Encode(rules)
}
