// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// Formats that Render knows.
const (
	// FormatMetricRelabelConfigs is the metric_relabel_configs field of a
	// scrape_config in prometheus.yml.
	FormatMetricRelabelConfigs = "metric_relabel_configs"
	// FormatWriteRelabelConfigs is the write_relabel_configs field of a
	// remote_write in prometheus.yml: what is dropped is stored here, and not sent.
	FormatWriteRelabelConfigs = "write_relabel_configs"
	// FormatScrapeClass is a part of the Prometheus operator's Prometheus object.
	FormatScrapeClass = "scrapeclass"
	// FormatServiceMonitor and FormatPodMonitor are the metricRelabelings of an
	// endpoint of the operator's monitors.
	FormatServiceMonitor = "servicemonitor"
	FormatPodMonitor     = "podmonitor"
	// FormatHelmValues is a values file for the chart kube-prometheus-stack.
	FormatHelmValues = "helm-values"
	// FormatAlloy is a component of Grafana Alloy.
	FormatAlloy = "alloy"
	// FormatVMAgent is vmagent's -remoteWrite.relabelConfig file.
	FormatVMAgent = "vmagent"
)

// dialect is how one program wants relabel configs.
type dialect struct {
	format string
	// where says, in lines of a comment, where the text belongs.
	where []string
	// head is what stands above the rules, without the end of its last line, and
	// indent what stands before each line of a rule.
	head, indent string
	// sourceLabels is the field's name.
	sourceLabels string
	alloy        bool
	// replaced matches what some program replaces in the text before it is read
	// as relabel configs, or is nil.
	replaced *regexp.Regexp
	// dotAll says that a dot does not match the end of a line unless told so, as
	// it does in Prometheus since version 3.
	dotAll bool
	// shortcuts says that the reader replaces some regexes by comparisons of
	// strings that do not tell the same: see withoutShortcuts.
	shortcuts bool
}

var (
	// The operator's config reloader replaces environment variables.
	reloaderVariable = regexp.MustCompile(`\$\([a-zA-Z_0-9]+\)`)
	// The chart passes parts of its values through the template engine.
	operatorOrTemplate = regexp.MustCompile(`\$\([a-zA-Z_0-9]+\)|\{\{`)
	// vmagent replaces environment variables, in comments too.
	vmVariable = regexp.MustCompile(`%\{`)
)

func dialects() []dialect {
	const classFirst = "These rules come before a monitor's own metricRelabelings. A monitor that names another class escapes them."
	endpoint := func(kind string) []string {
		return []string{"Put them last in the metricRelabelings of each " + kind + "."}
	}
	return []dialect{
		{
			format: FormatMetricRelabelConfigs, head: "metric_relabel_configs:", indent: "  ", sourceLabels: "source_labels",
			where: []string{"Put them last in the metric_relabel_configs of each scrape config."},
		},
		{
			format: FormatWriteRelabelConfigs, head: "write_relabel_configs:", indent: "  ", sourceLabels: "source_labels",
			where: []string{"Put them last in the write_relabel_configs of each remote_write."},
		},
		{
			format: FormatScrapeClass, indent: "        ", sourceLabels: "sourceLabels", replaced: reloaderVariable,
			head: "spec:\n  scrapeClasses:\n    - name: promguard\n      default: true\n      metricRelabelings:",
			where: []string{
				"Put the class into your Prometheus or PrometheusAgent object; there can be only one default, so if you have one, give it the rules.",
				classFirst,
			},
		},
		{
			format: FormatServiceMonitor, head: "metricRelabelings:", indent: "  ", sourceLabels: "sourceLabels", replaced: reloaderVariable,
			where: endpoint("of a ServiceMonitor's spec.endpoints"),
		},
		{
			format: FormatPodMonitor, head: "metricRelabelings:", indent: "  ", sourceLabels: "sourceLabels", replaced: reloaderVariable,
			where: endpoint("of a PodMonitor's spec.podMetricsEndpoints"),
		},
		{
			format: FormatHelmValues, indent: "          ", sourceLabels: "sourceLabels", replaced: operatorOrTemplate,
			head: "prometheus:\n  prometheusSpec:\n    scrapeClasses:\n      - name: promguard\n        default: true\n        metricRelabelings:",
			where: []string{
				"Values of the chart kube-prometheus-stack. There can be only one default class, so if you have one, give it the rules.",
				classFirst,
			},
		},
		{
			format: FormatAlloy, indent: "\t", sourceLabels: "source_labels", alloy: true, dotAll: true,
			head: "prometheus.relabel \"promguard\" {\n\tforward_to = [prometheus.remote_write.default.receiver]",
			where: []string{
				"Let each prometheus.scrape forward to prometheus.relabel.promguard.receiver, and this to where they did.",
				"Its max_cache_size, 100000 by default, should be several times the series of your largest target.",
			},
		},
		{
			format: FormatVMAgent, sourceLabels: "source_labels", replaced: vmVariable, dotAll: true, shortcuts: true,
			where: []string{"The file of -remoteWrite.relabelConfig, or items for the metric_relabel_configs of a scrape config."},
		},
	}
}

