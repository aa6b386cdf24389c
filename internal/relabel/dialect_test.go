// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bytes"
	"os"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/scanner"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
)

// operatorRelabelConfig has the fields of the operator's RelabelConfig.
type operatorRelabelConfig struct {
	SourceLabels []string `yaml:"sourceLabels"`
	Separator    *string  `yaml:"separator"`
	TargetLabel  string   `yaml:"targetLabel"`
	Regex        string   `yaml:"regex"`
	Modulus      uint64   `yaml:"modulus"`
	Replacement  *string  `yaml:"replacement"`
	Action       string   `yaml:"action"`
}

// scrapeClass has those fields of the operator's ScrapeClass that matter here.
type scrapeClass struct {
	Name              string                  `yaml:"name"`
	Default           bool                    `yaml:"default"`
	MetricRelabelings []operatorRelabelConfig `yaml:"metricRelabelings"`
}

// readers read each format as the program does that it is for, and return the
// relabel configs that arrive.
func readers() map[string]func(*testing.T, []byte) []*promrelabel.Config {
	endpoint := func(t *testing.T, text []byte) []*promrelabel.Config {
		var into struct {
			MetricRelabelings []operatorRelabelConfig `yaml:"metricRelabelings"`
		}
		strict(t, text, &into)
		return fromOperator(t, into.MetricRelabelings)
	}
	class := func(t *testing.T, classes []scrapeClass) []*promrelabel.Config {
		require.Len(t, classes, 1)
		require.Equal(t, "promguard", classes[0].Name)
		require.True(t, classes[0].Default)
		return fromOperator(t, classes[0].MetricRelabelings)
	}
	return map[string]func(*testing.T, []byte) []*promrelabel.Config{
		FormatMetricRelabelConfigs: load,
		FormatWriteRelabelConfigs: func(t *testing.T, text []byte) []*promrelabel.Config {
			var into struct {
				WriteRelabelConfigs []*promrelabel.Config `yaml:"write_relabel_configs"`
			}
			require.NoError(t, yamlv2.UnmarshalStrict(text, &into))
			return valid(t, into.WriteRelabelConfigs)
		},
		FormatScrapeClass: func(t *testing.T, text []byte) []*promrelabel.Config {
			var into struct {
				Spec struct {
					ScrapeClasses []scrapeClass `yaml:"scrapeClasses"`
				} `yaml:"spec"`
			}
			strict(t, text, &into)
			return class(t, into.Spec.ScrapeClasses)
		},
		FormatServiceMonitor: endpoint,
		FormatPodMonitor:     endpoint,
		FormatHelmValues: func(t *testing.T, text []byte) []*promrelabel.Config {
			var into struct {
				Prometheus struct {
					PrometheusSpec struct {
						ScrapeClasses []scrapeClass `yaml:"scrapeClasses"`
					} `yaml:"prometheusSpec"`
				} `yaml:"prometheus"`
			}
			strict(t, text, &into)
			return class(t, into.Prometheus.PrometheusSpec.ScrapeClasses)
		},
		FormatAlloy: readAlloy,
		FormatVMAgent: func(t *testing.T, text []byte) []*promrelabel.Config {
			require.NotContains(t, string(text), "%{", "vmagent would look for an environment variable")
			var into []*promrelabel.Config
			require.NoError(t, yamlv2.UnmarshalStrict(text, &into))
			return valid(t, into)
		},
	}
}

func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(into), "%s", text)
}

func valid(t *testing.T, cfgs []*promrelabel.Config) []*promrelabel.Config {
	t.Helper()
	for _, cfg := range cfgs {
		require.NoError(t, cfg.Validate(model.UTF8Validation))
	}
	return cfgs
}

// fromOperator returns what the operator writes into prometheus.yml.
func fromOperator(t *testing.T, in []operatorRelabelConfig) []*promrelabel.Config {
	t.Helper()
	var out []*promrelabel.Config
	for _, c := range in {
		require.Nil(t, c.Separator)
		require.Equal(t, "drop", c.Action)
		require.NotRegexp(t, `\$\(\w+\)`, c.Regex, "the config reloader would look for an environment variable")
		out = append(out, relabelConfig(t, c.SourceLabels, "(?s:"+c.Regex+")"))
	}
	return out
}

// relabelConfig returns a drop rule whose regex is anchored as before
// Prometheus 3: a dot does not match the end of a line.
func relabelConfig(t *testing.T, source []string, regex string) *promrelabel.Config {
	t.Helper()
	cfg := promrelabel.DefaultRelabelConfig
	cfg.Action = promrelabel.Drop
	var err error
	cfg.Regex, err = promrelabel.NewRegexp("(?-s:" + regex + ")")
	require.NoError(t, err)
	for _, l := range source {
		cfg.SourceLabels = append(cfg.SourceLabels, model.LabelName(l))
	}
	return valid(t, []*promrelabel.Config{&cfg})[0]
}

