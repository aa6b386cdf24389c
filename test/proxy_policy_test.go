// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// promguardWith starts promguard with a policy, and returns the path of the file.
func promguardWith(t *testing.T, upstream *server, policy string) (promguardServer, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "promguard.yml")
	require.NoError(t, os.WriteFile(file, []byte(policy), 0o644))
	address, telemetry := freeAddress(t), freeAddress(t)
	s := start(t, address, "promguard", "serve", "--upstream.url="+upstream.url, "--config.file="+file,
		"--web.listen-address="+address, "--web.telemetry-address="+telemetry)
	return promguardServer{s, "http://" + telemetry}, file
}

func errorOf(t *testing.T, a answer) string {
	t.Helper()
	var e struct{ Error string }
	require.NoError(t, json.Unmarshal([]byte(a.body), &e), a.body)
	return e.Error
}

func TestPolicyIsInForceInFrontOfARealServer(t *testing.T) {
	t.Parallel()
	p := prometheus(t, cluster.data(t), emptyConfig)
	g, file := promguardWith(t, p, `
identity: {peers: [127.0.0.1]}
limits:
  range: {mode: enforce, max: 1d}
rules:
  - name: no-pods
    match: {query: kube_pod_info, alert: false}
    deny: {reason: use namespace:pods:count}
tenants:
  strict:
    limits: {query_operators: {max: 1}}
`)
	at := func(path string, header ...string) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/api/v1/"+path, http.NoBody)
		require.NoError(t, err)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		return do(t, req)
	}
	require.Contains(t, errorOf(t, at("query?query="+url.QueryEscape("rate(up[2d])"))), "Limit range: a query that reads 2d of samples")
	require.Contains(t, errorOf(t, at("query?query=kube_pod_info")), "use namespace:pods:count. Limit deny: this request is denied by the rule no-pods")
	require.Equal(t, http.StatusOK, at("query?query=count(kube_pod_info)", "FromAlert", "true").code)
	require.Contains(t, errorOf(t, at("query?query=up%2Bup%2Bup", "X-Scope-OrgID", "strict")), "Limit query_operators of tenant strict")

	// A mistake keeps the policy as it is, and is told with its line.
	require.NoError(t, os.WriteFile(file, []byte("limits:\n  rnage: {max: 1d}\n"), 0o644))
	a := post(t, g.telemetry+"/-/reload", "")
	require.Equal(t, http.StatusInternalServerError, a.code)
	require.Contains(t, a.body, file+`: line 2: unknown key "rnage"`)
	require.Contains(t, errorOf(t, at("query?query=kube_pod_info")), "rule no-pods")
	require.Zero(t, metric(t, g.telemetry, "promguard_config_last_reload_successful", nil))
}

func TestPolicyIsTriedOnTheQueryLogOfPrometheus(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "query.log")
	p := prometheus(t, t.TempDir(), "global: {query_log_file: "+log+"}\n")
	for _, query := range []string{"up", "rate(up[2d])", `count({job!=""})`} {
		require.Equal(t, http.StatusOK, get(t, p.url+"/api/v1/query?query="+url.QueryEscape(query)).code)
	}
	require.Equal(t, http.StatusOK, post(t, p.url+"/api/v1/query_range", "query=up&start=0&end=200000&step=60").code)
	p.stop(t)
	policy := filepath.Join(t.TempDir(), "new.yml")
	require.NoError(t, os.WriteFile(policy, []byte("limits: {range: {mode: enforce, max: 1d}}\n"), 0o644))
	out, err := exec.Command(binary(t, "promguard"), "policy", "test", "--config.file", policy, "--query-log", log).CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.HasPrefix(string(out), "4 requests: would refuse 3 (75 %), of which 0 were refused before; would warn 0 (0 %)\n"), string(out))
	require.Regexp(t, `(?m)^range +2 +0 +0 `, string(out))
	require.Regexp(t, `(?m)^selectivity +1 +0 +0 `, string(out))
}
