// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/promapi"
)

// errTooLarge says that a metric is too large to be counted.
var errTooLarge = errors.New("too large")

// countLarge counts a single name that has more series than a query may read.
func (l *live) countLarge(ctx context.Context, b batch) {
	name := b.Names[0]
	known, ok := l.head.ByName[name]
	if rule := b.rules[0]; ok && l.scopes[rule].wholeNames {
		// Later rules meet none of its series.
		l.counts.ByRule[rule][""] += known
		l.approximate(rule, fmt.Sprintf("of %s all series in memory count, churned ones included", name))
		return
	}
	if err := l.countSample(ctx, b); err != nil {
		l.failed(b, fmt.Errorf("it has up to %d series, more than the %d that a query may read (--max-series): %w", b.Series, l.api.Budget().Series, err))
		return
	}
	for _, rule := range b.rules {
		l.approximate(rule, "counted on a sample of targets and scaled up to the series in memory, churned ones included: how far off that is has no bound")
	}
}

func (l *live) approximate(rule int, what string) {
	if !strings.Contains(l.counts.Approximate[rule], what) {
		l.counts.Approximate[rule] = strings.TrimPrefix(l.counts.Approximate[rule]+"; "+what, "; ")
	}
}

// targetSample are some of the targets of a job, at random.
type targetSample struct {
	instances []string
	// of is how many instances the job has.
	of int
}

// minSample is how many targets a sample has at least.
const (
	minSample = 3
	maxSample = 20
)

// maxScale bounds by how much what a sample stands for may differ from the series in
// memory. A metric that most targets do not have, or whose series are mostly of no
// target in up, is not counted on a sample. Series that have ended are in memory for
// some hours, which explains a factor of a few.
const maxScale = 5

// jobSample is what a sample of a job's targets has of a name.
type jobSample struct {
	dropped map[dropped]float64
	// series are those of the sample, all those of it times scale.
	series, scale float64
}

// countSample counts a name on some targets of each job, and scales that to the
// series that the server says the name has.
func (l *live) countSample(ctx context.Context, b batch) error {
	jobs, err := l.api.Jobs(ctx, b.Names[0])
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		return fmt.Errorf("%w: its series have no job", errTooLarge)
	}
	var parts []jobSample
	total := 0.0
	for _, job := range jobs {
		part, err := l.countJob(ctx, b, job)
		if err != nil {
			return err
		}
		parts = append(parts, part)
		total += part.series * part.scale
	}
	scale := 1.0
	if known := float64(l.head.ByName[b.Names[0]]); known > 0 {
		if scale = known / total; scale > maxScale || scale < 1.0/maxScale {
			return fmt.Errorf("%w: a sample of targets stands for %.0f series of %.0f, so that it says little", errTooLarge, total, known)
		}
	}
	all := map[dropped]float64{}
	for _, part := range parts {
		for of, n := range part.dropped {
			all[of] += n * part.scale * scale
		}
	}
	l.add(all)
	return nil
}

// countJob counts a name on some targets of a job. The error is also that there are
// none of its series.
func (l *live) countJob(ctx context.Context, b batch, job string) (jobSample, error) {
	sample, err := l.sampleOf(ctx, job)
	if err != nil {
		return jobSample{}, err
	}
	if sample.of == 0 {
		return jobSample{}, fmt.Errorf("%w: job %q is not in up, so that there are no targets for a sample", errTooLarge, job)
	}
	// All series may be of this job.
	n := min(len(sample.instances), sample.of*l.api.Budget().Series/b.Series)
	if n < min(minSample, sample.of) {
		return jobSample{}, fmt.Errorf("%w: job %q has %d instances, too few for a sample", errTooLarge, job, sample.of)
	}
	matchers := []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, model.JobLabel, job),
		labels.MustNewMatcher(labels.MatchRegexp, model.InstanceLabel, promapi.OneOf(sample.instances[:n])),
	}
	rows, err := l.api.Query(ctx, fmt.Sprintf("count(%s)", promapi.Selector(b.Names, matchers...)))
	if err != nil {
		return jobSample{}, err
	}
	part := jobSample{scale: float64(sample.of) / float64(n)}
	for _, r := range rows {
		part.series += r.Value
	}
	if part.series == 0 {
		return jobSample{}, fmt.Errorf("%w: the %d targets of job %q that were looked at have none of it", errTooLarge, n, job)
	}
	part.dropped, err = l.query(ctx, b, matchers)
	return part, err
}

// sampleOf chooses targets of a job: not those that come first, which are
// neighbours and alike.
func (l *live) sampleOf(ctx context.Context, job string) (*targetSample, error) {
	if s := l.samples[job]; s != nil {
		return s, nil
	}
	up := promapi.Selector([]string{"up"}, labels.MustNewMatcher(labels.MatchEqual, model.JobLabel, job))
	rows, err := l.api.Query(ctx, fmt.Sprintf("group by (instance) (%s)", up))
	if err != nil {
		return nil, err
	}
	s := &targetSample{of: len(rows)}
	for _, i := range rand.Perm(len(rows))[:min(maxSample, len(rows))] {
		s.instances = append(s.instances, rows[i].Labels.Get(model.InstanceLabel))
	}
	l.samples[job] = s
	return s, nil
}
