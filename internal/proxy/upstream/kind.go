// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

// Kind is what the server behind is.
type Kind string

// The kinds. KindMimir is Cortex, too.
const (
	KindPrometheus      Kind = "prometheus"
	KindThanos          Kind = "thanos"
	KindMimir           Kind = "mimir"
	KindVictoriaMetrics Kind = "victoriametrics"
)

// readyPath is where a server of this kind says that it is ready, below its root;
// "" if that is nowhere below it.
func (k Kind) readyPath() string {
	switch k {
	case KindPrometheus, KindThanos:
		return "/-/ready"
	default:
		return ""
	}
}
