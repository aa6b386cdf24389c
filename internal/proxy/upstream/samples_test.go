// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	scrapes = 15 * time.Second
	stale   = 2 * time.Minute
)

// twoMachines have run for some time, a longer than b, when a proxy is put before
// them. The test goes on between two of its looks: what happens at the moment of one
// may come before it or after it.
func twoMachines(t *testing.T) (g *proxyOf, a, b *machine) {
	t.Helper()
	a = newMachine(scrapes, 0, 10)
	time.Sleep(time.Minute)
	b = newMachine(scrapes, time.Second, 10)
	time.Sleep(time.Hour)
	g = newProxyOf(t, stale, a, b)
	time.Sleep(10*time.Minute + lookEvery/10)
	require.Equal(t, "a", g.chosen(), "it has run longer")
	return g, a, b
}

func TestServerWithFewerSamplesIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		broken func(a *machine)
		within time.Duration
	}{
		"disk full":                 {func(a *machine) { a.full = true }, stale + 3*roundEvery},
		"no target reached":         {func(a *machine) { a.reached = 0 }, stale + 3*roundEvery},
		"a third of targets":        {func(a *machine) { a.reached = .67 }, 3*stale + 4*roundEvery},
		"and with a future sample":  {func(a *machine) { a.full, a.ahead = true, time.Hour }, stale + 3*roundEvery},
		"and its clock is set back": {func(a *machine) { a.reached, a.skew = 0, -10*time.Minute }, stale + 3*roundEvery},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, a, _ := twoMachines(t)
				a.change(func() { tc.broken(a) })
				time.Sleep(tc.within)
				require.Equal(t, "b", g.chosen())
				require.True(t, g.state("a", Behind))
				require.Equal(t, 1, g.switches())
				fresh := newProxyOf(t, stale, g.machines["a"], g.machines["b"])
				time.Sleep(tc.within)
				require.Equal(t, "b", fresh.chosen(), "a proxy that has seen nothing of before")
			})
		})
	}
}

func TestServerWithoutNewSamplesIsLeftAtOnceByANewPromguard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		a.change(func() { a.full = true })
		time.Sleep(time.Hour)
		require.Equal(t, "b", newProxyOf(t, stale, a, b).chosen())
		require.Equal(t, "b", g.chosen())
	})
}

func TestReadsDoNotGoBackToAServerWithAHole(t *testing.T) {
	for name, tc := range map[string]struct{ begin, end func(a *machine) }{
		"disk full":         {func(a *machine) { a.full = true }, func(a *machine) { a.full = false }},
		"no target reached": {func(a *machine) { a.reached = 0 }, func(a *machine) { a.reached = 1 }},
		"hung":              {func(a *machine) { a.hung = true }, func(a *machine) { a.hung = false }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, a, b := twoMachines(t)
				a.change(func() { tc.begin(a) })
				time.Sleep(4 * time.Minute)
				require.Equal(t, "b", g.chosen())
				a.change(func() { tc.end(a) })
				for range 48 {
					time.Sleep(time.Hour)
					require.Equal(t, "b", g.chosen())
				}
				require.False(t, g.state("a", Behind), "what it misses is long ago")

				b.stop()
				time.Sleep(10 * time.Second)
				require.Equal(t, "a", g.chosen(), "it is the only one")
				b.restart()
				time.Sleep(time.Hour)
				require.Equal(t, "a", g.chosen(), "the other one has a newer hole")
				require.Equal(t, 2, g.switches())
			})
		})
	}
}

// After an incident the server that came through it may well be restarted.
func TestShortRestartIsBetterThanALongHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		a.change(func() { a.full = true })
		time.Sleep(10 * time.Minute)
		a.change(func() { a.full = false })
		time.Sleep(10 * time.Minute)
		require.Equal(t, "b", g.chosen())
		b.stop()
		time.Sleep(10 * time.Second)
		require.Equal(t, "a", g.chosen())
		b.restart()
		time.Sleep(2 * settleAfter)
		require.Equal(t, "b", g.chosen(), "it misses seconds, and the other one minutes")
		require.InDelta(t, 10*time.Minute, g.missing("a"), float64(time.Minute))
		require.Less(t, g.missing("b"), 30*time.Second)
	})
}

