// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rehearsal runs promguard rehearse on one small recording again and again, with the
// steps that are done kept in one directory.
type rehearsal struct {
	t    *testing.T
	dir  string
	args []string
}

// recordedEnd is the time of the last scrape of a recording.
const recordedEnd = "2026-01-01T00:14:45.000Z"

func newRehearsal(t *testing.T) *rehearsal {
	t.Helper()
	r := &rehearsal{t: t, dir: t.TempDir()}
	out, err := exec.Command(binary(t, "walreplay"), "generate", "--series=5000", "--scrapes=60", "--out="+r.path("crashed")).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(binary(t, "walreplay"), "record", "--wal="+r.path("crashed"), "--out="+r.path("recording")).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.Mkdir(r.path("tmp"), 0o777))
	r.write("rules.yml", `{groups: [{name: g, rules: [{record: "job:memory:sum", expr: "sum by (job) (node_memory_MemTotal_bytes)"}, {alert: Full, expr: "node_memory_MemFree_bytes < 1"}]}]}`)
	r.write("api.json", dashboard("apiserver_requests", `sum by (verb) (rate(apiserver_request_total{job=~"$job"}[5m]))`))
	r.write("cpu.json", dashboard("cpu", "sum(rate(container_cpu_usage_seconds_total[5m]))"))
	r.write("query.log", strings.Repeat(askedLine("node_memory_MemTotal_bytes", "query_range", 15), 3)+askedLine("count(kube_pod_info)", "query", 0))
	r.args = []string{
		"--recording=" + r.path("recording"), "--stock=" + binary(t, "stock/prometheus"), "--patched=" + binary(t, "prometheus"),
		"--memory-limit=250MiB", "--storm=2s", "--out=" + r.path("steps"), "--tmp-dir=" + r.path("tmp"),
	}
	return r
}

func (r *rehearsal) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rehearsal) write(name, text string) string {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(r.path(name), []byte(text), 0o777)) //nolint:gosec // One is a program.
	return r.path(name)
}

// sources are the flags of files that ask something, without anything planted.
func (r *rehearsal) sources() []string {
	return []string{"--rule-files=" + r.path("rules.yml"), "--dashboards=" + r.path("api.json"), "--dashboards=" + r.path("cpu.json"), "--query-log=" + r.path("query.log")}
}

// dashboard has one panel.
func dashboard(uid, expr string) string {
	quoted, _ := json.Marshal(expr)
	return `{"uid": "` + uid + `", "title": "API", "templating": {"list": [{"name": "job", "type": "query", "query": "label_values(up, job)"}]},
		"panels": [{"id": 1, "title": "one", "targets": [{"refId": "A", "expr": ` + string(quoted) + `}]}]}`
}

// askedLine is a line of Prometheus's query log, of a quarter of an hour.
func askedLine(query, endpoint string, step int) string {
	start := "2026-01-01T00:00:00.000Z"
	if step == 0 {
		start = recordedEnd
	}
	line, _ := json.Marshal(map[string]any{
		"params": map[string]any{"query": query, "start": start, "end": recordedEnd, "step": step}, "time": recordedEnd,
		"stats":       map[string]any{"timings": map[string]any{"execTotalTime": 0.01}},
		"httpRequest": map[string]any{"clientIP": "10.0.0.1", "method": "GET", "path": "/api/v1/" + endpoint},
	})
	return string(line) + "\n"
}

// run runs a rehearsal. A machine that others keep busy may have no time for the clients
// of a storm, which is said; then it goes on.
func (r *rehearsal) run(args ...string) (code int, page, log string) {
	r.t.Helper()
	rest := slices.DeleteFunc(slices.Clone(r.args), func(flag string) bool { // Given here, it is not given again.
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, name+"=") })
	})
	for deadline := time.Now().Add(patience); ; {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(binary(r.t, "promguard"), slices.Concat([]string{"rehearse"}, rest, args)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			require.NoError(r.t, err)
		}
		if !strings.Contains(stderr.String(), "nobody was answered") || time.Now().After(deadline) {
			left, err := os.ReadDir(r.path("tmp"))
			require.NoError(r.t, err)
			require.Empty(r.t, left)
			return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
		}
	}
}

