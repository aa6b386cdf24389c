// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads promguard.yml, the file that holds the guard's policy.
// What identifies the process, such as addresses and TLS, is set by flags and is
// not in here; so everything in the file can be reloaded. The package decodes
// strictly: a key that it does not know is an error.
package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/querylimit"
)

// Config is a loaded and validated file.
type Config struct {
	// Policy is what the file asks for, with defaults where it is silent.
	Policy *querylimit.Policy
	// Hash is the SHA-256 of the bytes of the file; of nothing without a file.
	Hash [sha256.Size]byte
}

// HashText returns the hash in hexadecimal, for logs.
func (c *Config) HashText() string { return hex.EncodeToString(c.Hash[:]) }

// HashNumber returns as much of the hash as a float64 holds exactly, for a gauge.
func (c *Config) HashNumber() float64 {
	var n uint64
	for _, b := range c.Hash[:6] {
		n = n<<8 | uint64(b)
	}
	return float64(n)
}

// Load reads the file at path. An empty path means the defaults. Errors begin
// with the path.
func Load(path string) (*Config, error) {
	if path == "" {
		return Parse(nil)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err // It names the path already.
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse reads the text of a file.
func Parse(text []byte) (*Config, error) {
	f := defaults()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainly(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one YAML document: keep one")
	}
	policy, err := querylimit.New(f.options())
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	return &Config{Policy: policy, Hash: sha256.Sum256(text)}, nil
}

// file mirrors promguard.yml.
type file struct {
	Limits limits `yaml:"limits"`
}

type limits struct {
	Deadline       deadlines   `yaml:"deadline"`
	Selectivity    selectivity `yaml:"selectivity"`
	QueryBytes     bound       `yaml:"query_bytes"`
	QueryOperators bound       `yaml:"query_operators"`
	RegexSize      bound       `yaml:"regex_size"`
	RequestBytes   ceiling     `yaml:"request_bytes"`
	Parameters     ceiling     `yaml:"parameters"`
}

type deadlines struct {
	Query    duration `yaml:"query"`
	Metadata duration `yaml:"metadata"`
	Status   duration `yaml:"status"`
}

type selectivity struct {
	Mode           mode     `yaml:"mode"`
	EqualityLabels []string `yaml:"equality_labels"`
}

// bound is a number with a mode.
type bound struct {
	Mode mode `yaml:"mode"`
	Max  int  `yaml:"max"`
}

// ceiling is a number that is always enforced, because it bounds what the guard
// itself holds in memory for a request.
type ceiling struct {
	Max int `yaml:"max"`
}

// duration is written as Prometheus writes durations. Its own UnmarshalYAML
// gives errors the line that they are about.
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := model.ParseDuration(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		return atLine(n, fmt.Errorf("value %q is not a duration: use one such as 30s or 2m, or 0s for no limit", n.Value))
	}
	*d = duration(parsed)
	return nil
}

type mode querylimit.Mode

func (m *mode) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := querylimit.ParseMode(n.Value)
	if err != nil {
		return atLine(n, err)
	}
	*m = mode(parsed)
	return nil
}

func atLine(n *yaml.Node, err error) error {
	return fmt.Errorf("line %d: %w", n.Line, err)
}

func newBound(b querylimit.Bound) bound { return bound{mode(b.Mode), b.Max} }
func (b bound) querylimit() querylimit.Bound {
	return querylimit.Bound{Mode: querylimit.Mode(b.Mode), Max: b.Max}
}

func defaults() file {
	o := querylimit.DefaultOptions()
	return file{Limits: limits{
		Deadline: deadlines{
			Query:    duration(o.Deadlines[querylimit.ClassQuery]),
			Metadata: duration(o.Deadlines[querylimit.ClassMetadata]),
			Status:   duration(o.Deadlines[querylimit.ClassStatus]),
		},
		Selectivity:    selectivity{Mode: mode(o.Selectivity), EqualityLabels: o.EqualityLabels},
		QueryBytes:     newBound(o.QueryBytes),
		QueryOperators: newBound(o.QueryOperators),
		RegexSize:      newBound(o.RegexSize),
		RequestBytes:   ceiling{o.RequestBytesMax},
		Parameters:     ceiling{o.ParametersMax},
	}}
}

func (f *file) options() querylimit.Options {
	var o querylimit.Options
	o.Deadlines[querylimit.ClassQuery] = time.Duration(f.Limits.Deadline.Query)
	o.Deadlines[querylimit.ClassMetadata] = time.Duration(f.Limits.Deadline.Metadata)
	o.Deadlines[querylimit.ClassStatus] = time.Duration(f.Limits.Deadline.Status)
	o.Selectivity = querylimit.Mode(f.Limits.Selectivity.Mode)
	o.EqualityLabels = f.Limits.Selectivity.EqualityLabels
	o.QueryBytes = f.Limits.QueryBytes.querylimit()
	o.QueryOperators = f.Limits.QueryOperators.querylimit()
	o.RegexSize = f.Limits.RegexSize.querylimit()
	o.RequestBytesMax = f.Limits.RequestBytes.Max
	o.ParametersMax = f.Limits.Parameters.Max
	return o
}

var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\w+) (`[^`]*` )?into (\\S+)")
)

// expected says in an operator's words what stands behind the Go types above.
var expected = map[string]string{
	"int":      "an integer",
	"[]string": "a list of label names",
}

// plainly rewrites what the YAML library says of Go types into what an operator
// knows: keys, values and lines.
func plainly(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return err
	}
	lines := make([]string, 0, len(te.Errors))
	for _, text := range te.Errors {
		text = unknownField.ReplaceAllString(text, `unknown key "$1"`)
		text = wrongType.ReplaceAllStringFunc(text, func(s string) string {
			m := wrongType.FindStringSubmatch(s)
			want, ok := expected[m[3]]
			if !ok {
				want = "keys and values"
			}
			return "value " + m[2] + "is of type " + m[1] + ": use " + want
		})
		lines = append(lines, text)
	}
	return errors.New(strings.Join(lines, "; "))
}