func TestOfTwoHolesTheSmallerIsBetter(t *testing.T) {
	for second, want := range map[time.Duration]string{4 * time.Minute: "b", 20 * time.Minute: "a"} {
		t.Run(second.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, a, b := twoMachines(t)
				fill := func(m *machine, d time.Duration) {
					m.change(func() { m.full = true })
					time.Sleep(d)
					m.change(func() { m.full = false })
					time.Sleep(30 * time.Minute)
				}
				fill(a, 10*time.Minute)
				require.Equal(t, "b", g.chosen())
				fill(b, second)
				require.Equal(t, want, g.chosen())
				time.Sleep(24 * time.Hour)
				require.LessOrEqual(t, g.switches(), 3)
			})
		})
	}
}

func TestTwoQuickRestartsMoveReadsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		for _, m := range []*machine{a, b} {
			m.stop()
			time.Sleep(lookEvery)
			m.restart()
			time.Sleep(lookEvery) // It has not settled when the other one ends.
		}
		time.Sleep(10 * time.Minute)
		require.Equal(t, "a", g.chosen(), "it runs longer now")
		require.Equal(t, 2, g.switches())
	})
}

func TestReadsGoBackToAServerThatOnlyPromguardDidNotReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, _ := twoMachines(t)
		g.separate("a", true)
		time.Sleep(time.Minute)
		require.Equal(t, "b", g.chosen())
		g.separate("a", false)
		time.Sleep(settleAfter / 2)
		require.Equal(t, "b", g.chosen(), "it settles first")
		time.Sleep(settleAfter)
		require.Equal(t, "a", g.chosen(), "it has no hole, and other proxies never left it")

		a.change(func() { a.mute = true })
		g.separate("a", true)
		time.Sleep(time.Minute)
		g.separate("a", false)
		time.Sleep(time.Hour)
		require.Equal(t, "b", g.chosen(), "nobody knows whether it has one")
	})
}

func TestSampleFromTheFutureMakesNoServerStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		b.change(func() { b.ahead = time.Hour })
		time.Sleep(time.Hour)
		require.Equal(t, "a", g.chosen())
		require.False(t, g.state("a", Behind))
		require.Less(t, g.missing("a"), scrapes)
		require.Equal(t, "a", newProxyOf(t, stale, a, b).chosen())
		require.Zero(t, g.switches())
	})
}

func TestServersThatAreWellAreNeverBehind(t *testing.T) {
	for _, interval := range []time.Duration{5 * time.Second, 15 * time.Second, 37 * time.Second, 50 * time.Second, time.Minute, 100 * time.Second, 2 * time.Minute} {
		for _, groups := range []int{1, 2, 100} {
			for _, skew := range []time.Duration{0, -time.Hour, 10 * time.Minute} {
				t.Run(fmt.Sprint(interval, groups, skew), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						a, b := newMachine(interval, 0, groups), newMachine(interval, interval/3, groups)
						b.skew = skew
						g := newProxyOf(t, stale, a, b) // At a cold start.
						for range 60 * 4 {
							time.Sleep(15 * time.Second)
							require.False(t, g.state("a", Behind) || g.state("b", Behind))
						}
						require.LessOrEqual(t, max(g.missing("a"), g.missing("b")), max(interval, roundEvery))
						require.LessOrEqual(t, g.switches(), 1)
					})
				})
			}
		}
	}
}

func TestColdStartOfOneServerIsNoStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newMachine(MinStaleAfter, 29*time.Second, 1)
		time.Sleep(28 * time.Second)
		b := newMachine(MinStaleAfter, 0, 1)
		g := newProxyOf(t, MinStaleAfter, a, b)
		require.Equal(t, "a", g.chosen())
		time.Sleep(time.Hour)
		require.Equal(t, "a", g.chosen())
		require.Zero(t, g.switches())
	})
}

