// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/promguard/promguard/internal/image"
)

// product is what goes into an image beside the base files.
type product struct {
	// binaries are the names below /bin.
	binaries []string
	// title and description are for the image's labels.
	title, description string
	config             v1.Config
	// labels are those of the product alone.
	labels map[string]string
	// files are those of the product but for the binaries and the licences of
	// modules, from the directory of its source.
	files func(source string) []image.File
	// upstream is the module that was patched; "" for none.
	upstream string
}

// The contract of upstream's image, as the Dockerfile of the pinned release has
// it; a test compares the two. What is there after a COPY is in files.
var prometheus = product{
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
	labels: map[string]string{
		"maintainer":                  authors,
		"io.prometheus.image.variant": "promguard",
	},
	files: func(source string) []image.File {
		return []image.File{
			image.Dir("/etc/prometheus", 0o755, nobody, nobody),
			owned(image.Copy("/etc/prometheus/prometheus.yml", 0o644, filepath.Join(source, "documentation/examples/prometheus.yml"))),
			image.Copy("/LICENSE", 0o644, filepath.Join(source, "LICENSE")),
			image.Copy("/NOTICE", 0o644, filepath.Join(source, "NOTICE")),
			// As upstream's: a process in nobody's group may write, whatever its user.
			image.Dir("/prometheus", 0o775, nobody, nobody),
		}
	},
	upstream: "github.com/prometheus/prometheus",
}

// The guard keeps nothing on disk. Its user is a number, which kubelet can see
// is not root.
var promguard = product{
	binaries:    []string{"promguard"},
	title:       "promguard",
	description: "A reverse proxy between Grafana and Prometheus that refuses what would hurt the server, and says what to ask instead",
	config: v1.Config{
		User:         fmt.Sprintf("%d:%d", nobody, nobody),
		ExposedPorts: map[string]struct{}{"9091/tcp": {}},
		WorkingDir:   "/",
		Entrypoint:   []string{"/bin/promguard"},
		Cmd:          []string{"serve"},
	},
	files: func(source string) []image.File {
		return []image.File{
			image.Dir("/etc/promguard", 0o755, 0, 0),
			image.Copy("/LICENSE", 0o644, filepath.Join(source, "LICENSE")),
			image.Copy("/NOTICE", 0o644, filepath.Join(source, "NOTICE")),
		}
	},
}

const (
	authors = "The promguard Authors"
	home    = "https://github.com/promguard/promguard"
	// defaultPath is what images have that are based on a system.
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

func owned(f image.File) image.File {
	f.UID, f.GID = nobody, nobody
	return f
}
