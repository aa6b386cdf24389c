// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// guarded is a dashboard of which the guard refuses one panel, and warns about the
// other with this policy.
const warning = "limits: {topk: {mode: warn, max: 100}}\n"

//go:embed guarded.json
var guarded []byte

// askGuarded asks what is refused and what is warned about, for a picture of what
// people see then.
func askGuarded(ctx context.Context, s *servers) (page, error) {
	policy := filepath.Join(s.work, "warning.yml")
	if err := os.WriteFile(policy, []byte(warning), 0o644); err != nil {
		return page{}, err
	}
	url, err := s.startGuard(ctx, policy)
	if err != nil {
		return page{}, err
	}
	p, err := ask(ctx, source(url), guarded)
	if err != nil {
		return page{}, err
	}
	p.narrow = 1200
	refused, warned := p.answers[1][0], p.answers[2][0]
	if refused.Code != http.StatusUnprocessableEntity || refused.Error == "" {
		return page{}, fmt.Errorf("not refused, but %d: %s", refused.Code, refused.Expr)
	}
	if warned.Code != http.StatusOK || len(warned.Warnings) != 1 || len(warned.Series) == 0 {
		return page{}, errors.New("no warning: " + warned.Expr + ": " + warned.Error)
	}
	return p, nil
}
