// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/querylimit"
)

// rewrite returns the policy of a file with what the lines suggest, and each limit
// that they change as a whole, in YAML: what the lines are silent of stays in it, and
// its comments.
func rewrite(text []byte, lines []Line) (rules *querylimit.Ruleset, fragment []byte, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, nil, err
	}
	var whole, part yaml.Node
	if len(doc.Content) > 0 {
		whole = *expand(doc.Content[0])
	}
	for _, l := range lines {
		if l.Then == "" {
			continue
		}
		path := []string{"limits", l.target.path[0]}
		if l.Tenant != "" {
			path = append([]string{"tenants", l.Tenant}, path...)
		}
		limit := at(&whole, path...)
		if limit.Kind != yaml.MappingNode {
			*limit = yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		}
		if l.target.hasMode() {
			set(at(limit, "mode"), l.mode.String())
		}
		set(at(limit, l.target.path[1:]...), l.target.text(l.amount))
		*at(&part, path...) = *limit
	}
	policy, err := marshal(&whole)
	if err != nil {
		return nil, nil, err
	}
	c, err := config.Parse(policy)
	if err != nil {
		return nil, nil, fmt.Errorf("the suggestion is not a policy: %w", err)
	}
	fragment, err = marshal(&part)
	return c.Rules, fragment, err
}

// expand returns a copy without anchors, so that what is changed below one is not
// changed below others.
func expand(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	out := *n
	out.Anchor, out.Content = "", nil
	for _, c := range n.Content {
		out.Content = append(out.Content, expand(c))
	}
	return &out
}

// at returns the value below keys, which are added where they are missing.
func at(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n.Kind != yaml.MappingNode { // It is null, or was not there.
			*n = yaml.Node{Kind: yaml.MappingNode}
		}
		i := 0
		for i < len(n.Content) && n.Content[i].Value != key {
			i += 2
		}
		if i == len(n.Content) {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, &yaml.Node{})
		}
		n = n.Content[i+1]
	}
	return n
}

func set(n *yaml.Node, value string) {
	n.Kind, n.Tag, n.Style, n.Value = yaml.ScalarNode, "", 0, value
}

func marshal(n *yaml.Node) ([]byte, error) {
	if n.Kind == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := enc.Encode(n)
	return b.Bytes(), err
}
