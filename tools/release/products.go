// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// product is what an image and an archive hold beside licences.
type product struct {
	name     string
	binaries []string // Of the image and of the archive.
	archived []string // Of the archive alone.
	// title and description are for the image's labels.
	title, description string
	config             v1.Config
	// labels are those of this product alone.
	labels map[string]string
	// files are those of the image but for binaries and licences.
	files []file
	// patched says that the source is the patched Prometheus, and not this repository.
	patched bool
}

// source is the directory of the module that a product was built from.
func (r release) source(p product) string {
	if p.patched {
		return r.tree
	}
	return r.root
}

// nobody is the number that upstream's image has for its user.
const nobody = 65534

// products returns both. The contract of the patched Prometheus's image is that of
// the Dockerfile of the pinned release; a test compares the two. promguard keeps
// nothing on disk, and its user is a number, which kubelet can see is not root.
func (r release) products() []product {
	return []product{{
		name:        "prometheus",
		binaries:    []string{"prometheus", "promtool"},
		title:       "Prometheus, patched by promguard",
		description: "The Prometheus monitoring system and time series database, with limits on what reads may cost, faster restarts and default drop rules",
		config: v1.Config{
			User:         "nobody",
			ExposedPorts: map[string]struct{}{"9090/tcp": {}},
			Volumes:      map[string]struct{}{"/prometheus": {}},
			WorkingDir:   "/prometheus",
			Entrypoint:   []string{"/bin/prometheus"},
			Cmd:          []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"},
		},
		labels: map[string]string{"maintainer": authors, "io.prometheus.image.variant": "promguard"},
		files: []file{
			{path: "etc/prometheus/", mode: 0o755, owner: nobody},
			{path: "etc/prometheus/prometheus.yml", mode: 0o644, owner: nobody, source: filepath.Join(r.tree, exampleConfig)},
			// A process in nobody's group may write, whatever its user.
			{path: "prometheus/", mode: 0o775, owner: nobody},
		},
		patched: true,
	}, {
		name:        "promguard",
		binaries:    []string{"promguard"},
		archived:    []string{"walreplay"},
		title:       "promguard",
		description: "A reverse proxy between Grafana and Prometheus that refuses what would hurt the server, and says what to ask instead",
		config: v1.Config{
			User:         "65534:65534",
			ExposedPorts: map[string]struct{}{"9091/tcp": {}},
			WorkingDir:   "/",
			Entrypoint:   []string{"/bin/promguard"},
			Cmd:          []string{"serve"},
		},
		files: []file{{path: "etc/promguard/", mode: 0o755}},
	}}
}

const (
	authors       = "The promguard Authors"
	home          = "https://github.com/promguard/promguard"
	exampleConfig = "documentation/examples/prometheus.yml"
)

// system is what a process needs of a system: accounts, as far as upstream's base
// image has them too, a place for temporary files, and the roots that TLS
// connections are checked against.
func system() []file {
	return []file{
		{path: "tmp/", mode: 0o1777},
		{path: "home/", mode: 0o755},
		textFile("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"),
		textFile("etc/group", "root:x:0:\nnobody:x:65534:\n"),
		// Names are looked up in /etc/hosts before DNS.
		textFile("etc/nsswitch.conf", "hosts: files dns\n"),
		textFile("etc/ssl/certs/ca-certificates.crt", certificates()),
	}
}

// certificates are Mozilla's root certificates, as the pinned module has them.
// Those that are trusted up to a date or for some names only are left out: a
// file of certificates cannot say so.
func certificates() string {
	var out strings.Builder
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.String()
}
