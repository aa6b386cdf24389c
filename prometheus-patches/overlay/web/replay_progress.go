// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/prometheus/tsdb"
)

// replayProgress returns what a readiness probe is told in addition while the
// WAL is replayed, or nothing.
func (h *Handler) replayProgress(r *http.Request) string {
	if h.options.LocalStorage == nil || !strings.HasSuffix(r.URL.Path, "/-/ready") {
		return ""
	}
	status, err := h.options.LocalStorage.WALReplayStatus()
	if err != nil {
		return ""
	}
	return replayProgressText(status.Progress)
}

func replayProgressText(p *tsdb.WALReplayProgress) string {
	switch {
	case p == nil:
		return ""
	case p.Rate == 0:
		return ": replaying the WAL, 0.0 % done\n"
	default:
		return fmt.Sprintf(": replaying the WAL, %.1f %% done, %.1f MiB/s, about %s left\n", 100*p.Ratio, p.Rate/(1<<20), p.ETA.Round(time.Second))
	}
}