// readAlloy reads what is used here of Alloy's syntax, whose tokens are Go's.
func readAlloy(t *testing.T, text []byte) []*promrelabel.Config {
	t.Helper()
	var s scanner.Scanner
	s.Init(bytes.NewReader(text))
	s.Error = func(_ *scanner.Scanner, msg string) { t.Fatalf("%s: %s", msg, text) }
	next := func() string {
		s.Scan()
		return s.TokenText()
	}
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			require.Equal(t, w, next(), "%s", s.Pos())
		}
	}
	unquote := func(token string) string {
		v, err := strconv.Unquote(token)
		require.NoError(t, err, token)
		return v
	}
	expect("prometheus", ".", "relabel", `"promguard"`, "{", "forward_to", "=", "[", "prometheus", ".", "remote_write", ".", "default", ".", "receiver", "]")
	var out []*promrelabel.Config
	for token := next(); token != "}"; token = next() {
		require.Equal(t, "rule", token)
		expect("{", "source_labels", "=", "[")
		var source []string
		for separator := ","; separator == ","; separator = next() {
			source = append(source, unquote(next()))
		}
		expect("regex", "=")
		regex := unquote(next())
		expect("action", "=", `"drop"`, "}")
		out = append(out, relabelConfig(t, source, regex))
	}
	require.Equal(t, rune(scanner.EOF), s.Scan())
	return out
}