// replaces reports whether a part of the text would not arrive.
func (d dialect) replaces(text string) bool {
	return d.replaced != nil && d.replaced.MatchString(text)
}

// comment returns the text so that nothing in it is replaced. Where comments do
// not arrive anyway, that does no harm.
func (d dialect) comment(text string) string {
	for d.replaces(text) {
		at := d.replaced.FindStringIndex(text)[0] + 1
		text = text[:at] + " " + text[at:]
	}
	return text
}

// spell returns the regex so that it arrives, and means the same: nothing in it
// is replaced, and a dot matches every character.
func (d dialect) spell(pattern string) (string, error) {
	pattern = loadable(pattern)
	want, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", err
	}
	for d.replaces(pattern) {
		at := d.replaced.FindStringIndex(pattern)
		if pattern, err = respell(pattern, at[0], want); err != nil {
			return "", fmt.Errorf("what reads the format %s replaces a part of the regex: %w", d.format, err)
		}
	}
	if d.shortcuts {
		if pattern, err = withoutShortcuts(pattern); err != nil {
			return "", fmt.Errorf("what reads the format %s %w", d.format, err)
		}
	}
	if d.dotAll && mayContain(want, syntax.OpAnyCharNotNL) {
		pattern = "(?s:" + pattern + ")"
	}
	return pattern, nil
}

// withoutShortcuts returns the regex in a form that VictoriaMetrics' regexutil
// reads as everybody does. Two of its shortcuts do not tell what the regex does:
// of (a|b);.*c.* it forgets what stands before .*c.*, and of .+c.+ it looks at the
// first c only. Another .* behind them keeps it from both. It cuts off what the
// regex begins with, so that an assertion looks at other text.
func withoutShortcuts(pattern string) (string, error) {
	re, err := syntax.Parse(trimAnchors(pattern), syntax.Perl|syntax.DotNL)
	if err != nil {
		return "", err
	}
	if readsSurroundings(re) {
		return "", fmt.Errorf("reads assertions otherwise: write %q without them", pattern)
	}
	pattern = trimAnchors(pattern)
	if endsInSubstring(re) {
		pattern = "(?:" + pattern + ").*"
	}
	return pattern, nil
}

// trimAnchors takes away what anchors the regex at its ends, where it is anchored
// anyway.
func trimAnchors(pattern string) string {
	pattern = strings.TrimLeft(pattern, "^")
	for {
		text, ok := strings.CutSuffix(pattern, "$")
		if backslashes := len(text) - len(strings.TrimRight(text, `\`)); !ok || backslashes%2 == 1 {
			return pattern
		}
		pattern = text
	}
}

// endsInSubstring reports whether the last that the regex asks for is a text
// anywhere: .*text.* or .+text.+.
func endsInSubstring(re *syntax.Regexp) bool {
	// Written down without groups, nested sequences are one.
	re, err := syntax.Parse(withoutGroups(re).String(), syntax.Perl)
	if err != nil || re.Op != syntax.OpConcat || len(re.Sub) < 3 {
		return false
	}
	last := re.Sub[len(re.Sub)-3:]
	anything := func(re *syntax.Regexp) bool {
		return (re.Op == syntax.OpStar || re.Op == syntax.OpPlus) && re.Sub[0].Op == syntax.OpAnyChar
	}
	return anything(last[0]) && last[1].Op == syntax.OpLiteral && anything(last[2])
}

// withoutGroups returns the regex without groups and what is empty.
func withoutGroups(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	out := *re
	out.Sub = nil
	for _, sub := range re.Sub {
		if sub = withoutGroups(sub); re.Op != syntax.OpConcat || sub.Op != syntax.OpEmptyMatch {
			out.Sub = append(out.Sub, sub)
		}
	}
	if re.Op == syntax.OpConcat && len(out.Sub) == 0 {
		out.Op = syntax.OpEmptyMatch
	}
	return out.Simplify()
}

// respell writes the character at i, which is ASCII, in another way that leaves
// the regex's meaning as it is.
func respell(pattern string, i int, want *syntax.Regexp) (string, error) {
	before, char, after := pattern[:i], pattern[i], pattern[i+1:]
	text := before + fmt.Sprintf(`\x%02x`, char) + after
	if backslashes := len(before) - len(strings.TrimRight(before, `\`)); backslashes%2 == 1 {
		text = before[:i-1] + fmt.Sprintf(`\x%02x`, char) + after
	}
	for _, candidate := range []string{text, before + "(?:" + string(char) + ")" + after} {
		if re, err := syntax.Parse(candidate, syntax.Perl); err == nil && re.Equal(want) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("write the %q in %q otherwise", string(char), pattern[i:])
}

// mayContain reports whether there is such an operation in the regex.
func mayContain(re *syntax.Regexp, op syntax.Op) bool {
	return re.Op == op || slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return mayContain(sub, op) })
}

// loadable returns the regex so that Prometheus loads it. Its YAML library skips
// the type's own decoding for these two scalars even where they are quoted, and
// what it does instead does not anchor.
func loadable(regex string) string {
	if regex == "null" || regex == "~" {
		return "(?:" + regex + ")"
	}
	return regex
}