// heavyQuery is PromQL that holds some 100 MB of samples, and has a short answer.
const heavyQuery = `sum(last_over_time({job!=""}[10m:500ms]))`

func TestRehearsalSaysGoAndFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	r := newRehearsal(t)

	code, page, log := r.run(r.sources()...)
	require.Zero(t, code, page+log)
	require.True(t, strings.HasPrefix(page, "GO\n"), page)
	for _, want := range []string{
		`(?m)^time +\S+ +\S+$`, `(?m)^peak memory +\d+ MiB +\d+ MiB$`, `The heads are the same, in each of \d{6} samples\.`,
		`(?m)^ANSWERS  6 of 6 different questions compared \(4 requests of query logs\): 0 differ$`, `(?m)^REFUSED  0 of`,
		`(?m)^  drop \d+ series`, `(?m)^  save \d+ % of the processor time of scrapes: \d+ ms for each scrape of \d{4} series without them, \d+ ms with them, \d+ ms by stock$`, `(?m)^  touch 0 of \d expressions`, `(?m)^  patched +lives +\d+ MiB +\d+ +0 +0 +\d+$`,
	} {
		require.Regexp(t, want, page)
	}

	code, again, log := r.run(r.sources()...)
	require.Zero(t, code)
	require.Equal(t, page, again, "what was done is not done again")
	require.NotContains(t, log, "starting")

	code, text, _ := r.run(append(r.sources(), "-o", "json")...)
	require.Zero(t, code)
	var report struct{ Verdict string }
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Equal(t, "go", report.Verdict)

	t.Run("a dashboard that loses data under aggressive", func(t *testing.T) {
		code, page, log := r.run(append(r.sources(), "--profile=aggressive")...)
		require.Equal(t, 1, code, page+log)
		require.Regexp(t, `^NO-GO\n  - drop rules break 1 expression, as .*cpu\.json: dashboard "API", panel "one" \(id 1\), query A\n\n`, page)
		require.Contains(t, page, "cadvisor-cgroups-above-containers")
		require.Contains(t, log, "answers: kept")
	})

	rules := r.write("heavy.yml", `{groups: [{name: g, rules: [{record: heavy, expr: '`+heavyQuery+`'}]}]}`)
	log = r.write("heavy.log", askedLine(heavyQuery, "query", 0))
	ofRule := []string{"--rule-files=" + rules, "--query-log=" + r.path("query.log"), "--profile=off"}
	ofPerson := slices.Concat(ofRule, []string{"--query-log=" + log, "--memory-limit=130MiB", "--storm=20s"}) // Not enough for one of them.
	t.Run("a query that is refused, which is none while a rule asks it", func(t *testing.T) {
		code, page, log := r.run(ofRule...)
		require.Zero(t, code, page+log)
		code, page, log = r.run(ofPerson...)
		require.Equal(t, 1, code, page+log)
		require.Contains(t, log, "refused: done", "it is asked by somebody now")
		require.Regexp(t, `(?m)^  - .* answered today would be refused`, page)
		require.Regexp(t, `(?m)^    asked 1 times by client 10\.0\.0\.1; .*heavy\.yml: group "g", record.*$`, page)
		require.Regexp(t, `(?m)^    the patched server: 4\d\d .*memory`, page)
		require.Regexp(t, `(?m)^  stock +.* in the storm, after`, page, "the storm of it kills stock")
		require.Regexp(t, `(?m)^  patched +lives `, page)
	})

	t.Run("the end at the memory limit", func(t *testing.T) {
		code, page, log := r.run(append(ofPerson, "--patched="+binary(t, "stock/prometheus"))...)
		require.Equal(t, 1, code, page+log)
		require.Regexp(t, `(?m)^  - the patched server does not live in a storm under 130 MiB, nor does stock: .*in the storm$`, page)
	})

	t.Run("an answer that differs", func(t *testing.T) {
		mutant := r.write("mutant", "#!/bin/sh\nexec "+binary(t, "prometheus")+" \"$@\" --query.lookback-delta=1ms\n")
		code, page, log := r.run(append(r.sources(), "--patched="+mutant)...)
		require.Equal(t, 1, code, page+log)
		require.Contains(t, page, "The heads are the same")
		require.Regexp(t, `(?m)^  - \d answers? of 6 differs?, as of .*: stock has \d+ values, patched`, page)
		require.Regexp(t, `(?m)^    asked by client 10\.0\.0\.1$`, page)
	})

	t.Run("another head", func(t *testing.T) {
		mutant := r.write("mutant", fmt.Sprintf("#!/bin/sh\nfor a in \"$@\"; do case $a in --storage.tsdb.path=*) truncate -s -50000 \"${a#*=}\"/wal/00000000;; esac; done\nexec %s \"$@\"\n", binary(t, "prometheus")))
		code, page, _ := r.run(append(r.sources(), "--patched="+mutant)...)
		require.Equal(t, 1, code, page)
		require.Regexp(t, `(?m)^  - the heads differ: series .*: stock has .*, patched has none`, page)
	})

	t.Run("nothing is asked", func(t *testing.T) {
		code, page, _ := r.run()
		require.Equal(t, 2, code, page)
		require.Regexp(t, `(?m)^COULD NOT SAY\n(  \? .*\n)*  \? answers: nothing was asked: give --query-log, --dashboards or --rule-files\n`, page)
	})
}

