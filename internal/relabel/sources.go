// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"errors"
	"fmt"
	"io"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// Formats that keep an exporter from exposing what Prometheus would drop. They are
// arguments for command lines. What an exporter cannot leave out is named in a
// comment, and left to the relabelling.
const (
	// FormatKubeStateMetrics is the deny list of kube-state-metrics, version 2.
	FormatKubeStateMetrics = "kube-state-metrics"
	// FormatKubernetesFlags is for the API server, the controller manager and the
	// scheduler, since Kubernetes 1.21.
	FormatKubernetesFlags = "kubernetes-flags"
	// FormatNodeExporter is for node_exporter, since version 1.3.
	FormatNodeExporter = "node-exporter"
)

// exporter is how one exporter is told what not to expose.
type exporter struct {
	format string
	where  []string
	// owns reports whether a metric whose name begins so is the exporter's.
	owns func(name string) bool
	// arguments returns the arguments for the rules, and the ids of those rules
	// that have none.
	arguments func(rules []Rule) (arguments, left []string, err error)
}

func exporters() []exporter {
	return []exporter{
		{
			format: FormatKubeStateMetrics,
			where:  []string{"An argument of kube-state-metrics. It cannot be used beside --metric-allowlist; a deny list that you have goes in front."},
			owns: func(name string) bool {
				return strings.HasPrefix(name, "kube_") && !strings.HasPrefix(name, "kube_apiserver_")
			},
			arguments: denyList,
		},
		{
			format: FormatKubernetesFlags,
			where: []string{
				"An argument of kube-apiserver, kube-controller-manager and kube-scheduler; names that one of them does not have do no harm.",
				"Nobody else can read these metrics then either, such as kubectl get --raw /metrics.",
			},
			owns:      ofKubernetes,
			arguments: disabledMetrics,
		},
		{
			format:    FormatNodeExporter,
			where:     []string{"Arguments of node_exporter."},
			owns:      func(name string) bool { return strings.HasPrefix(name, "node_network_") },
			arguments: excludedDevices,
		},
	}
}

