// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"
)

// The head of the tests has 50 series of node_load1 and no sample of more than 20 days ago.
func TestEstimateFollowsTheEngine(t *testing.T) {
	const length, step = 10 * time.Minute, time.Minute // 11 steps
	for text, want := range map[string][3]float64{     // series, held, answer
		`node_load1`:                      {50, 551, 550},
		`node_load1 offset 40d`:           {50, 1, 0},
		`node_load1 offset -5m`:           {50, 551, 550},
		`rate(node_load1[5m])`:            {50, 571, 550},
		`sum(node_load1)`:                 {50, 561, 11},
		`sum by (mode) (node_load1)`:      {50, 649, 99},
		`sum by (nothing) (node_load1)`:   {50, 561, 11},
		`sum without (mode) (node_load1)`: {50, 1100, 550},
		`sum by (mode) (label_replace(node_load1, "", "", "", ""))`: {50, 1100, 550},
		`topk(3, node_load1)`:                                     {50, 924, 33},
		`count_values("v", up{job="api"})`:                        {20, 220 + 20 + 20*11*11, 220},
		`abs(node_load1)`:                                         {50, 1150, 550},
		`node_load1 + up`:                                         {70, 770 + 70 + 220, 220},
		`node_load1 or up`:                                        {70, 770 + 70 + 770, 770},
		`node_load1 * on (a) group_left up`:                       {70, 770 + 70 + 550, 550},
		`max_over_time(node_load1[1h:1m])`:                        {50, 50*71 + 550 + 61, 550},
		`max_over_time(sum(node_load1)[1h:1m])`:                   {50, 50*71 + 71 + 61, 11},
		`count(node_load1 @ end())`:                               {50, 51, 11},
		`histogram_quantile(0.9, sum by (mode, le) (node_load1))`: {50, 649 + 11 + 10, 99},
		`scalar(node_load1)`:                                      {50, 611, 11},
		`1 + 1`:                                                   {0, 35, 11},
	} {
		q := Analyze(text, mustParse(t, text))
		q.parse = testParser.ParseExpr
		at := steps(length, step)
		e := q.estimate(&at, testHead(), 0)
		require.Equal(t, want, [3]float64{e.Series, e.Held, e.Answer}, text)
	}
}

func TestAServerThatIsNewMakesRoomForAllSteps(t *testing.T) {
	q := Analyze("node_load1", mustParse(t, "node_load1"))
	at, h := steps(10*time.Minute, time.Minute), testHead()
	h.Oldest = testNow.Add(-time.Minute)
	require.InDelta(t, 551, q.estimate(&at, h, 0).Held, 0)
	h.Oldest = testNow.Add(time.Minute)
	require.InDelta(t, 1, q.estimate(&at, h, 0).Held, 0)
}

func TestSlicesThatGrowAndLabelsThatAreRewrittenCount(t *testing.T) {
	const most = 20_000
	points, room := make([]promql.FPoint, 1), 1.0
	for n := 2.0; n <= most; n++ {
		before := cap(points)
		if points = append(points, promql.FPoint{}); cap(points) != before {
			room += float64(cap(points))
		}
		require.GreaterOrEqual(t, n+outgrown(n), room, n)
		if n <= 512 {
			require.InDelta(t, n+outgrown(n), room, 0, n)
		}
	}
	at := steps(10*time.Minute, time.Minute)
	for text, more := range map[string]float64{
		`node_load1`: 0, `node_load1 @ end()`: 50 * (31 - 11), `sum(node_load1 @ end())`: 31 - 11, `rate(node_load1[5m] @ end())`: 50 * (31 - 11),
		`max_over_time((node_load1 @ end())[1h:1m])`: 50 * (255 - 71),
		`label_replace(node_load1, "", "", "", "")`:  50 * 20,
	} {
		q := Analyze(text, mustParse(t, text))
		q.parse = testParser.ParseExpr
		e := q.estimate(&at, testHead(), 0)
		require.InDelta(t, more, e.Besides, 0, text)
		require.InDelta(t, max(e.Held, sampleWithText*e.Answer)+more, e.samples(), 0, text)
	}
}

