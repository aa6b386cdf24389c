// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !slicelabels && !dedupelabels

package scrape

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promguard/ingest"
	"github.com/prometheus/prometheus/storage"
)

func TestAScrapeWithALabelThatIsTooLongFailsAndTheServerGoesOn(t *testing.T) {
	long := strings.Repeat("x", 1<<24)
	doubled := func(sl *scrapeLoop) {
		double := &relabel.Config{
			SourceLabels: model.LabelNames{"l"}, Regex: relabel.MustNewRegexp("(.*)"), TargetLabel: "l", Replacement: "$1$1",
			Action: relabel.Replace, NameValidationScheme: model.UTF8Validation,
		}
		sl.sampleMutator = func(l labels.Labels) labels.Labels {
			lb := labels.NewBuilder(l)
			relabel.ProcessBuilder(lb, double)
			return lb.Labels()
		}
	}
	for name, c := range map[string]struct {
		body, contentType string
		change            func(*scrapeLoop)
	}{
		"value in text":          {body: "a 1\nb{l=\"" + long + "\"} 1\n", contentType: "text/plain"},
		"name of metric":         {body: "a 1\n" + long + " 1\n", contentType: "text/plain"},
		"name of label":          {body: "a 1\nb{" + long + "=\"v\"} 1\n", contentType: "text/plain"},
		"value in OpenMetrics":   {body: "a 1\nb{l=\"" + long + "\"} 1\n# EOF\n", contentType: "application/openmetrics-text"},
		"exemplar":               {body: "a 1\nb_total 1 # {l=\"" + long + "\"} 1\n# EOF\n", contentType: "application/openmetrics-text"},
		"value in protobuf":      {body: family(t, "b", long), contentType: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"},
		"doubled by relabelling": {body: "a 1\nb{l=\"" + long[:1<<23] + "\"} 1\n", contentType: "text/plain", change: doubled},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefusing(t, ingest.Options{})
			if c.change != nil {
				c.change(r.sl)
			}
			_, _, _, err := appendOnce(r, c.body, c.contentType)
			require.ErrorAs(t, err, new(labels.TooLongError))
			require.Zero(t, r.db.Head().NumSeries(), "what was before it in the scrape is rolled back")

			samples := r.scrape("a 1\n")
			require.EqualValues(t, 1, samples[`{__name__="a"}`])
			require.EqualValues(t, 1, samples[`{__name__="up"}`])
		})
	}
}

func appendOnce(r *refusing, body, contentType string) (total, added, seriesAdded int, err error) {
	app := r.sl.appender()
	defer func() { require.NoError(r.t, app.(storage.AppenderTransaction).Rollback()) }()
	known := r.sl.cache.lines.kept.n
	total, added, seriesAdded, err = app.append([]byte(body), contentType, r.at)
	r.sl.cache.appendFailed(known)
	r.sl.cache.iterDone(false)
	return total, added, seriesAdded, err
}

func TestATargetWithALabelThatIsTooLongIsAnError(t *testing.T) {
	cfg := &config.ScrapeConfig{ScrapeInterval: model.Duration(time.Minute), ScrapeTimeout: model.Duration(time.Second)}
	_, err := PopulateLabels(labels.NewBuilder(labels.EmptyLabels()), cfg,
		model.LabelSet{model.AddressLabel: "a:1", "l": model.LabelValue(strings.Repeat("x", 1<<24))}, nil)
	require.ErrorAs(t, err, new(labels.TooLongError))
}
