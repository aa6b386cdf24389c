// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/promguard/promguard/internal/kubelike"
)

// source is what is scraped besides Prometheus and promguard.
type source struct {
	what    string // a line for people
	handler http.Handler
	jobs    []job
	query   string // one that a Grafana panel might send
	queryIs string // what it asks for
}

// job is a scrape job. Its targets are listed by HTTP service discovery if sd
// is set.
type job struct {
	name        string
	target      *url.URL
	sd          bool
	honorLabels bool
}

// newSource makes the source that the flags ask for.
func newSource(c config) (source, error) {
	if c.Exposition == "" {
		return modelSource(c)
	}
	src := source{query: `sum(scrape_samples_scraped)by(job)`, queryIs: "the samples of each job's last scrape"}
	if u, err := url.Parse(c.Exposition); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		src.what = "scraping " + u.Redacted()
		src.handler = http.NotFoundHandler()
		src.jobs = []job{{name: "exposition", target: u}}
		return src, nil
	}
	files, err := expositionFiles(c.Exposition)
	if err != nil {
		return source{}, err
	}
	mux, samples := http.NewServeMux(), 0
	for _, path := range files {
		n, err := countSamples(path)
		if err != nil {
			return source{}, fmt.Errorf("--exposition: %s is not an exposition in the text format: %w", path, err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".prom")
		route := "/" + url.PathEscape(name) + "/metrics"
		mux.Handle("GET "+route, serveFile(path))
		src.jobs = append(src.jobs, job{name: name, target: &url.URL{Scheme: "http", Host: loopback(c.ExpositionPort), Path: "/" + name + "/metrics"}})
		samples += n
	}
	src.what = fmt.Sprintf("serving %s (jobs %d, samples %d) on http://%s", c.Exposition, len(files), samples, loopback(c.ExpositionPort))
	src.handler = mux
	return src, nil
}

// modelSource is a modelled Kubernetes cluster that starts now.
func modelSource(c config) (source, error) {
	cluster, err := kubelike.New(kubelike.Config{Series: c.Series, Churn: c.Churn, Seed: 1, Start: time.Now()})
	if err != nil {
		return source{}, err
	}
	src := source{
		what:    fmt.Sprintf("serving a modelled Kubernetes cluster of %d series on http://%s", c.Series, loopback(c.ExpositionPort)),
		handler: kubelike.NewHandler(cluster),
		query:   `sum(container_memory_working_set_bytes{image!=""})by(namespace)`, queryIs: "memory by namespace",
	}
	for _, t := range cluster.Targets() {
		if slices.ContainsFunc(src.jobs, func(j job) bool { return j.name == t.Pool }) {
			continue
		}
		src.jobs = append(src.jobs, job{
			name: t.Pool, sd: true, honorLabels: t.HonorLabels,
			target: &url.URL{Scheme: "http", Host: loopback(c.ExpositionPort), Path: "/sd/" + t.Pool},
		})
	}
	return src, nil
}

// expositionFiles are the file itself or the *.prom files of a directory.
func expositionFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("--exposition: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.prom"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("--exposition: %s has no *.prom files", path)
	}
	return files, nil
}

// countSamples parses a file as a scrape would.
func countSamples(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	p, err := textparse.New(b, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return 0, err
	}
	for n := 0; ; {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return 0, errors.New("it has no samples")
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return 0, fmt.Errorf("after %d samples: %w", n, err)
		case entry == textparse.EntrySeries:
			n++
		}
	}
}

// serveFile serves a file as it is, read anew at each scrape.
func serveFile(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		http.ServeFile(w, r, path)
	}
}
