// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// grafanaRow is a request in docs/grafana.md, and the limit that refuses it, if one
// does.
var grafanaRow = regexp.MustCompile("(?m)^\\|[^`\n]*(?:`[a-z_]+\\([^`]*\\)`[^`\n]*)?\\| `([^`]+)` \\|(?: `([a-z_]+)` \\|.*)?$")

func TestWhatGrafanaAsksIsRefusedOnlyIfItIsListedWithItsCost(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## What Grafana asks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	g := newProxy(t, upstream.URL, nil)
	rows := grafanaRow.FindAllStringSubmatch(section, -1)
	require.Len(t, rows, strings.Count(section, "\n| ")-2, "every row but the heads of both tables")
	for _, row := range rows {
		path, query, _ := strings.Cut(strings.ReplaceAll(row[1], `\|`, "|"), "?")
		params := url.Values{}
		for pair := range strings.SplitSeq(query, "&") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				params.Add(name, value)
			}
		}
		a := do(t, g.Client(), newRequest(t, http.MethodGet, g.URL, path, params.Encode()))
		if row[2] == "" {
			require.Equal(t, http.StatusOK, a.code, "%s: %s", row[1], a.body)
			continue
		}
		require.Equal(t, http.StatusUnprocessableEntity, a.code, row[1])
		requireEnvelope(t, a, typeExecution, "Limit "+row[2]+":")
	}
}
