// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/prometheus/common/model"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v2"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// render returns the profile as text.
func render(t *testing.T, p Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Render(&b, p, FormatMetricRelabelConfigs))
	return b.Bytes()
}

// load reads rendered text as Prometheus reads the field of a scrape config.
func load(t *testing.T, text []byte) []*promrelabel.Config {
	t.Helper()
	var scrape struct {
		MetricRelabelConfigs []*promrelabel.Config `yaml:"metric_relabel_configs"`
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &scrape), "%s", text)
	for _, cfg := range scrape.MetricRelabelConfigs {
		require.NoError(t, cfg.Validate(model.UTF8Validation))
	}
	return scrape.MetricRelabelConfigs
}

func TestRenderedProfileIsTheReviewedText(t *testing.T) {
	for _, p := range Profiles() {
		golden := "testdata/" + p.Name + ".yaml"
		got := render(t, p)
		if *update {
			require.NoError(t, os.WriteFile(golden, got, 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

func TestRenderedProfileLoadsAndDropsTheSameSeries(t *testing.T) {
	series := syntheticSeries(t, 5_000)
	for _, p := range append(Profiles(), awkward()) {
		t.Run(p.Name, func(t *testing.T) {
			loaded := load(t, render(t, p))
			require.Len(t, loaded, len(p.Rules))
			requireSameAsChain(t, mustCompile(t, p), loaded, series)
		})
	}
}

func TestRenderedProfileDropsTheSameSeriesOfRealExpositions(t *testing.T) {
	expositions := realExpositions(t)
	for _, p := range Profiles() {
		d, loaded := mustCompile(t, p), load(t, render(t, p))
		for _, series := range expositions {
			requireSameAsChain(t, d, loaded, series)
		}
	}
}

func TestWriteRelabelConfigsAreThoseOfTheScrapeUnderAnotherName(t *testing.T) {
	for _, p := range Profiles() {
		var b bytes.Buffer
		require.NoError(t, Render(&b, p, FormatWriteRelabelConfigs))
		var remote struct {
			WriteRelabelConfigs []*promrelabel.Config `yaml:"write_relabel_configs"`
		}
		require.NoError(t, yaml.UnmarshalStrict(b.Bytes(), &remote))
		for _, cfg := range remote.WriteRelabelConfigs {
			require.NoError(t, cfg.Validate(model.UTF8Validation))
		}
		require.Equal(t, load(t, render(t, p)), remote.WriteRelabelConfigs)
		require.NotContains(t, b.String(), "scrape config")
	}
}

func TestRenderedTextQuotesWhatYAMLWouldReadOtherwise(t *testing.T) {
	for _, regex := range []string{
		`it's`, `''`, `a: b # c`, `\d+\.\"`, "tab\there", "line\nbreak", "\u00a0\ufeff\u2028", "&anchor", "!tag", "@at", "`tick", "[a]", "1", "-", "%", "\U0001F600",
	} {
		r := validRule()
		r.SourceLabels = []string{"__name__", "null", "on", "ünï, [x]", "a'b"}
		r.Regex = regex
		loaded := load(t, render(t, Profile{Name: "test", Rules: []Rule{r}}))
		require.Len(t, loaded, 1)
		want, err := r.RelabelConfig()
		require.NoError(t, err)
		require.Equal(t, want.SourceLabels, loaded[0].SourceLabels)
		require.Equal(t, regex, loaded[0].Regex.String())
		require.Equal(t, promrelabel.Drop, loaded[0].Action)
	}
}

func TestRenderedRegexThatLooksLikeNoValueStaysAnchored(t *testing.T) {
	for _, regex := range []string{"null", "~", "Null", "true"} {
		r := validRule()
		r.Regex = regex
		loaded := load(t, render(t, Profile{Name: "test", Rules: []Rule{r}}))
		require.True(t, loaded[0].Regex.MatchString(regex))
		require.False(t, loaded[0].Regex.MatchString("x"+regex))
	}
}

func TestUnknownFormatNamesThoseThereAre(t *testing.T) {
	err := Render(&bytes.Buffer{}, Profile{Name: "test"}, "toml")
	require.EqualError(t, err, `unknown format "toml": use one of metric_relabel_configs, write_relabel_configs, scrapeclass, servicemonitor, podmonitor, helm-values, alloy, vmagent`)
}

func TestProfileThatIsNotValidIsNotRendered(t *testing.T) {
	var b bytes.Buffer
	require.Error(t, Render(&b, Profile{Name: "test", Rules: []Rule{{}}}, FormatMetricRelabelConfigs))
	require.Empty(t, b.String())
}

func TestRenderReportsThatItCouldNotWrite(t *testing.T) {
	full := errors.New("disk full")
	require.ErrorIs(t, Render(failingWriter{full}, mustProfile(t, ProfileMinimal), FormatMetricRelabelConfigs), full)
	require.ErrorIs(t, Render(failingWriter{full}, mustProfile(t, ProfileOff), FormatMetricRelabelConfigs), full)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
