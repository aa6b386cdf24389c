// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commandsOfRunbook returns the blocks to paste of an alert that have promguard's
// commands, as they stand in the documentation.
func commandsOfRunbook(t *testing.T, alert string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	_, runbook, found := strings.Cut(string(text), "\n### "+alert+"\n")
	require.True(t, found, alert)
	runbook, _, _ = strings.Cut(runbook, "\n### ")
	for i, part := range strings.Split(runbook, "```") {
		if block, ok := strings.CutPrefix(part, "sh\n"); i%2 == 1 && ok && strings.HasPrefix(block, "promguard ") {
			blocks = append(blocks, strings.TrimSpace(block))
		}
	}
	return blocks
}

// paste runs a block in a shell, with promguard in its path, and returns what it prints.
func paste(t *testing.T, block string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", block)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t, "promguard"))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", block, out)
	return string(out)
}

// openDashboard asks for panels that take long, as Grafana does of somebody who opens a
// dashboard, and returns what comes back of each.
func openDashboard(t *testing.T, target, uid string, end float64) <-chan answer {
	t.Helper()
	const panels = 4
	answers := make(chan answer, panels)
	at := func(before float64) string { return secondsText(time.UnixMilli(int64(1000 * (end - before)))) }
	for panel := range panels {
		form := url.Values{
			"query": {fmt.Sprintf("count(quantile_over_time(0.%d, apiserver_request_sli_duration_seconds_bucket[10m]))", panel+1)},
			"start": {at(600)}, "end": {at(0)}, "step": {"0.4"},
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target+"/api/v1/query_range", strings.NewReader(form.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("X-Dashboard-Uid", uid)
		req.Header.Set("X-Panel-Id", strconv.Itoa(panel+1))
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answers <- answer{body: err.Error()}
				return
			}
			defer resp.Body.Close()
			var text strings.Builder
			_ = resp.Write(&text)
			answers <- answer{code: resp.StatusCode, body: text.String()}
		}()
	}
	return answers
}

// TestFromTheAlertToTheCulpritsEndItTakesTwoCommandsOfTheRunbook pastes what the runbook
// says, letter by letter, while a dashboard takes all that the server has.
func TestFromTheAlertToTheCulpritsEndItTakesTwoCommandsOfTheRunbook(t *testing.T) {
	t.Parallel()
	const uid = "aeq1b2"
	for _, tc := range []struct {
		alert, address string
		start          func(t *testing.T) (server, asked *server, address string)
	}{
		{"PrometheusReadsShed", "localhost:9090", func(t *testing.T) (*server, *server, string) {
			s := prometheus(t, busy.data(t), emptyConfig, "--web.enable-lifecycle", "--query.timeout=10m")
			return s, s, s.url
		}},
		{"PromguardSaturated", "localhost:9092", func(t *testing.T) (*server, *server, string) {
			s := stock(t, busy.data(t))
			g := promguardBefore(t, "identity: {peers: [127.0.0.1]}\n", "--upstream.url="+s.url)
			return s, g.server, g.telemetry
		}},
	} {
		t.Run(tc.alert, func(t *testing.T) {
			blocks := commandsOfRunbook(t, tc.alert)
			require.Len(t, blocks, 2)
			s, asked, address := tc.start(t)
			here := strings.NewReplacer(tc.address, strings.TrimPrefix(address, "http://"))
			answers := openDashboard(t, asked.url, uid, metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil))
			begun := s.cpu(t)
			eventually(t, "the server works on it", func() bool { return s.cpu(t)-begun > time.Second })

			alerted := time.Now()
			table := paste(t, here.Replace(blocks[0]))
			lines := strings.Split(strings.TrimSpace(table), "\n")
			require.Greater(t, len(lines), 1, table)
			culprit := regexp.MustCompile(`dashboard=(\S+) panel=\d`).FindStringSubmatch(lines[1])
			require.NotNil(t, culprit, "the first row names it: %s", table)
			require.Equal(t, uid, culprit[1])
			ended := paste(t, strings.ReplaceAll(here.Replace(blocks[1]), "UID", culprit[1]))
			require.Contains(t, ended, "dashboard="+uid)
			for range cap(answers) {
				a := <-answers
				require.Equal(t, http.StatusServiceUnavailable, a.code, a.body)
				require.Contains(t, a.body, "an operator stopped this")
			}
			t.Logf("named and ended %s after the first command", time.Since(alerted))
		})
	}
}
