// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads promguard.yml, the file that holds promguard's policy.
// What identifies the process, such as addresses and TLS, is set by flags and is
// not in here; so everything in the file can be reloaded. The package decodes
// strictly: a key that it does not know is an error. It reports every error that
// it finds, each with its line.
package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// Config is a loaded and validated file.
type Config struct {
	// Rules holds the limits, of everybody, of tenants and of what rules match,
	// with defaults where the file is silent.
	Rules *querylimit.Ruleset
	// Identity says whose headers are believed.
	Identity *identity.Source
	// Admission says how many requests go to the server at a time, and Collapse
	// whether identical ones are sent once.
	Admission admission.Options
	Collapse  bool
	// Open names the endpoints that are open besides those that always are.
	Open []string
	// PageUsers are who may see the page where the API is served.
	PageUsers []string
	// QueryLog says which requests are written, and where.
	QueryLog querylog.Options
	// Tracing says where spans are sent; without an endpoint, nowhere.
	Tracing promconfig.TracingConfig
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

// Load reads the file at path. An empty path means the defaults. An error is an
// Errors, each of which begins with the path, or that of reading the file.
func Load(path string) (*Config, error) {
	if path == "" {
		return Parse(nil)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err // It names the path already.
	}
	c, errs := parse(text)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	c.Tracing.SetDirectory(filepath.Dir(path))
	return c, nil
}

// Errors are all that is wrong with a file, in the order of its lines.
type Errors []error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "; ")
}

// Unwrap lets errors.Is and errors.As look at each.
func (e Errors) Unwrap() []error { return e }

// Parse reads the text of a file. An error is an Errors.
func Parse(text []byte) (*Config, error) {
	c, errs := parse(text)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

func parse(text []byte) (*Config, Errors) {
	root, err := document(text)
	if err != nil {
		return nil, Errors{err}
	}
	f := file{
		global: querylimit.DefaultOptions(), tenants: map[string][]querylimit.Override{},
		admission: admission.DefaultOptions(), collapse: true,
		queryLog: querylog.Options{SlowerThan: time.Second},
	}
	f.admission.Tenants = map[string]int{}
	var d decoder
	if root != nil {
		f.decode(&d, root)
	}
	for _, check := range d.later {
		check(f.global)
	}
	if len(d.errs) > 0 {
		return nil, d.sorted()
	}
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: f.global, Tenants: f.tenants, Rules: f.rules})
	if err != nil {
		return nil, Errors{err}
	}
	if err := f.admission.Validate(); err != nil {
		return nil, Errors{fmt.Errorf("admission: %w", err)}
	}
	return &Config{Rules: rules, Identity: identity.NewSource(f.peers, f.tenantHeader, f.passHeaders...), Admission: f.admission, Collapse: f.collapse, Open: f.open, PageUsers: f.pageUsers, QueryLog: f.queryLog, Tracing: f.tracing, Hash: sha256.Sum256(text)}, nil
}

// document returns the root of the only document of a file, or nil if it is
// empty.
func document(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one YAML document: keep one")
	}
	if root := doc.Content[0]; root.Tag != "!!null" {
		return root, nil
	}
	return nil, nil
}

// file is what promguard.yml says.
type file struct {
	global       querylimit.Options
	tenants      map[string][]querylimit.Override
	rules        []querylimit.Rule
	peers        []netip.Prefix
	tenantHeader string
	passHeaders  []string
	admission    admission.Options
	collapse     bool
	open         []string
	pageUsers    []string
	queryLog     querylog.Options
	tracing      promconfig.TracingConfig
}

