// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// An alert's annotations and labels are templates, which may query when the alert
// is evaluated.

// templateVariables are what Prometheus puts before each template.
const templateVariables = `{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}`

func (r *rules) templates(n *yaml.Node, place string) {
	for _, of := range []string{"annotation", "label"} {
		pairs(n, func(key string, value *yaml.Node) {
			if strings.Contains(value.Value, "query") {
				r.template(value.Value, place+", "+of+" "+key)
			}
		}, of+"s")
	}
}

// template reads the queries of one template. What does not parse would not be
// loaded.
func (r *rules) template(text, place string) {
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck
	tree, err := tree.Parse(templateVariables+text, "", "", map[string]*parse.Tree{})
	if err != nil {
		r.problem(r.file, place, fmt.Errorf("the template does not parse: %w", err))
		return
	}
	eachPipe(tree.Root, func(pipe *parse.PipeNode) {
		for i, cmd := range pipe.Cmds {
			if !calls(cmd, "query") {
				continue
			}
			argument := pipe.Cmds[:i]
			if len(cmd.Args) > 1 {
				argument = []*parse.CommandNode{{Args: cmd.Args[1:2]}}
			}
			query, ok := madeText(argument)
			if !ok {
				r.problem(r.file, place, errors.New("the template puts a query together, which cannot be checked"))
				continue
			}
			r.templateQuery(query, place)
		}
	})
}

// templateQuery adds the query, in which markers stand for values. Where it does not
// parse with names and texts, they are numbers.
func (r *rules) templateQuery(query, place string) {
	expr, err := Parse(query)
	if err != nil && HasMarker(query) {
		expr, err = Parse(markerPattern.ReplaceAllString(query, anyNumber))
	}
	if err != nil {
		r.problem(r.file, place, err)
		return
	}
	r.Expressions = append(r.Expressions, Expression{File: r.file, Place: place, Kind: KindAnnotation, Text: query, Queries: []parser.Expr{expr}})
}

// eachPipe calls yield with every pipeline below the node.
func eachPipe(n parse.Node, yield func(*parse.PipeNode)) {
	branch := func(b *parse.BranchNode) {
		eachPipe(b.Pipe, yield)
		eachPipe(b.List, yield)
		if b.ElseList != nil {
			eachPipe(b.ElseList, yield)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, c := range n.Nodes {
			eachPipe(c, yield)
		}
	case *parse.ActionNode:
		eachPipe(n.Pipe, yield)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			eachPipe(n.Pipe, yield)
		}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.ChainNode:
		eachPipe(n.Node, yield)
	case *parse.PipeNode:
		yield(n)
		for _, cmd := range n.Cmds {
			for _, arg := range cmd.Args {
				eachPipe(arg, yield)
			}
		}
	}
}

// calls reports whether the command calls the function.
func calls(cmd *parse.CommandNode, function string) bool {
	id, ok := cmd.Args[0].(*parse.IdentifierNode)
	return ok && id.Ident == function
}

// madeText returns the text that commands make, with markers for values, or false
// if that cannot be said.
func madeText(cmds []*parse.CommandNode) (string, bool) {
	if len(cmds) != 1 {
		return "", false
	}
	switch first := cmds[0].Args[0].(type) {
	case *parse.StringNode:
		return first.Text, true
	case *parse.PipeNode:
		return madeText(first.Cmds)
	}
	if !calls(cmds[0], "printf") || len(cmds[0].Args) < 2 {
		return "", false
	}
	format, ok := cmds[0].Args[1].(*parse.StringNode)
	if !ok {
		return "", false
	}
	return formatted(format.Text), true
}

// verb is one of those of fmt.
var verb = regexp.MustCompile(`%[-+# 0]*(?:\[\d+\])?[\d.*]*(?:\[\d+\])?[a-zA-Z%]`)

// anyNumber is UnknownNumber as it is written down.
var anyNumber = strconv.FormatFloat(UnknownNumber, 'g', -1, 64)

// formatted returns what printf makes of any values.
func formatted(format string) string {
	var b strings.Builder
	values, end := 0, 0
	for _, at := range verb.FindAllStringIndex(format, -1) {
		b.WriteString(format[end:at[0]])
		end = at[1]
		switch before := b.String(); format[end-1] {
		case '%':
			b.WriteByte('%')
			continue
		case 'd', 'e', 'f', 'g', 'E', 'F', 'G':
			if strings.Count(before, "[") > strings.Count(before, "]") {
				b.WriteByte('5') // Its unit follows.
			} else {
				b.WriteString(anyNumber)
			}
			continue
		case 'q':
			b.WriteString(strconv.Quote(Marker(values)))
		default:
			b.WriteString(Marker(values))
		}
		values++
	}
	return b.String() + format[end:]
}