// ofKubernetes reports whether the component library of Kubernetes registers the
// metric. Go's own, and what cAdvisor finds, it does not.
func ofKubernetes(name string) bool {
	return slices.ContainsFunc([]string{"apiserver_", "etcd_bookmark_", "etcd_requests_", "kubernetes_feature_", "scheduler_", "watch_cache_", "workqueue_"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// renderExporter writes the arguments, each on a line of its own.
func renderExporter(w io.Writer, e exporter, p Profile) error {
	var rules []Rule
	for _, r := range p.Rules {
		if r.owned(e.owns) {
			rules = append(rules, r)
		}
	}
	arguments, left, err := e.arguments(rules)
	if err != nil {
		return fmt.Errorf("profile %s, format %s: %w", p.Name, e.format, err)
	}
	fmt.Fprintf(w, "# %s\n", title(p))
	for _, line := range e.where {
		fmt.Fprintf(w, "# %s\n", line)
	}
	for _, id := range left {
		fmt.Fprintf(w, "# %s: no argument does the same; leave it to the relabelling.\n", id)
	}
	if len(arguments) == 0 {
		fmt.Fprintln(w, "# No argument.")
	}
	for _, a := range arguments {
		if _, err := fmt.Fprintln(w, a); err != nil {
			return err
		}
	}
	return nil
}

// owned reports whether all names that the rule is about are the exporter's.
func (r Rule) owned(owns func(string) bool) bool {
	pattern, ok := r.namePattern()
	if !ok {
		return false
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return false
	}
	begins := beginnings(re)
	return len(begins) > 0 && !slices.ContainsFunc(begins, func(name string) bool { return !owns(name) })
}

// namePattern returns the regex of the metric's name.
func (r Rule) namePattern() (string, bool) {
	names, patterns, err := r.Split()
	if err != nil || len(patterns) == 0 || names[0] != model.MetricNameLabel {
		return "", false
	}
	return patterns[0], true
}

// onlyName reports whether the rule reads nothing but the metric's name. A scope by
// job says whose metric it is, which an exporter knows.
func (r Rule) onlyName() bool {
	return slices.Equal(r.SourceLabels, []string{model.MetricNameLabel})
}

// denyList anchors each regex: kube-state-metrics does not. It takes a list apart at
// commas.
func denyList(rules []Rule) (arguments, left []string, err error) {
	var list []string
	for _, r := range rules {
		if !r.onlyName() {
			left = append(left, r.ID)
			continue
		}
		if strings.Contains(r.Regex, ",") {
			return nil, nil, fmt.Errorf("rule %s: write the regex without a comma, at which the list is taken apart", r.ID)
		}
		list = append(list, "^(?:"+r.Regex+")$")
	}
	if len(list) > 0 {
		arguments = []string{"--metric-denylist=" + strings.Join(list, ",")}
	}
	return arguments, left, nil
}

// maxDisabled is how many names one rule may list.
const maxDisabled = 500

// disabledMetrics lists metrics by name, for the flag knows no regex. It leaves out a
// metric as a whole: a rule that takes only buckets cannot be expressed.
func disabledMetrics(rules []Rule) (arguments, left []string, err error) {
	var list []string
	for _, r := range rules {
		names, ok := r.listedNames()
		if !ok || r.Class != ClassUnused {
			left = append(left, r.ID)
			continue
		}
		for _, name := range names {
			// The parts of a summary go with it.
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum")
			if base == name || !slices.Contains(names, base) {
				list = append(list, name)
			}
		}
	}
	if len(list) > 0 {
		arguments = []string{"--disabled-metrics=" + strings.Join(list, ",")}
	}
	return arguments, left, nil
}

// listedNames returns the names that the rule drops, if it reads only names and is
// a list of them.
func (r Rule) listedNames() ([]string, bool) {
	pattern, ok := r.namePattern()
	if !ok || !r.onlyName() {
		return nil, false
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, false
	}
	names, err := texts(re, maxDisabled)
	return names, err == nil
}

// excludedDevices knows rules for all metrics of network devices by name. The same
// devices are left out by the collectors netclass and netdev, which expose them.
func excludedDevices(rules []Rule) (arguments, left []string, err error) {
	const all = `node_network_\w+` + separator
	var devices []string
	for _, r := range rules {
		device, ok := strings.CutPrefix(r.Regex, all)
		if !ok || len(r.Jobs) > 0 || !slices.Equal(r.SourceLabels, []string{model.MetricNameLabel, "device"}) {
			left = append(left, r.ID)
			continue
		}
		devices = append(devices, device)
	}
	if len(devices) > 0 {
		regex := "^(?:" + strings.Join(devices, "|") + ")$"
		arguments = []string{"--collector.netclass.ignored-devices=" + regex, "--collector.netdev.device-exclude=" + regex}
	}
	return arguments, left, nil
}

var errNoList = errors.New("not a list of texts")

// texts returns what the regex matches, if that is at most limit texts.
func texts(re *syntax.Regexp, limit int) ([]string, error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, nil
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil, errNoList
		}
		return []string{string(re.Rune)}, nil
	case syntax.OpCapture:
		return texts(re.Sub[0], limit)
	case syntax.OpQuest:
		some, err := texts(re.Sub[0], limit)
		return append([]string{""}, some...), err
	case syntax.OpCharClass:
		return characters(re, limit)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			some, err := texts(sub, limit)
			if all = append(all, some...); err != nil || len(all) > limit {
				return nil, errNoList
			}
		}
		return all, nil
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			some, err := texts(sub, limit)
			if err != nil || len(all)*len(some) > limit {
				return nil, errNoList
			}
			all = product(all, some)
		}
		return all, nil
	}
	return nil, errNoList
}

func product(heads, tails []string) []string {
	out := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, t := range tails {
			out = append(out, h+t)
		}
	}
	return out
}

func characters(re *syntax.Regexp, limit int) ([]string, error) {
	var out []string
	for i := 0; i+1 < len(re.Rune); i += 2 {
		if int(re.Rune[i+1]-re.Rune[i]) >= limit {
			return nil, errNoList
		}
		for c := re.Rune[i]; c <= re.Rune[i+1]; c++ {
			out = append(out, string(c))
		}
	}
	if len(out) > limit {
		return nil, errNoList
	}
	return out, nil
}

// beginnings returns texts of which each text that matches begins with one, or
// nothing if there is no such list. They are as long as they can be told.
func beginnings(re *syntax.Regexp) []string {
	const limit = 2000
	if re.Op == syntax.OpCapture {
		return beginnings(re.Sub[0])
	}
	if re.Op == syntax.OpAlternate {
		var all []string
		for _, sub := range re.Sub {
			some := beginnings(sub)
			if len(some) == 0 {
				return nil
			}
			all = append(all, some...)
		}
		return all
	}
	if re.Op != syntax.OpConcat {
		all, err := texts(re, limit)
		if err != nil {
			return nil
		}
		return all
	}
	all := []string{""}
	for _, sub := range re.Sub {
		some, err := texts(sub, limit)
		if err != nil {
			some = beginnings(sub)
		}
		if len(some) == 0 || len(all)*len(some) > limit {
			break
		}
		all = product(all, some)
		if err != nil {
			break
		}
	}
	if slices.Contains(all, "") {
		return nil
	}
	return all
}
