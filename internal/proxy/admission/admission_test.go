// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(change func(*Options)) Options {
	o := DefaultOptions()
	change(&o)
	return o
}

func TestWithoutAMaximumEverythingIsAdmittedAtOnce(t *testing.T) {
	c := New(DefaultOptions())
	for range 1000 {
		_, err := c.Acquire(t.Context(), "a", Status, Need{}, nil)
		require.NoError(t, err)
	}
	held, queued := c.Usage(Status)
	require.Equal(t, [2]int{1000, 0}, [2]int{held, queued})
}

func TestRequestWaitsForAPermitAndNotLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max, o.Wait = 1, 5*time.Second }))
		release, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		time.AfterFunc(3*time.Second, release)
		start := time.Now()
		second, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))

		start = time.Now()
		_, err = c.Acquire(t.Context(), "b", Query, Need{}, nil)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.EqualError(t, err, "the server has 1 requests in flight, which is all that may be, and none ended within 5s")
		var shed *Shed
		require.ErrorAs(t, err, &shed)
		require.False(t, shed.Tenant)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Acquire(ctx, "b", Query, Need{}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		second()
		second() // Twice does not make two.
		require.Empty(t, c.tenants, "names of tenants do not pile up")
		require.Zero(t, c.held)
	})
}

func TestTenantOverItsLimitIsToldSoAndDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max, o.TenantMax, o.Tenants = 10, 2, map[string]int{"big": 3} }))
		for range 2 {
			_, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
			require.NoError(t, err)
		}
		_, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		var shed *Shed
		require.ErrorAs(t, err, &shed)
		require.True(t, shed.Tenant)
		require.EqualError(t, err, "the tenant has 2 requests in flight, which is all that may be, and none ended within 10s")

		go func() { _, _ = c.Acquire(context.WithoutCancel(t.Context()), "a", Alerts, Need{}, nil) }()
		synctest.Wait()
		start := time.Now()
		for range 3 {
			_, err := c.Acquire(t.Context(), "big", Query, Need{}, nil)
			require.NoError(t, err, "though one of a heavier class waits for its tenant")
		}
		require.Zero(t, time.Since(start))
		time.Sleep(time.Minute) // Until nobody waits.
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max, o.Queue, o.TenantQueue = 1, 3, 2 }))
		release, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		for _, tenant := range []string{"a", "a", "b"} {
			go func() {
				if release, err := c.Acquire(t.Context(), tenant, Query, Need{}, nil); err == nil {
					release()
				}
			}()
			synctest.Wait()
		}
		start := time.Now()
		for _, tenant := range []string{"a", "c"} {
			_, err = c.Acquire(t.Context(), tenant, Query, Need{}, nil)
			require.EqualError(t, err, "the server has 1 requests in flight, which is all that may be, and the queue is full")
		}
		require.Zero(t, time.Since(start))
		release()
	})
}

// served queues n requests of each class and tenant, and returns the order in
// which they get the one permit.
func served(t *testing.T, c *Controller, tenants []string, n int) []string {
	t.Helper()
	release, err := c.Acquire(t.Context(), "first", Query, Need{}, nil)
	require.NoError(t, err)
	var (
		mu    sync.Mutex
		order []string
	)
	for _, class := range []Class{Status, Metadata, Query, Alerts} {
		for range n {
			for _, tenant := range tenants {
				go func() {
					release, err := c.Acquire(context.WithoutCancel(t.Context()), tenant, class, Need{}, nil)
					if err != nil {
						return
					}
					mu.Lock()
					order = append(order, class.String()+" "+tenant)
					mu.Unlock()
					release()
				}()
				synctest.Wait()
			}
		}
	}
	release()
	synctest.Wait()
	return order
}

func TestClassesAreServedByWeightAndNoneStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max = 1 }))
		order := served(t, c, []string{"a"}, 15)
		require.Len(t, order, 60)
		counts := map[string]int{}
		for _, who := range order[:30] {
			counts[who]++
		}
		// 8 : 4 : 2 : 1, until the alerts are through.
		require.Equal(t, map[string]int{"alerts a": 15, "query a": 9, "metadata a": 4, "status a": 2}, counts)
	})
}

