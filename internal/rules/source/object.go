// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// otherObject tells of an object of a kind that this package does not read, unless
// the kind is known to read no series.
func (r *rules) otherObject(doc *yaml.Node, kind, place string) {
	group, _, _ := strings.Cut(text(doc, "apiVersion"), "/")
	if ofKubernetes(group) {
		return
	}
	if line := queryLine(doc); line > 0 {
		r.problem(r.file, place, fmt.Errorf("line %d looks like a query, but how objects of this kind ask is not known to this check", line))
		return
	}
	if slices.Contains(noReaders, group) || slices.Contains(boardKinds, kind) || r.told[group+"/"+kind] {
		return
	}
	r.told[group+"/"+kind] = true
	r.problem(r.file, place, errors.New("objects of this kind are not known to this check, and may read series or install what does (told once for all of them)"))
}

// ofKubernetes reports whether Kubernetes itself defines an API group. Its objects
// have no field for a query; what looks like one, expression, is of CEL.
func ofKubernetes(group string) bool {
	return slices.Contains([]string{"v1", "apps", "batch", "policy", "autoscaling", "extensions"}, group) || strings.HasSuffix(group, ".k8s.io")
}

// noReaders are API groups of which no object reads series, but for those that are
// read and those in which something looks like a query.
var noReaders = []string{
	"monitoring.coreos.com", "keda.sh",
	"cert-manager.io", "acme.cert-manager.io", "external-secrets.io", "source.toolkit.fluxcd.io",
	"networking.istio.io", "security.istio.io", "cilium.io", "crd.projectcalico.org", "projectcalico.org",
	"cluster.x-k8s.io", "karpenter.sh",
}

// boardKinds are kinds of Grafana: dashboards, which Dashboards reads, and such as
// read nothing.
var boardKinds = []string{"GrafanaDashboard", "Dashboard", "Grafana", "GrafanaDatasource", "GrafanaFolder"}

// queryLine returns the line of the first field by a name that queries have, or 0.
func queryLine(n *yaml.Node) int {
	if n = resolve(n); n == nil || n.Kind == yaml.AliasNode {
		return 0
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && isQuery(n.Content[i-1].Value, c) {
			return c.Line
		}
		if c.Kind == yaml.AliasNode {
			continue
		}
		if line := queryLine(c); line > 0 {
			return line
		}
	}
	return 0
}

// sqlQuery begins what asks databases, in configurations of their exporters.
var sqlQuery = regexp.MustCompile(`(?i)^\s*(select|with|show|explain)\s`)

func isQuery(key string, value *yaml.Node) bool {
	key = strings.ToLower(key)
	named := strings.HasSuffix(key, "expr") || strings.HasSuffix(key, "query") || key == "promql" || key == "expression"
	return named && value.Kind == yaml.ScalarNode && value.ShortTag() == "!!str" && value.Value != "" && !sqlQuery.MatchString(value.Value)
}

// configMap reads the files in a ConfigMap that are what this package knows.
func (r *rules) configMap(doc *yaml.Node, place string) {
	pairs(doc, func(key string, value *yaml.Node) { r.embedded(key, value.Value, place+", "+key) }, "data")
	pairs(doc, func(key string, _ *yaml.Node) {
		r.problem(r.file, place+", "+key, errors.New("binary data are not read"))
	}, "binaryData")
}

// secret reads the files in a Secret that are what this package knows. Certificates
// and their like are none.
func (r *rules) secret(doc *yaml.Node, place string) {
	pairs(doc, func(key string, value *yaml.Node) { r.embedded(key, value.Value, place+", "+key) }, "stringData")
	pairs(doc, func(key string, value *yaml.Node) {
		content, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value.Value))
		switch {
		case err != nil:
			r.problem(r.file, place+", "+key, fmt.Errorf("not base64: %w", err))
		case strings.HasPrefix(string(content), "\x1f\x8b"):
			r.problem(r.file, place+", "+key, errors.New("compressed data are not read"))
		case utf8.Valid(content):
			r.embedded(key, string(content), place+", "+key)
		}
	}, "data")
}

// Whether a file in an object holds rules is told by its content: charts give it
// names such as alerts. ruleText finds what may be rules in a text that does not
// parse, boardText what is a dashboard, which Dashboards reads.
var (
	ruleText  = regexp.MustCompile(`(?m)^[\s{-]*["']?groups["']?\s*:`)
	boardText = regexp.MustCompile(`^\s*\{(?s:.*)"(panels|rows|elements)"`)
)

// embedded reads a file that stands in an object.
func (r *rules) embedded(key, content, place string) {
	if boardText.MatchString(content) {
		return
	}
	var asks int
	err := documents([]byte(content), func(inner *yaml.Node) {
		switch kind := text(inner, "kind"); {
		case field(inner, "groups") != nil, isAdapter(inner), slices.Contains(readKinds, kind), strings.HasSuffix(kind, "List"):
			r.document(inner, place)
		case asks == 0 && inner.Kind == yaml.MappingNode:
			asks = queryLine(inner)
		}
	})
	switch {
	case asks > 0:
		r.problem(r.file, place, fmt.Errorf("line %d of it looks like a query, but what kind of file it is is not known to this check", asks))
	case err == nil:
	case hasExtension(key, []string{".yaml", ".yml", ".rules"}), ruleText.MatchString(content):
		r.problem(r.file, place, err)
	}
}

// readKinds are kinds of objects that document reads.
var readKinds = []string{"PrometheusRule", "VMRule", "ConfigMap", "Secret", "HorizontalPodAutoscaler", "ScaledObject", "ScaledJob"}
