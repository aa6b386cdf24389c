// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	promconfig "github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v3"
)

// decodeTracing reads the block that Prometheus has under the same name.
func decodeTracing(d *decoder, n *yaml.Node, into *promconfig.TracingConfig) {
	before := len(d.errs)
	known := func(names ...string) keys {
		list := keys{}
		for _, name := range names {
			list[name] = func(*yaml.Node) {}
		}
		return list
	}
	// The types of Prometheus know what is allowed, and take keys that they do not
	// know for nothing.
	top := known("client_type", "endpoint", "sampling_fraction", "insecure", "headers", "compression", "timeout")
	top["sampling_fraction"] = func(n *yaml.Node) { d.fraction(n) }
	top["tls_config"] = func(n *yaml.Node) {
		d.keys(n, known("ca", "cert", "key", "ca_file", "cert_file", "key_file", "ca_ref", "cert_ref", "key_ref",
			"server_name", "insecure_skip_verify", "min_version", "max_version"))
	}
	d.keys(n, top)
	if len(d.errs) == before {
		d.check(n, n.Decode(into))
	}
}