func TestRehearsalThatIsInterruptedOrKilledGoesOnAfterWhatWasDone(t *testing.T) {
	t.Parallel()
	r := newRehearsal(t)
	endedBy := func(sig syscall.Signal, after string) string {
		t.Helper()
		out := newOutput(t)
		cmd := exec.Command(binary(t, "promguard"), slices.Concat([]string{"rehearse"}, r.args, r.sources())...)
		cmd.Stdout, cmd.Stderr = out.File, out.File
		require.NoError(t, cmd.Start())
		eventually(t, after, func() bool { return strings.Contains(out.String(), after) })
		require.NoError(t, cmd.Process.Signal(sig))
		_ = cmd.Wait() // How it ended is in its state.
		require.NotContains(t, out.String(), "GO\n")
		if sig == syscall.SIGINT {
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), out.String())
		}
		return out.String()
	}
	require.Contains(t, endedBy(syscall.SIGINT, "patched: done"), "interrupted; the steps that were done are in "+r.path("steps"))
	require.Contains(t, endedBy(syscall.SIGKILL, "heads: done"), " patched: kept")

	code, page, log := r.run(r.sources()...) // Which leaves nothing of the one that was killed.
	require.Zero(t, code, page+log)
	for _, step := range []string{"recording", "stock", "patched", "heads"} {
		require.Contains(t, log, " "+step+": kept")
	}
	code, again, _ := r.run(r.sources()...)
	require.Zero(t, code)
	require.Equal(t, page, again)
}

func TestLookAtALiveServerSaysNoAndNeverGo(t *testing.T) {
	t.Parallel()
	s := scrapingWith(t, t.TempDir(), 12, "--guard.drop-rules=off")
	dir := t.TempDir()
	log := filepath.Join(dir, "query.log")
	look := func(queries string) (int, string) {
		t.Helper()
		require.NoError(t, os.WriteFile(log, []byte(queries), 0o666))
		cmd := exec.Command(binary(t, "promguard"), "rehearse", "--prometheus.url="+s.url, "--query-log="+log, "--out="+filepath.Join(dir, "steps"))
		out, _ := cmd.Output() // Its code says it.
		return cmd.ProcessState.ExitCode(), string(out)
	}
	code, page := look(askedLine("up", "query", 0))
	require.Equal(t, 2, code, page)
	require.Regexp(t, `^COULD NOT SAY\n  \? restart: .* needs a recording\n  \? answers: .*\n  \? storm: .*\n\nA look at http`, page)
	code, page = look(askedLine(`{__name__=~".+"}`, "query", 0))
	require.Equal(t, 1, code, page)
	require.Regexp(t, `(?m)^    promguard: .*Limit selectivity`, page)
}