// replaced has rules that the programs behind the formats would change if they
// were written down as they are.
func replaced() Profile {
	p := Profile{Name: "replaced", Summary: "50 %{of} them, $(HOME) and {{ .Values }}"}
	for _, r := range []struct {
		id     string
		labels []string
		regex  string
	}{
		{"environment", []string{"__name__", "x"}, `up;\$(HOME)|[$(a)]{3}|b$(HOME)|\\$(c)`},
		{"template", []string{"__name__", "x"}, `up;(\{{|[{{]x{{2}|{{{|\\{{)`},
		{"percent", []string{"__name__", "x"}, `up;(%{a}|\%{2}|[%{]y)`},
		{"quotes", []string{"__name__", "x"}, `up;("'` + "`" + `"|it's|\\"\\.)`},
		{"dot", []string{"__name__", "x"}, `up;z.(?-s:.)`},
		{"no-value", []string{"x"}, `null`},
		{"words", []string{"on", "No", "y", "null", "true"}, `1;2;3;4;5`},
		{"labels", []string{"a b", `it's "x" \`, "tab\there"}, `1;2;3`},
	} {
		p.Rules = append(p.Rules, Rule{
			ID: r.id, Class: ClassUnused, SourceLabels: r.labels, Regex: r.regex, Reason: "100 %{of} $(HOME), \"quoted\" {{ .Values }} # and so on",
		})
	}
	return p
}

func seriesOfReplaced() []labels.Labels {
	var series []labels.Labels
	for _, x := range []string{
		"$HOME", "$(HOME)", "$$$", "(a)", "b", "bHOME", `\c`, `\`, "{{", "{x{{", "{x{", "{{{", `\{{`, "{", "%{a}", "%%", "%{2}", "%y", "{y", "%",
		"\"'`\"", "it's", `\"\.`, `"`, "zab", "z\na", "za\n", "z\n\n", "null", "xnull", "", "$", "$$(",
	} {
		series = append(series, labels.FromStrings("__name__", "up", "x", x), labels.FromStrings("x", x), labels.FromStrings("__name__", "down", "x", x))
	}
	return append(series,
		labels.FromStrings("__name__", "a", "on", "1", "No", "2", "y", "3", "null", "4", "true", "5"),
		labels.FromStrings("__name__", "a", "a b", "1", `it's "x" \`, "2", "tab\there", "3"),
	)
}

// readable returns the profile without the rules that a format refuses: those with
// assertions, of which $(HOME) is one.
func readable(p Profile, format string) Profile {
	p.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r Rule) bool {
		return format == FormatVMAgent && (r.ID == "word-boundary" || r.ID == "environment")
	})
	return p
}

func TestEveryFormatDropsTheSameSeries(t *testing.T) {
	all := readers()
	require.Len(t, all, len(dialects()))
	synthetic := syntheticSeries(t, 3_000)
	for _, dialect := range dialects() {
		format := dialect.format
		for _, p := range append(Profiles(), awkward(), replaced()) {
			t.Run(format+" of "+p.Name, func(t *testing.T) {
				p := readable(p, format)
				var b bytes.Buffer
				require.NoError(t, Render(&b, p, format))
				arrived := all[format](t, b.Bytes())
				require.Len(t, arrived, len(p.Rules))
				d := mustCompile(t, p)
				requireSameAsChain(t, d, arrived, synthetic)
				perRule := requireSameAsChain(t, d, arrived, seriesOfReplaced())
				for i, n := range perRule {
					require.True(t, n > 0 || p.Name != "replaced", "no series reaches rule %s: the test says nothing about it", p.Rules[i].ID)
				}
			})
		}
	}
}

func TestEveryFormatIsTheReviewedText(t *testing.T) {
	p := replaced()
	p.Rules = append(p.Rules, mustProfile(t, ProfileMinimal).Rules[2:4]...)
	for _, dialect := range dialects() {
		format := dialect.format
		golden := "testdata/format_" + format + ".txt"
		var b bytes.Buffer
		require.NoError(t, Render(&b, readable(p, format), format))
		if *update {
			require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), b.String())
	}
}

func TestWhatAFormatCannotExpressIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for _, tc := range []struct {
		format, label, regex, want string
	}{
		{FormatVMAgent, "a%{b}", "x", `rule a-rule: what reads the format vmagent replaces a part of the label name "a%{b}"`},
		{FormatVMAgent, "__name__", `go_\b.*`, `rule a-rule: what reads the format vmagent reads assertions otherwise: write "go_\\b.*" without them`},
		{FormatVMAgent, "__name__", `(^a|b)c`, `reads assertions otherwise`},
		{FormatHelmValues, "a{{b", "x", `replaces a part of the label name`},
		{FormatServiceMonitor, "__name__", `\Q$(A)\E`, `what reads the format servicemonitor replaces a part of the regex: write the "$" in "$(A)\\E" otherwise`},
	} {
		r := validRule()
		r.SourceLabels, r.Regex = []string{tc.label}, tc.regex
		p := Profile{Name: "test", Rules: []Rule{r}}
		var b bytes.Buffer
		require.ErrorContains(t, Render(&b, p, tc.format), tc.want)
		require.Empty(t, b.String())
		require.NoError(t, Render(&b, p, FormatMetricRelabelConfigs))
	}
}

// VictoriaMetrics' packages are asked themselves by make test-peers. This holds what
// is rendered to the kind of regexes that they read as Prometheus does.
func TestWhatIsRenderedForVMAgentIsOfTheKindThatItReadsAsPrometheusDoes(t *testing.T) {
	all := readers()
	for _, p := range append(Profiles(), readable(awkward(), FormatVMAgent), readable(replaced(), FormatVMAgent)) {
		var b bytes.Buffer
		require.NoError(t, Render(&b, p, FormatVMAgent))
		for i, cfg := range all[FormatVMAgent](t, b.Bytes()) {
			re, err := syntax.Parse(cfg.Regex.String(), syntax.Perl|syntax.DotNL)
			require.NoError(t, err)
			require.False(t, readsSurroundings(re), p.Rules[i].ID)
			require.False(t, endsInSubstring(re), p.Rules[i].ID)
		}
	}
}

func TestRegexIsWrittenForVMAgentWithoutWhatItTakesForSomethingElse(t *testing.T) {
	for regex, want := range map[string]string{
		`container_(a|b);.*kubepods.*`: `(?s:(?:container_(a|b);.*kubepods.*).*)`,
		`a(.+b.+)()`:                   `(?s:(?:a(.+b.+)()).*)`,
		`(?:a|b);(.*)c(.*){1}`:         `(?s:(?:(?:a|b);(.*)c(.*){1}).*)`,
		`a.*|b.*c.*`:                   `(?s:a.*|b.*c.*)`,
		`(a|b).*c.*d`:                  `(?s:(a|b).*c.*d)`,
		`(a|b)[^;]*c[^;]*`:             `(a|b)[^;]*c[^;]*`,
		`^a|b$`:                        `a|b`,
		`a\$`:                          `a\$`,
		`a\\$$`:                        `a\\`,
	} {
		r := validRule()
		r.Regex = regex
		rules, err := dialectOf(FormatVMAgent).spellRules(Profile{Name: "test", Rules: []Rule{r}})
		require.NoError(t, err)
		require.Equal(t, want, rules[0].regex)
	}
}

func dialectOf(format string) dialect {
	all := dialects()
	return all[slices.IndexFunc(all, func(d dialect) bool { return d.format == format })]
}

func FuzzRespelledRegexMeansTheSame(f *testing.F) {
	for _, r := range replaced().Rules {
		f.Add(r.Regex, "up;"+r.Regex)
	}
	all := slices.DeleteFunc(dialects(), func(d dialect) bool { return d.replaced == nil })
	f.Fuzz(func(t *testing.T, pattern, value string) {
		if len(pattern) > 1000 {
			return
		}
		re, err := promrelabel.NewRegexp(pattern)
		if err != nil || (Rule{Regex: pattern}).validateRegex() != nil {
			return
		}
		for _, d := range all {
			got, err := d.spell(pattern)
			if err != nil {
				require.Contains(t, err.Error(), "otherwise")
				continue
			}
			require.False(t, d.replaces(got))
			other, err := promrelabel.NewRegexp(got)
			require.NoError(t, err)
			require.Equal(t, re.MatchString(value), other.MatchString(value), "%q and %q", pattern, got)
			require.False(t, strings.Contains(d.comment(pattern), "%{") && d.format == FormatVMAgent)
		}
	})
}