func TestQuickRestartMovesReadsOnce(t *testing.T) {
	for _, pause := range []time.Duration{time.Millisecond, time.Second, 3 * time.Second, 18 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, a, b := twoMachines(t)
				for i, m := range []*machine{a, b, a, b} {
					m.stop()
					s, err := g.Pick(false)
					require.NoError(t, err)
					g.Failed(s, Away) // A request finds out.
					time.Sleep(pause)
					m.restart()
					time.Sleep(5 * time.Minute)
					require.Equal(t, []string{"b", "a"}[i%2], g.chosen(), "it runs longer now")
					require.Equal(t, i+1, g.switches())
				}
				m := b // Between two looks, with no request.
				m.stop()
				time.Sleep(time.Millisecond)
				m.restart()
				time.Sleep(5 * time.Minute)
				require.Equal(t, "a", g.chosen())
				a.stop()
				time.Sleep(time.Millisecond)
				a.restart()
				time.Sleep(2 * roundEvery)
				require.Equal(t, "b", g.chosen())
				require.Equal(t, 5, g.switches())
			})
		})
	}
}

func TestPromguardsThatBeginLaterChooseTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		for range 3 {
			for _, m := range []*machine{a, b} {
				m.stop()
				time.Sleep(11 * time.Second)
				m.restart()
				time.Sleep(5 * time.Minute)
				require.Equal(t, g.chosen(), newProxyOf(t, stale, a, b).chosen())
			}
		}
	})
}

func TestServerIsGoneAfterTwoLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		s, err := g.Pick(false)
		require.NoError(t, err)
		alive := g.Alive(s)
		a.change(func() { a.hung = true })
		for g.chosen() == "a" {
			time.Sleep(100 * time.Millisecond)
		}
		require.NoError(t, alive.Err(), "a server that is busy may miss one look")
		time.Sleep(lookEveryUnready + lookTimeout)
		synctest.Wait()
		require.Error(t, alive.Err())
		require.False(t, g.Gone())
		b.stop()
		time.Sleep(lookEvery + lookEveryUnready)
		synctest.Wait()
		require.True(t, g.Gone())
		_, err = g.Pick(false)
		require.Error(t, err)
		a.change(func() { a.hung = false })
		time.Sleep(lookTimeout + lookEveryUnready)
		synctest.Wait()
		require.False(t, g.Gone())
		require.NoError(t, g.Alive(s).Err(), "it is another life")
	})
}

func TestNobodyIsGivenUpWhereThereIsNoOtherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a, b := twoMachines(t)
		alive := g.Alive(g.servers[0])
		a.change(func() { a.hung = true })
		b.change(func() { b.hung = true })
		time.Sleep(10 * time.Minute)
		require.NoError(t, alive.Err(), "promguard may be what is slow")
		b.change(func() { b.hung = false })
		time.Sleep(2 * (lookEveryUnready + lookTimeout))
		synctest.Wait()
		require.Error(t, alive.Err())
	})
}

type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func FuzzReading(f *testing.F) {
	f.Add("process_start_time_seconds 1.7e9\nprometheus_tsdb_head_max_time_seconds 1.7e9\nprometheus_tsdb_head_samples_appended_total{type=\"float\"} 1e3\n")
	f.Add("process_start_time_seconds 1\nprometheus_tsdb_head_max_time_seconds NaN\nprometheus_tsdb_head_samples_appended_total +Inf\n")
	f.Fuzz(func(t *testing.T, metrics string) {
		clock := time.Unix(1.7e9, 0)
		server := newServer(&url.URL{}, 1)
		p := &Pool{transport: roundTrips(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {clock.UTC().Format(http.TimeFormat)}}, Body: io.NopCloser(strings.NewReader(metrics))}, nil
		})}
		r, err := p.read(t.Context(), server)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, r.lag, time.Duration(0))
		require.False(t, r.start.IsZero())
		require.GreaterOrEqual(t, r.appended, 0.)
		s := &Server{}
		s.read(r)
		s.read(reading{start: r.start, appended: r.appended / 2})
		require.GreaterOrEqual(t, s.taken, 0.)
	})
}
