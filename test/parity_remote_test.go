// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// remoteMode is a server of which a part of the data is remote. Without the
// experimental functions: upstream's info() selects while it evaluates, which ends
// the process where there are several remote servers.
var remoteMode = mode{name: "with remote storage", every: 8, flags: []string{"--enable-feature=exemplar-storage"}}

// TestTheBuildReadsRemoteStorageAsUpstreamDoes puts what reads to servers that
// have the blocks of the data themselves and read the rest from one remote server.
// A second, which is down, is asked by some selectors only: so of two selections in
// one request one may fail, and give a warning in place of its series. All have
// external labels, which upstream takes off unless the selector names them.
func TestTheBuildReadsRemoteStorageAsUpstreamDoes(t *testing.T) {
	t.Parallel()
	requirePairs(t)
	d := makeDataset(t)
	remoteDir := t.TempDir()
	d.copyTo(t, filepath.Join(remoteDir, "data"))
	remote := startParity(t, stockBuild(), remoteMode, remoteSetup(t, ""), remoteDir)

	setup := remoteSetup(t, fmt.Sprintf(`remote_read:
- {name: up, url: "http://%s/api/v1/read", read_recent: true}
- {name: down, url: "http://127.0.0.1:1/api/v1/read", read_recent: true, required_matchers: {job: app}}
`, remote.address))
	c := newComparison()
	on := onBuild()
	on.exceptions = append(slices.Clone(on.exceptions), remoteFailures)
	for _, b := range []build{stockBuild(), stockBuild(), offBuild(), on} {
		dir := t.TempDir()
		d.copyTo(t, filepath.Join(dir, "data"))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "data", "wal")))
		c.group = append(c.group, startParity(t, b, remoteMode, setup, dir))
	}
	own := remoteSelections(d)
	c.requireRemote(t, own)
	c.compareAll(t, own)
	c.compareAll(t, thinReads(remoteMode, corpus(t, d)))
	c.stopAll(t)
}

// remoteFailures are told with series, too.
var remoteFailures = exception{
	why: "stock lists series without a word of the remote server that failed: it asks for the warnings before it reads the first series",
	of:  path(api + "/series"),
	hide: func(body string) string {
		body = remoteWarning.ReplaceAllString(body, "")
		return strings.NewReplacer(`,"warnings":[]`, "", `"warnings":[,`, `"warnings":[`).Replace(body)
	},
}

var remoteWarning = regexp.MustCompile(`,?"remote_read: (?:[^"\\]|\\.)*"`)

// remoteSetup is a configuration that scrapes nothing, so that no answer depends
// on the moment.
func remoteSetup(t *testing.T, more string) paritySetup {
	t.Helper()
	p := paritySetup{config: filepath.Join(t.TempDir(), "prometheus.yml")}
	require.NoError(t, os.WriteFile(p.config, []byte("global: {external_labels: {cluster: parity, replica: a}}\n"+more), 0o644))
	return p
}

// remoteSelections are requests whose selectors go to different remote servers, or
// get different labels from the same.
func remoteSelections(d dataset) []request {
	const (
		local    = `app_text`
		asksDown = `app_text{job="app"}`
		external = `app_text{replica="a"}`
		both     = `{__name__=~"app_(text|value)",job="app",replica="a"}`
	)
	var out []request
	for _, selectors := range [][]string{
		{local},
		{asksDown},
		{external},
		{both},
		{`{replica=""}`, external},
		{local, external},
		{external, local},
		{asksDown, local},
		{local, asksDown},
		{asksDown, external},
		{external, asksDown},
		{local, `app_value`},
		{asksDown, `app_value{job="app"}`, external, both},
		{`app_none`, external},
		{local, local},
	} {
		var pairs []string
		for _, s := range selectors {
			pairs = append(pairs, "match[]", s)
		}
		for _, from := range []string{unix(d.start), unix(d.edge)} {
			query := form(append(pairs, "start", from, "end", unix(d.end))...)
			for _, path := range []string{"/series", "/labels", "/label/text/values", "/label/replica/values"} {
				out = append(out, request{method: http.MethodGet, target: api + path + "?" + query})
			}
			out = append(out, request{method: http.MethodPost, target: api + "/series", headers: []string{formType}, body: query})
		}
		out = append(out, request{method: http.MethodGet, target: "/federate?" + form(pairs...)},
			request{method: http.MethodGet, target: api + "/query_range?" + form("query", strings.Join(selectors, " or "), "start", unix(d.edge.Add(-5*time.Minute)), "end", unix(d.edge.Add(5*time.Minute)), "step", "60")},
			request{method: http.MethodGet, target: api + "/query?" + form("query", "count by (replica) ("+strings.Join(selectors, " or ")+")", "time", unix(d.end))})
	}
	return out
}

// requireRemote fails unless stock's answers show that both remote servers are
// asked: by a label that only they give, and by a warning.
func (c *comparison) requireRemote(t *testing.T, requests []request) {
	t.Helper()
	var labels, warnings int
	for _, r := range requests {
		body := c.group[0].send(t, r).body
		if strings.Contains(body, `"replica":"a"`) {
			labels++
		}
		if strings.Contains(body, `"warnings"`) {
			warnings++
		}
	}
	require.Positive(t, labels)
	require.Positive(t, warnings)
}

// thinReads leaves of the mode's part of the corpus what reads the storage.
func thinReads(m mode, all []request) []request {
	var out []request
	for _, r := range all {
		for _, prefix := range []string{"/query", "/series", "/label", "/read"} {
			if strings.HasPrefix(r.path(), api+prefix) {
				out = append(out, r)
				break
			}
		}
	}
	return thin(m, out)
}