func TestLabelsThatFunctionsMakeCountByTheirBytes(t *testing.T) {
	const series, own = 50, labelsOfSeries
	nest := func(n int) string {
		return strings.Repeat("label_replace(", n) + "node_load1" + strings.Repeat(`, "a", "$1$1$1$1$1$1$1$1$1$1", "a", "(.*)")`, n)
	}
	for text, bytes := range map[string]float64{
		`label_replace(node_load1, "pod", "$1", "instance", "(.*):.*")`:               length("pod", "$1") + usualValue,
		`label_join(node_load1, "a", "-", "b", "c")`:                                  1 + 2*(1+usualValue),
		`label_join(node_load1, "a", ""` + strings.Repeat(`, "instance"`, 5000) + `)`: 1 + 5000*usualValue,
		nest(1): 21 + 10*usualValue,
		nest(2): 21 + 10*usualValue + 21 + 10*(21+10*usualValue),
	} {
		q := Analyze(text, mustParse(t, text))
		at := steps(0, 0)
		e := q.estimate(&at, testHead(), 0)
		answer := bytes
		if text == nest(2) {
			answer = 21 + 10*(21+10*usualValue)
		}
		want := series*own*float64(strings.Count(text, "label_")) + series*(bytes+textOfByte*answer)/bytesPerSample
		require.InDelta(t, want, e.Besides, 1e-6*want, text)
	}
	q := Analyze(nest(6), mustParse(t, nest(6)))
	at := steps(0, 0)
	e := q.estimate(&at, testHead(), 0)
	require.Greater(t, e.Bytes(), int64(1<<30), "10 MB for each of few series")
}

func length(texts ...string) float64 { return float64(len(strings.Join(texts, ""))) }

func TestSeriesTakeTheirPartOfWhatSamplesMayTake(t *testing.T) {
	allowed := func(text string) int {
		r := Request{Endpoint: FindEndpoint("query"), Head: testHead()}
		a := r.asked([]*Query{Analyze(text, mustParse(t, text))}, testNow)
		return counts[countSamples].allowed(newPolicy(t, nil), &a)
	}
	require.InDelta(t, 4980*bytesPerSeries/bytesPerSample, allowed("up")-allowed(`{job="node"}`), 1)
}

func TestRefusalOffersWhatPasses(t *testing.T) {
	set, err := NewRuleset(RulesetOptions{Global: DefaultOptions()})
	require.NoError(t, err)
	offered := map[string]int{}
	found := regexp.MustCompile(`^Ask for (a step of|the last) (\S+), which pass(?:es)?, `)
	for _, text := range []string{`node_cpu_seconds_total`, `sum(rate({job="node"}[5m]))`, `max_over_time(node_cpu_seconds_total[1h:1m])`} {
		for _, length := range []time.Duration{day, 7 * day, 19 * day} {
			for _, step := range []time.Duration{time.Second, time.Minute, time.Hour} {
				head := testHead()
				head.Memory = 512 << 20
				r := Request{
					Endpoint: FindEndpoint("query_range"), Texts: []string{text}, Start: testNow.Add(-length), End: testNow,
					Step: step, Given: true, Limit: -1, Head: head,
				}
				v, err := set.Judge(NewAnalyzer(0), &r, testNow)
				require.NoError(t, err)
				if v.Refusals.Err() == nil {
					continue
				}
				m := found.FindStringSubmatch(v.Refusals[0].Remedy)
				require.NotNil(t, m, "%s: %s", text, v.Refusals[0])
				d, err := model.ParseDuration(m[2])
				require.NoError(t, err)
				offered[m[1]]++
				if m[1] == "the last" {
					r.Start = testNow.Add(-time.Duration(d))
				} else {
					r.Step = time.Duration(d)
				}
				v, err = set.Judge(NewAnalyzer(0), &r, testNow)
				require.NoError(t, err)
				require.NoError(t, v.Refusals.Err(), "%s over %s by %s", text, length, step)
			}
		}
	}
	require.Greater(t, offered["a step of"], 5)
}

func BenchmarkEstimate(b *testing.B) {
	h := testHead()
	for name, text := range map[string]string{
		"typical": `sum by (job) (rate(node_load1{job="node"}[5m])) / on (job) group_left up`,
		"at":      `topk(5, sum by (job) (rate(node_load1[1h] @ end())))`,
		"names":   `{__name__=~"node_.*"}`,
	} {
		q := Analyze(text, mustParse(b, text))
		q.parse = testParser.ParseExpr
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			at := steps(time.Hour, time.Minute)
			for b.Loop() {
				_ = q.estimate(&at, h, 0)
			}
		})
	}
}