// A class is served by its weight from when it comes, whatever it was given while
// nobody else waited.
func TestClassThatWasAloneForLongIsServedByItsWeightAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max, o.Queue, o.TenantQueue, o.Wait = 1, 1000, 1000, time.Hour }))
		var (
			mu    sync.Mutex
			order []Class
			wg    sync.WaitGroup
		)
		queue := func(class Class, n int) {
			for range n {
				wg.Go(func() {
					release, err := c.Acquire(context.WithoutCancel(t.Context()), "a", class, Need{}, nil)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, class)
					mu.Unlock()
					time.Sleep(time.Second)
					release()
				})
			}
			synctest.Wait()
		}
		queue(Alerts, 801)
		wg.Wait()
		order = nil

		queue(Status, 61)
		queue(Alerts, 40)
		wg.Wait()
		counts := map[Class]int{}
		for _, class := range order[:45] {
			counts[class]++
		}
		require.GreaterOrEqual(t, counts[Alerts], 38, "8 : 1, from the start: %v", order[:45])
	})
}

func TestFullQueueOfAClassOrATenantHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max, o.Queue, o.TenantQueue, o.Wait = 1, 3, 2, time.Hour }))
		hold, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		admitted, full := 0, 0
		var mu sync.Mutex
		ask := func(tenant string, class Class) {
			go func() {
				release, err := c.Acquire(context.WithoutCancel(t.Context()), tenant, class, Need{}, nil)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					full++
					return
				}
				admitted++
				release()
			}()
			synctest.Wait()
		}
		for _, tenant := range []string{"a", "a", "a", "b", "b"} {
			ask(tenant, Status)
		}
		require.Equal(t, 2, full, "the third of a tenant, and the fourth of the class")
		ask("a", Alerts)
		ask("b", Query)
		require.Equal(t, 2, full)
		hold()
		synctest.Wait()
		require.Equal(t, 5, admitted)
		require.Empty(t, c.tenants)
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max = 1 }))
		var queries []string
		for _, who := range served(t, c, []string{"a", "a", "a", "b"}, 3) {
			if who == "query a" || who == "query b" {
				queries = append(queries, who[len(who)-1:])
			}
		}
		require.Equal(t, []string{"a", "b", "a", "b", "a", "b", "a", "a", "a", "a", "a", "a"}, queries)
	})
}

func TestClassMayHoldNoMoreThanItsMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max, o.Classes[Metadata].Max, o.Wait = 3, 1, time.Second }))
		_, err := c.Acquire(t.Context(), "a", Metadata, Need{}, nil)
		require.NoError(t, err)
		_, err = c.Acquire(t.Context(), "b", Metadata, Need{}, nil)
		require.Error(t, err)
		_, err = c.Acquire(t.Context(), "a", Alerts, Need{}, nil)
		require.NoError(t, err)
	})
}

func TestNewOptionsAdmitThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max = 1 }))
		_, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { c.SetOptions(options(func(o *Options) { o.Max = 2 })) })
		start := time.Now()
		_, err = c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestBoundsHoldUnderLoadAndEveryPermitComesBack(t *testing.T) {
	opts := options(func(o *Options) {
		o.Max, o.TenantMax, o.Classes[Metadata].Max, o.Wait = 8, 3, 4, 20*time.Millisecond
		o.Queue, o.TenantQueue = 4, 2 // So that some find the queue full.
	})
	c := New(opts)
	var (
		wg            sync.WaitGroup
		all, metadata atomic.Int32
		tenants       [4]atomic.Int32
	)
	for range 32 {
		wg.Go(func() {
			for range 200 {
				tenant, class := rand.IntN(4), Class(rand.IntN(int(NumClasses)))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30))*time.Millisecond)
				release, err := c.Acquire(ctx, strconv.Itoa(tenant), class, Need{}, nil)
				cancel()
				if err != nil {
					continue
				}
				over := all.Add(1) > 8 || tenants[tenant].Add(1) > 3 || class == Metadata && metadata.Add(1) > 4
				if over {
					t.Error("more permits than allowed")
				}
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				all.Add(-1)
				tenants[tenant].Add(-1)
				if class == Metadata {
					metadata.Add(-1)
				}
				release()
			}
		})
	}
	wg.Wait()
	require.Zero(t, c.held)
	require.Empty(t, c.tenants)
	for _, class := range Classes() {
		held, queued := c.Usage(class)
		require.Equal(t, [2]int{}, [2]int{held, queued})
		require.Empty(t, c.classes[class].turns)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"a bound is negative": func(o *Options) { o.Queue = -1 },
		"class query has weight 0 and max 0: use a weight of at least 1": func(o *Options) { o.Classes[Query].Weight = 0 },
		`tenant "a" has 0 permits: use at least 1`:                       func(o *Options) { o.Tenants = map[string]int{"a": 0} },
	} {
		o := options(change)
		require.ErrorContains(t, o.Validate(), want)
	}
	o := DefaultOptions()
	require.NoError(t, o.Validate())
}

