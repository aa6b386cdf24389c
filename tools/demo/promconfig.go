// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/url"
	"time"

	"go.yaml.in/yaml/v3"
)

// promConfig is the part of Prometheus' configuration file that is used here.
type promConfig struct {
	Global struct {
		ScrapeInterval time.Duration `yaml:"scrape_interval"`
	} `yaml:"global"`
	ScrapeConfigs []scrapeConfig `yaml:"scrape_configs"`
}

type scrapeConfig struct {
	JobName         string              `yaml:"job_name"`
	HonorLabels     bool                `yaml:"honor_labels"`
	HonorTimestamps bool                `yaml:"honor_timestamps"`
	Scheme          string              `yaml:"scheme,omitempty"`
	MetricsPath     string              `yaml:"metrics_path,omitempty"`
	Params          map[string][]string `yaml:"params,omitempty"`
	BasicAuth       map[string]string   `yaml:"basic_auth,omitempty"`
	StaticConfigs   []staticConfig      `yaml:"static_configs,omitempty"`
	HTTPSDConfigs   []httpSDConfig      `yaml:"http_sd_configs,omitempty"`
}

type staticConfig struct {
	Targets []string `yaml:"targets"`
}

type httpSDConfig struct {
	URL string `yaml:"url"`
}

// prometheusConfig is Prometheus' configuration file: itself, promguard, and
// the source.
func prometheusConfig(c config, src source) ([]byte, error) {
	var pc promConfig
	pc.Global.ScrapeInterval = c.ScrapeInterval
	jobs := append([]job{
		{name: "prometheus", target: &url.URL{Scheme: "http", Host: loopback(c.PrometheusPort), Path: "/metrics"}},
		{name: "promguard", target: &url.URL{Scheme: "http", Host: loopback(c.TelemetryPort), Path: "/metrics"}},
	}, src.jobs...)
	for _, j := range jobs {
		pc.ScrapeConfigs = append(pc.ScrapeConfigs, j.scrapeConfig())
	}
	return yaml.Marshal(pc)
}

func (j job) scrapeConfig() scrapeConfig {
	// Timestamps are not honoured: a saved exposition has those of its day.
	sc := scrapeConfig{JobName: j.name, HonorLabels: j.honorLabels}
	if j.sd {
		sc.HTTPSDConfigs = []httpSDConfig{{URL: j.target.String()}}
		return sc
	}
	sc.Scheme, sc.MetricsPath, sc.Params = j.target.Scheme, j.target.Path, j.target.Query()
	sc.StaticConfigs = []staticConfig{{Targets: []string{j.target.Host}}}
	if u := j.target.User; u != nil {
		password, _ := u.Password()
		sc.BasicAuth = map[string]string{"username": u.Username(), "password": password}
	}
	return sc
}
