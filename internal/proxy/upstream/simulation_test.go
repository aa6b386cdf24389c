// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTwoGuardsChooseWell lets random things happen to two or three servers behind two
// proxies. PROMGUARD_SIMULATIONS is how many schedules to try.
func TestTwoGuardsChooseWell(t *testing.T) {
	n := 12
	if text := os.Getenv("PROMGUARD_SIMULATIONS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	var unlike, all time.Duration
	for seed := range uint64(n) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t, seed)
				s.run()
				unlike, all = unlike+s.unlike, all+time.Since(s.begun)
			})
		})
	}
	t.Logf("the proxies read from different servers for %s of %s", unlike, all)
	require.Less(t, unlike, all/100)
}

type simulation struct {
	*rand.Rand
	*testing.T

	machines   []*machine
	proxies    []*proxyOf
	staleAfter time.Duration
	events     int
	begun      time.Time     // both proxies watch
	apart      bool          // one of them does not reach a server
	unlike     time.Duration // that proxies read from different servers, and not for that
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 0)), T: t, staleAfter: []time.Duration{30 * time.Second, stale}[seed%2]}
	interval := []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second}[s.IntN(3)]
	for range 2 + s.IntN(2) {
		m := newMachine(interval, s.upTo(interval), 1+s.IntN(50))
		m.skew = s.upTo(10*time.Minute) - 5*time.Minute
		s.machines = append(s.machines, m)
		s.Sleep(s.upTo(time.Hour))
	}
	groups := s.machines[0].groups
	for _, m := range s.machines {
		m.change(func() { m.groups = groups }) // They scrape the same.
	}
	s.Sleep(s.upTo(time.Hour))
	for range 2 {
		s.proxies = append(s.proxies, newProxyOf(t, s.staleAfter, s.machines...))
		time.Sleep(s.upTo(10 * time.Second)) // Their looks are at other moments.
	}
	s.begun = time.Now()
	return s
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.Int64N(int64(d))).Truncate(time.Millisecond)
}

// Sleep goes on in steps, and looks at each whether reads go where they can.
func (s *simulation) Sleep(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		synctest.Wait()
		if len(s.proxies) == 2 && !s.apart && s.proxies[0].chosen() != s.proxies[1].chosen() {
			s.unlike += time.Second
		}
	}
}

// reachedIn is after how long a proxy that can reach a server has to read from one: it
// has found out that the one before hangs.
const reachedIn = lookEvery + lookTimeout + time.Second

// well reports whether a proxy reads from a server that answers.
func (s *simulation) well(g *proxyOf) bool {
	some := false
	for i, m := range s.machines {
		host := string(rune('a' + i))
		g.rack.mu.Lock()
		up := !m.down && !m.hung && !m.replaying && !g.cut[host]
		g.rack.mu.Unlock()
		if up && g.chosen() == host {
			return true
		}
		some = some || up
	}
	return !some
}

func (s *simulation) run() {
	for range 12 {
		s.happen(s.IntN(len(s.machines)))
		s.Sleep(s.upTo(20 * time.Minute))
	}
	s.Sleep(5*time.Minute + 10*s.staleAfter)
	for i, g := range s.proxies {
		s.requireBest(i, g)
		// A server that is left may be gone back to, and others may be in between.
		require.LessOrEqual(s, g.switches(), 3*s.events, "proxy %d\n%s", i, g.logs)
	}
	// Two that know the same choose the same, unless a difference is about as large as may
	// be, which each measures for itself.
	require.Equal(s, s.proxies[0].chosen(), s.proxies[1].chosen(), "%s\n%s", s.proxies[0].logs, s.proxies[1].logs)
}

// happen lets something happen to a machine, and end.
func (s *simulation) happen(i int) {
	s.events++
	m, long := s.machines[i], s.upTo(15*time.Minute)
	during := func(begin, end func()) {
		m.change(begin)
		s.Sleep(min(reachedIn, long))
		if long > reachedIn {
			synctest.Wait()
			for _, g := range s.proxies {
				require.True(s, s.well(g), "a server is read from that does not answer")
			}
			s.Sleep(long - reachedIn)
		}
		m.change(end)
	}
	switch s.IntN(8) {
	case 0: // A restart.
		m.stop()
		s.Sleep(s.upTo(20 * time.Second))
		m.restart()
	case 1: // One that nobody may notice.
		m.stop()
		time.Sleep(time.Millisecond)
		m.restart()
	case 2: // One that takes long.
		m.stop()
		s.Sleep(s.upTo(5 * time.Minute))
		m.change(func() { m.replaying = true })
		m.restart()
		during(func() {}, func() { m.replaying = false })
	case 3:
		during(func() { m.full = true }, func() { m.full = false })
	case 4:
		share := s.Float64() * .8
		during(func() { m.reached = share }, func() { m.reached = 1 })
	case 5:
		during(func() { m.hung = true }, func() { m.hung = false })
	case 6:
		ahead := s.upTo(time.Hour)
		during(func() { m.ahead = ahead }, func() { m.ahead = 0 })
	case 7: // One proxy does not reach it.
		g, host := s.proxies[s.IntN(2)], string(rune('a'+i))
		s.apart = true
		g.separate(host, true)
		during(func() {}, func() { g.separate(host, false) })
		s.Sleep(2 * settleAfter)
		s.apart = false
	}
}

// requireBest checks that no other server has all that the chosen one has, and more.
func (s *simulation) requireBest(i int, g *proxyOf) {
	chosen := g.chosen()
	require.NotEmpty(s, chosen)
	m := g.machines[chosen]
	for host, other := range g.machines {
		if other == m {
			continue
		}
		worse, better := s.lacks(m, other), s.lacks(other, m)
		// A round and an interval is what the proxies cannot see.
		unseen := roundEvery + m.interval
		require.False(s, worse > s.staleAfter+unseen && better < unseen,
			"proxy %d reads from %s, which misses %s of what %s has, which misses %s\n%s", i, chosen, worse, host, better, g.logs)
	}
}

// lacks is how much a machine misses of what another one took in since the proxies
// began, as time: the worst of all times up to now.
func (s *simulation) lacks(m, other *machine) time.Duration {
	m.change(func() {})
	other.change(func() {})
	perSecond := float64(m.groups) * samplesEach / m.interval.Seconds()
	begin := int(s.begun.Sub(epoch) / time.Second)
	worst, sum := 0.0, 0.0
	for second := max(len(m.taken), len(other.taken)) - 1; second >= begin; second-- {
		sum += at(other.taken, second) - at(m.taken, second)
		age := float64(max(len(m.taken), len(other.taken)) - second)
		worst = max(worst, sum/perSecond-fade*age)
	}
	return time.Duration(worst * float64(time.Second))
}

func at(list []float64, i int) float64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}
