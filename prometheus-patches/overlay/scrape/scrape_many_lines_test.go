// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"
)

// BenchmarkScrapeOfManyLines scrapes 112,000 lines of containers into a head, as they
// were and with a tenth of the containers replaced.
func BenchmarkScrapeOfManyLines(b *testing.B) {
	for _, churn := range []int{0, 10} {
		b.Run(fmt.Sprintf("churn=%d%%", churn), func(b *testing.B) {
			target := &Target{labels: labels.FromStrings("instance", "10.0.0.1:10250", "job", "kubelet", "metrics_path", "/metrics/cadvisor", "node", "node-1")}
			sl, scraper := newTestScrapeLoop(b, withAppendable(teststorage.New(b), true), func(sl *scrapeLoop) {
				sl.fallbackScrapeProtocol = "text/plain"
				sl.sampleMutator = func(l labels.Labels) labels.Labels { return mutateSampleLabels(l, target, true, nil) }
			})
			var text bytes.Buffer
			scraper.scrapeFunc = func(_ context.Context, w io.Writer) error {
				_, err := io.Copy(w, io.LimitReader(bytes.NewReader(text.Bytes()), int64(text.Len())))
				return err
			}
			ts := time.Now().Truncate(2 * time.Hour)
			n, cpu := 0, time.Duration(0)
			scrape := func() {
				writeContainers(&text, 1867, n, churn)
				n++
				ts = ts.Add(15 * time.Second)
				before := processorTime(b)
				b.StartTimer()
				sl.scrapeAndReport(time.Time{}, ts, nil)
				b.StopTimer()
				cpu += processorTime(b) - before
				require.NoError(b, scraper.lastError)
			}
			b.StopTimer()
			scrape()
			scrape()
			runtime.GC()
			b.ResetTimer()
			cpu = 0
			for range b.N {
				scrape()
			}
			b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-sec/op")
		})
	}
}

// processorTime is that of the process, its garbage collector included.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writeContainers writes 60 counters of each container. In each scrape so many percent
// of the containers are new.
func writeContainers(out *bytes.Buffer, containers, scrape, churn int) {
	out.Reset()
	for m := range 60 {
		fmt.Fprintf(out, "# TYPE container_metric_%d_total counter\n", m)
		for c := range containers {
			id := c
			if churn > 0 {
				id += containers * ((scrape + c%(100/churn)) / (100 / churn))
			}
			fmt.Fprintf(out, `container_metric_%d_total{container="app-%d",id="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope",image="registry.example.org/team-%d/app@sha256:%064x",name="%064x",namespace="namespace-%d",pod="some-deployment-%010x-%05x"} %d`+"\n",
				m, c%20, id, id, c%40, c%400, id, c%200, id/10, id, scrape*(m+c))
		}
	}
}
