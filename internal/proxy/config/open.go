// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/querylimit"
)

// openable are the endpoints that are closed unless they are named.
var openable = []string{querylimit.EndpointFederate, querylimit.EndpointRead}

func decodeOpen(d *decoder, n *yaml.Node) []string {
	var open []string
	d.list(n, "a list of endpoints", func(n *yaml.Node) {
		name := d.text(n)
		if !slices.Contains(openable, name) {
			d.errorf(n, "endpoint %q cannot be opened: use %s", name, strings.Join(openable, ", "))
		}
		open = append(open, name)
	})
	return open
}
