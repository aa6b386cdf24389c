// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
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

// grafanaRow is a request in docs/grafana.md, and the limit that refuses it.
var grafanaRow = regexp.MustCompile("(?m)^\\|[^`\n]*(?:`[a-z_]+\\([^`]*\\)`[^`\n]*)?\\| `([^`]+)` \\| `([a-z_]+)` \\|.*$")

func TestWhatGrafanaAsksIsRefusedOnlyIfItIsListedWithItsCost(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## What Grafana asks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	refused := grafanaRow.FindAllStringSubmatch(section, -1)
	require.Len(t, refused, strings.Count(section, "\n| ")-1, "every row but the head")
	list, err := os.ReadFile(filepath.Join("testdata", "grafana.tsv"))
	require.NoError(t, err)
	_, passed, _ := strings.Cut(strings.TrimSpace(string(list)), "\n")
	require.Contains(t, section, fmt.Sprintf("[%d kinds of requests]", strings.Count(passed, "\n")+1))

	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	g := newProxy(t, upstream.URL, nil)
	ask := func(request string) answer {
		path, query, _ := strings.Cut(request, "?")
		params := url.Values{}
		for pair := range strings.SplitSeq(query, "&") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				params.Add(name, value)
			}
		}
		return do(t, g.Client(), newRequest(t, http.MethodGet, g.URL, path, params.Encode()))
	}
	for line := range strings.SplitSeq(passed, "\n") {
		_, request, _ := strings.Cut(line, "\t")
		a := ask(request)
		require.Equal(t, http.StatusOK, a.code, "%s: %s", line, a.body)
	}
	for _, row := range refused {
		a := ask(strings.ReplaceAll(row[1], `\|`, "|"))
		require.Equal(t, http.StatusUnprocessableEntity, a.code, row[1])
		requireEnvelope(t, a, typeExecution, "Limit "+row[2]+":")
	}
}
