// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
)

// These tests read what is rendered with the readers' own packages, in programs
// that make test-peers builds.

// peer returns the path of such a program, and skips the test if it is not there.
func peer(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv("PROMGUARD_BIN"), "peers", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: make test-peers builds it", err)
	}
	return path
}

// output runs a program and returns its standard output.
func output(t *testing.T, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return out
}

// podSeries are what the core set reads of cAdvisor, for cgroups of every kind.
func podSeries(t testing.TB) []labels.Labels {
	t.Helper()
	var out []labels.Labels
	for _, s := range coreSelectors(t) {
		if !strings.HasPrefix(s.name, "container_") {
			continue
		}
		for _, id := range []string{
			"/", "/kubepods", "/kubepods.slice/kubepods-burstable.slice", "/kubepods/burstable/pod4aa017de-86c6",
			"/kubepods/burstable/pod4aa017de-86c6/0123456789abcdef", "/system.slice/kubepods-cleanup.service", "/system.slice/containerd.service",
		} {
			for _, container := range []string{"", "POD", "app"} {
				out = append(out, labels.FromStrings("__name__", s.name, "id", id, "container", container, "pod", "app-0", "job", "kubelet"))
			}
		}
	}
	require.NotEmpty(t, out)
	return out
}

// allSeries are all series that tests have, by where they are from, but for what
// readers are not asked: no labels, and line ends in values, which a dot that stands
// alone does not match in vmagent.
func allSeries(t testing.TB) map[string][]labels.Labels {
	t.Helper()
	out := map[string][]labels.Labels{
		"pods":      podSeries(t),
		"synthetic": syntheticSeries(t, 3_000),
		"replaced":  seriesOfReplaced(),
	}
	if _, err := os.Stat(filepath.Join(sharedDir, "expositions")); err == nil {
		maps.Copy(out, realExpositions(t))
	}
	for _, p := range Profiles() {
		if len(p.Rules) > 0 {
			out["rules of "+p.Name] = seriesOfRules(t, p)
		}
	}
	for from := range out {
		out[from] = slices.DeleteFunc(out[from], func(lset labels.Labels) bool {
			ends := false
			lset.Range(func(l labels.Label) { ends = ends || strings.Contains(l.Value, "\n") })
			return ends || lset.WithoutEmpty().IsEmpty()
		})
	}
	return out
}

// requireSameOfVMAgent fails for the first series on which vmagent differs.
func requireSameOfVMAgent(t *testing.T, p Profile, series []labels.Labels) (dropped int) {
	t.Helper()
	program := peer(t, "vmrelabel")
	file := filepath.Join(t.TempDir(), "relabel.yml")
	var text, stdin bytes.Buffer
	require.NoError(t, Render(&text, p, FormatVMAgent))
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
	enc := json.NewEncoder(&stdin)
	for _, lset := range series {
		require.NoError(t, enc.Encode(lset.Map()))
	}
	answers := strings.Fields(string(output(t, stdin.Bytes(), program, file)))
	require.Len(t, answers, len(series))
	d := mustCompile(t, p)
	for i, lset := range series {
		rule, drop := d.Drop(lset)
		if drop != (answers[i] == "true") {
			t.Fatalf("%s: dropped by rule %d (%t), vmagent says %s", lset, rule, drop, answers[i])
		}
		if drop {
			dropped++
		}
	}
	return dropped
}

func TestVMAgentDropsTheSameSeries(t *testing.T) {
	peer(t, "vmrelabel")
	all := allSeries(t)
	for _, p := range append(Profiles(), readable(awkward(), FormatVMAgent), readable(replaced(), FormatVMAgent)) {
		for from, series := range all {
			t.Logf("%s of %s: %d series, %d dropped", p.Name, from, len(series), requireSameOfVMAgent(t, p, series))
		}
	}
}

// randomRegex puts a regex together from what VictoriaMetrics has shortcuts for and
// what resembles it.
func randomRegex(rnd *rand.Rand) string {
	atoms := []string{
		"a", "b", ";", "ab", ".*", ".+", ".", "(a|b)", "(|a)", "[ab]", "(?:a|b)*", "a?", "(?i:a)", "[^;]*", "(a.*|b)", "(?:.*b.*)",
		"b*", `\.`, "()", "(a|;.*b.*)", "[^a]", `\$`, "a{2}", "(.+b.+)", ".*?", ".+?", "(.*)", "(.*a.*){1}", "(?i)",
		"(a.*b.*|a.*b.*)", "(?:a|b;.*a.*|)", "^", "$", `\b`,
	}
	var b strings.Builder
	for range 1 + rnd.IntN(5) {
		b.WriteString(atoms[rnd.IntN(len(atoms))])
	}
	if rnd.IntN(4) == 0 {
		b.WriteString("|" + atoms[rnd.IntN(len(atoms))])
	}
	return b.String()
}

func TestVMAgentReadsAnyRegexThatIsWrittenForItAsPrometheusDoes(t *testing.T) {
	peer(t, "vmrelabel")
	rnd := rand.New(rand.NewPCG(1, 2))
	var series []labels.Labels
	for range 500 {
		var b strings.Builder
		for range rnd.IntN(8) {
			b.WriteString([]string{"a", "b", ";", "ab", "A", ".", "b", "$"}[rnd.IntN(8)])
		}
		if b.Len() > 0 {
			series = append(series, labels.FromStrings("x", b.String()))
		}
	}
	// A rule that drops hides what those after it do, so that each is a profile.
	read, refused := 0, 0
	for read < 200 {
		r := validRule()
		r.SourceLabels, r.Regex = []string{"x"}, randomRegex(rnd)
		p := Profile{Name: "test", Rules: []Rule{r}}
		if _, err := regexp.Compile(r.Regex); err != nil {
			continue
		}
		if err := Render(&bytes.Buffer{}, p, FormatVMAgent); err != nil {
			require.ErrorContains(t, err, "reads assertions otherwise")
			refused++
			continue
		}
		requireSameOfVMAgent(t, p, series)
		read++
	}
	t.Logf("%d regexes read alike, %d refused", read, refused)
}

func TestAlloyReadsTheSameRules(t *testing.T) {
	program := peer(t, "alloyrules")
	series := allSeries(t)
	for _, p := range append(Profiles(), awkward(), replaced()) {
		var text bytes.Buffer
		require.NoError(t, Render(&text, p, FormatAlloy))
		var rules []struct {
			SourceLabels  []string `json:"source_labels"`
			Regex, Action string
		}
		require.NoError(t, json.Unmarshal(output(t, text.Bytes(), program), &rules))
		var cfgs []*promrelabel.Config
		for _, r := range rules {
			require.Equal(t, "drop", r.Action)
			cfgs = append(cfgs, relabelConfig(t, r.SourceLabels, r.Regex))
		}
		require.Len(t, cfgs, len(p.Rules))
		for _, s := range series {
			requireSameAsChain(t, mustCompile(t, p), cfgs, s)
		}
	}
}
