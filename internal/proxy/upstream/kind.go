// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is what the server behind is.
type Kind string

// The kinds. KindMimir is Cortex, too.
const (
	KindPrometheus      Kind = "prometheus"
	KindThanos          Kind = "thanos"
	KindMimir           Kind = "mimir"
	KindVictoriaMetrics Kind = "victoriametrics"
)

// Kinds returns every kind.
func Kinds() []string {
	return []string{string(KindPrometheus), string(KindThanos), string(KindMimir), string(KindVictoriaMetrics)}
}

// ParseKind returns the kind of that name.
func ParseKind(s string) (Kind, error) {
	if !slices.Contains(Kinds(), s) {
		return "", fmt.Errorf("unknown kind %q: use one of %s", s, strings.Join(Kinds(), ", "))
	}
	return Kind(s), nil
}

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