func (f *file) decode(d *decoder, root *yaml.Node) {
	d.keys(root, keys{
		"limits": func(n *yaml.Node) {
			for _, change := range decodeLimits(d, n, levelGlobal) {
				change(&f.global)
			}
		},
		"identity": func(n *yaml.Node) { f.decodeIdentity(d, n) },
		"tenants": func(n *yaml.Node) {
			d.pairs(n, "names of tenants", func(key, value *yaml.Node) {
				if key.Value == "" {
					d.errorf(key, "a tenant needs a name")
				}
				if value.ShortTag() == "!!null" {
					return
				}
				d.keys(value, keys{
					"limits": func(n *yaml.Node) { f.tenants[key.Value] = decodeLimits(d, n, levelTenant) },
					"permits": func(n *yaml.Node) {
						if permits, ok := d.atLeast(n, 1); ok {
							f.admission.Tenants[key.Value] = permits
						}
					},
				})
			})
		},
		"admission": func(n *yaml.Node) { f.decodeAdmission(d, n) },
		"open":      func(n *yaml.Node) { f.open = decodeOpen(d, n) },
		"page": func(n *yaml.Node) {
			d.keys(n, keys{"users": func(n *yaml.Node) {
				d.list(n, "a list of users", func(n *yaml.Node) {
					if n.Value == "" {
						d.errorf(n, "a user needs a name")
					}
					f.pageUsers = append(f.pageUsers, d.text(n))
				})
			}})
		},
		"cache": func(n *yaml.Node) {
			d.errorf(n, "promguard has no cache of answers: remove cache, and use the Query Frontend of Thanos, that of Mimir, or Trickster")
		},
		"query_log": func(n *yaml.Node) {
			d.keys(n, keys{
				"file":        func(n *yaml.Node) { f.queryLog.File = d.text(n) },
				"slower_than": func(n *yaml.Node) { f.queryLog.SlowerThan = d.duration(n, "all") },
				"sample":      func(n *yaml.Node) { f.queryLog.Sample = d.fraction(n) },
				"redact":      func(n *yaml.Node) { f.queryLog.Redact = d.boolean(n) },
			})
		},
		"tracing": func(n *yaml.Node) { decodeTracing(d, n, &f.tracing) },
		"rules":   func(n *yaml.Node) { f.rules = decodeRules(d, n) },
	})
}

func (f *file) decodeIdentity(d *decoder, n *yaml.Node) {
	d.keys(n, keys{
		"peers": func(n *yaml.Node) {
			d.list(n, "a list of networks", func(n *yaml.Node) {
				p, err := identity.ParsePeer(d.text(n))
				d.check(n, err)
				f.peers = append(f.peers, p)
			})
		},
		"tenant_header": func(n *yaml.Node) {
			f.tenantHeader = d.text(n)
			d.check(n, identity.ValidateHeader(f.tenantHeader))
		},
		"pass_headers": func(n *yaml.Node) {
			d.list(n, "a list of headers", func(n *yaml.Node) {
				name := d.text(n)
				d.check(n, identity.ValidatePassing(name))
				f.passHeaders = append(f.passHeaders, name)
			})
		},
	})
}

func (f *file) decodeAdmission(d *decoder, n *yaml.Node) {
	number := func(into *int, least int) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if value, ok := d.atLeast(n, least); ok {
				*into = value
			}
		}
	}
	classes := keys{}
	for _, c := range admission.Classes() {
		classes[c.String()] = func(n *yaml.Node) {
			d.keys(n, keys{"weight": number(&f.admission.Classes[c].Weight, 1), "max": number(&f.admission.Classes[c].Max, 0)})
		}
	}
	d.keys(n, keys{
		"max":          number(&f.admission.Max, 0),
		"tenant_max":   number(&f.admission.TenantMax, 0),
		"queue":        number(&f.admission.Queue, 0),
		"tenant_queue": number(&f.admission.TenantQueue, 0),
		"replicas":     number(&f.admission.Replicas, 1),
		"wait":         func(n *yaml.Node) { f.admission.Wait = d.duration(n, "not at all") },
		"classes":      func(n *yaml.Node) { d.keys(n, classes) },
		"collapse":     func(n *yaml.Node) { f.collapse = d.boolean(n) },
	})
}
