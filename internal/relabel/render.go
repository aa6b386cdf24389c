// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
)

// FormatMetricRelabelConfigs is the metric_relabel_configs field of a
// scrape_config in prometheus.yml.
const FormatMetricRelabelConfigs = "metric_relabel_configs"

// FormatWriteRelabelConfigs is the write_relabel_configs field of a remote_write
// in prometheus.yml: what is dropped is stored here, and not sent.
const FormatWriteRelabelConfigs = "write_relabel_configs"

// Formats returns the names of the formats that Render knows.
func Formats() []string {
	return []string{FormatMetricRelabelConfigs, FormatWriteRelabelConfigs}
}

// Render writes the profile as configuration text, each rule with its id, class
// and reason as a comment. Loaded into a Prometheus it drops the same series as
// the compiled profile. The error is an unknown format, a profile that is not
// valid, or w's.
func Render(w io.Writer, p Profile, format string) error {
	if !slices.Contains(Formats(), format) {
		return fmt.Errorf("unknown format %q: use one of %s", format, joinNames(Formats()))
	}
	if err := p.Validate(); err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# promguard drop rules, profile %s. %s\n", p.Name, p.Summary)
	if len(p.Rules) == 0 {
		fmt.Fprintln(b, format+": []")
		return b.Flush()
	}
	section := "scrape config"
	if format == FormatWriteRelabelConfigs {
		section = "remote_write"
	}
	fmt.Fprintf(b, "# Put them last in the %s of each %s.\n", format, section)
	fmt.Fprintln(b, format+":")
	for _, r := range p.Rules {
		cfg, err := r.RelabelConfig()
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "  # %s (%s): %s\n", r.ID, r.Class, r.Reason)
		fmt.Fprintf(b, "  - source_labels: [%s]\n", yamlLabels(cfg.SourceLabels))
		fmt.Fprintf(b, "    regex: %s\n", yamlString(loadable(cfg.Regex.String())))
		fmt.Fprintf(b, "    action: %s\n", promrelabel.Drop)
	}
	return b.Flush()
}

func yamlLabels(names model.LabelNames) string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		s := string(n)
		// "null" unquoted is not a string.
		if !model.LegacyValidation.IsValidLabelName(s) || strings.EqualFold(s, "null") {
			s = yamlString(s)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
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

// yamlString quotes s so that YAML reads back exactly s. Backslashes stay as
// they are where that is possible, because the reader has to check a regex.
func yamlString(s string) string {
	if !printable(s) {
		return strconv.Quote(s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