func BenchmarkAcquire(b *testing.B) {
	c := New(options(func(o *Options) { o.Max, o.TenantMax = 100, 50 }))
	b.ReportAllocs()
	for b.Loop() {
		release, err := c.Acquire(b.Context(), "a", Query, Need{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func TestMemoryIsReservedAndWhoFindsNoneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Wait = 5 * time.Second }))
		acquire := func(class Class, bytes int64) (func(), time.Duration, error) {
			start := time.Now()
			release, err := c.Acquire(t.Context(), "a", class, Need{Bytes: bytes}, nil)
			return release, time.Since(start), err
		}
		_, _, err := acquire(Query, 1<<40)
		require.NoError(t, err, "nobody knows what the server has")
		c = New(options(func(o *Options) { o.Wait = 5 * time.Second }))
		c.SetRoom(100 << 20)
		alone, _, err := acquire(Query, 1<<40)
		require.NoError(t, err, "one alone always has room")
		_, _, err = acquire(Query, LightBytes-1)
		require.NoError(t, err, "a light one takes none")
		_, _, err = acquire(Alerts, 50<<20)
		require.NoError(t, err, "an alert never waits")
		_, waited, err := acquire(Query, 10<<20)
		require.Equal(t, 5*time.Second, waited)
		require.EqualError(t, err, "requests in flight take the memory that the server has for them, and none ended within 5s")
		time.AfterFunc(3*time.Second, alone)
		second, waited, err := acquire(Query, 50<<20)
		require.NoError(t, err, "50 MiB are the alert's")
		require.Equal(t, 3*time.Second, waited)
		_, _, err = acquire(Query, 10<<20)
		require.Error(t, err)
		second()
		room, taken := c.Room()
		require.Equal(t, [2]int64{100 << 20, 50 << 20}, [2]int64{room, taken})
	})
}

func TestLightRequestDoesNotWaitBehindAHeavyOneOfItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max = 2 }))
		c.SetRoom(100 << 20)
		heavy := Need{Bytes: 80 << 20}
		first, err := c.Acquire(t.Context(), "a", Query, heavy, nil)
		require.NoError(t, err)
		go func() {
			if release, err := c.Acquire(t.Context(), "a", Query, heavy, nil); err == nil {
				release()
			}
		}()
		synctest.Wait()
		other, err := c.Acquire(t.Context(), "b", Query, Need{}, nil)
		require.NoError(t, err)
		time.AfterFunc(time.Second, other)
		light, err := c.Acquire(t.Context(), "a", Query, Need{}, nil)
		require.NoError(t, err)
		light()
		first()
	})
}

func TestReplicasDivideTheMemory(t *testing.T) {
	c := New(options(func(o *Options) { o.Replicas, o.Queue = 2, 0 }))
	c.SetRoom(100 << 20)
	_, err := c.Acquire(t.Context(), "a", Query, Need{Bytes: 30 << 20}, nil)
	require.NoError(t, err)
	_, err = c.Acquire(t.Context(), "a", Query, Need{Bytes: 30 << 20}, nil)
	require.Error(t, err)
}

func TestNobodyHoldsMoreThanHalfOfAllPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(options(func(o *Options) { o.Max = 4 }))
		acquire := func(who string) error {
			_, err := c.Acquire(t.Context(), "a", Query, Need{Who: who}, nil)
			return err
		}
		require.NoError(t, acquire("slow"))
		require.NoError(t, acquire("slow"))
		require.EqualError(t, acquire("slow"), "the user or dashboard has 2 requests in flight, which is all that may be, and none ended within 10s")
		require.NoError(t, acquire("ann"))
		require.NoError(t, acquire(""))
	})
}
