// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/memory"
)

const mib = 1 << 20

// fixed returns a table of reads that share so many bytes.
func fixed(bytes int64) *Table { return NewTable(NewBudget(bytes, nil)) }

// expects lets the read begin with so much memory, and says whether it must wait.
func expects(t *testing.T, r *Read, bytes int64) (mustWait bool) {
	t.Helper()
	require.NoError(t, r.Expect(bytes))
	err := r.Begin(t.Context())
	require.Equal(t, r.MustWait(), err != nil)
	return err != nil
}

func TestAReadReservesAtOnceAndGivesAllBack(t *testing.T) {
	table := fixed(100 * mib)
	r, ctx, remove := add(t, table, "/x")
	require.NoError(t, r.Expect(6*mib))
	require.NoError(t, r.Expect(4*mib))
	require.EqualValues(t, mib, table.Budget.Held(), "nothing is taken before the whole is known")
	require.NoError(t, r.Begin(ctx))
	require.NoError(t, r.Begin(ctx), "later calls return at once")
	require.NoError(t, r.Use(10*mib))
	require.EqualValues(t, 11*mib, table.Budget.Held(), "it was expected")
	require.EqualValues(t, 11*mib, table.List()[0].ReservedBytes)
	remove()
	require.NoError(t, r.Use(50*mib), "a goroutine that was late holds nothing for ever")
	require.Zero(t, table.Budget.Held())
}

func TestWhatIsNotExpectedComesFromAReserve(t *testing.T) {
	table := fixed(800 * mib)
	r, _, remove := add(t, table, "/x")
	defer remove()
	other, ctx, removeOther := add(t, table, "/other")
	defer removeOther()
	require.False(t, expects(t, other, 298*mib))
	require.False(t, expects(t, r, 298*mib), "three quarters, but for a little")
	require.NoError(t, r.Use(300*mib))
	require.NoError(t, r.Use(90*mib))
	require.NoError(t, other.Use(299*mib))
	err := other.Use(20 * mib)
	require.ErrorContains(t, err, "needed more than the")
	require.ErrorContains(t, err, "the reserve of --guard.read-memory-budget=800MiB is spent")
	require.Equal(t, ReasonMemory, Stopped(ctx).Reason)

	small, _, removeSmall := add(t, table, "/small")
	defer removeSmall()
	require.NoError(t, small.Use(10*mib), "an eighth is for small reads alone")
}

func TestReadThatNeedsMoreThanHalfOfTheBudgetIsTooLarge(t *testing.T) {
	for name, need := range map[string]func(r *Read, bytes int64) error{
		"expected": (*Read).Expect,
		"used":     (*Read).Use,
	} {
		t.Run(name, func(t *testing.T) {
			r, ctx, remove := add(t, fixed(100*mib), "/x")
			defer remove()
			require.NoError(t, need(r, 48*mib))
			require.ErrorContains(t, need(r, 2*mib), "GET /x needs more than 50MiB of memory, half of --guard.read-memory-budget=100MiB")
			require.Equal(t, ReasonTooLarge, Stopped(ctx).Reason)
		})
	}
}

func TestReadThatMayNeverBeginIsTooLarge(t *testing.T) {
	r, ctx, remove := add(t, fixed(100*mib), "/x")
	defer remove()
	require.NoError(t, r.Use(2*mib))
	require.NoError(t, r.Expect(48*mib), "alone it is not too much")
	require.ErrorContains(t, r.Begin(ctx), "half of --guard.read-memory-budget")
	require.False(t, r.MustWait())
	require.Equal(t, ReasonTooLarge, Stopped(ctx).Reason)
}

// again admits a read that must wait, as its handler's caller does.
func again(ctx context.Context, table *Table, r *Read) <-chan error {
	got := make(chan error, 1)
	go func() {
		_, err := admit(ctx, table, r, nil, time.Minute)
		got <- err
	}()
	synctest.Wait()
	return got
}

func TestAReadWaitsHoldingNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(128 * mib)
		first, _, removeFirst := add(t, table, "/first")
		require.False(t, expects(t, first, 60*mib))
		second, ctx, removeSecond := add(t, table, "/second")
		defer removeSecond()
		require.NoError(t, second.Use(mib))
		require.True(t, expects(t, second, 50*mib))
		got := again(ctx, table, second)
		require.Empty(t, got)
		require.EqualValues(t, 61*mib, table.Budget.Held())
		require.Equal(t, "waiting", table.List()[1].State)

		_, _, removeSmall := add(t, table, "/small")
		removeSmall() // It does not wait.

		removeFirst()
		require.NoError(t, <-got)
		require.False(t, second.MustWait())
		require.False(t, expects(t, second, 52*mib), "what was reserved, and a little that has come since")
	})
}

func TestWhatIsExpectedLaterIsReservedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(100 * mib)
		other, otherCtx, removeOther := add(t, table, "/other")
		require.NoError(t, other.Expect(30*mib))
		require.NoError(t, other.Begin(otherCtx))
		r, ctx, remove := add(t, table, "/x")
		defer remove()
		run := func() error { // It selects again when its first selection is read.
			require.NoError(t, r.Expect(10*mib))
			require.NoError(t, r.Begin(ctx))
			require.NoError(t, r.Use(10*mib))
			require.NoError(t, r.Expect(35*mib))
			return r.Begin(ctx)
		}
		require.ErrorIs(t, run(), errMustWait)
		got := again(ctx, table, r)
		require.Empty(t, got)
		removeOther()
		require.NoError(t, <-got)
		require.EqualValues(t, 46*mib, table.Budget.Held())
		require.NoError(t, run())
		require.EqualValues(t, 46*mib, table.Budget.Held())
	})
}

func TestLargeReadsBeginInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(128 * mib)
		first, _, removeFirst := add(t, table, "/first")
		require.False(t, expects(t, first, 60*mib))
		largest, largestCtx, removeLargest := add(t, table, "/largest")
		require.True(t, expects(t, largest, 62*mib))
		largestGot := again(largestCtx, table, largest)
		later, laterCtx, removeLater := add(t, table, "/later")
		defer removeLater()
		require.True(t, expects(t, later, 34*mib), "there is room, but one waits that was first")
		laterGot := again(laterCtx, table, later)
		require.Empty(t, laterGot)
		removeFirst()
		require.NoError(t, <-largestGot)
		synctest.Wait()
		require.Empty(t, laterGot)
		removeLargest()
		require.NoError(t, <-laterGot)
	})
}

func TestSmallReadsDoNotKeepALargeOneOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(128 * mib)
		var removes []func()
		for range 64 { // Half of the budget is all that they get.
			_, _, remove := add(t, table, "/small")
			removes = append(removes, remove)
		}
		removes[0]()
		large, _, removeLarge := add(t, table, "/large")
		require.False(t, expects(t, large, 60*mib))
		require.EqualValues(t, 63*mib+61*mib, table.Budget.Held())
		removeLarge()
		for _, remove := range removes {
			remove()
		}
		require.Zero(t, table.Budget.Held())
	})
}

func TestReadsThatFindNoMemoryAreRefusedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(8 * mib)
		var removes []func()
		for range 6 { // Three quarters of what is for small reads whatever happens.
			_, _, remove := add(t, table, "/x")
			removes = append(removes, remove)
		}
		try := func(ctx context.Context) error {
			r, ctx, remove := table.Add(ctx, Info{Method: "GET", Endpoint: "/y"}, Limits{})
			defer remove()
			_, err := admit(ctx, table, r, nil, 10*time.Second)
			return err
		}
		start := time.Now()
		err := try(t.Context())
		require.ErrorContains(t, err, "--guard.queue-timeout=10s")
		require.ErrorContains(t, err, "--guard.read-memory-budget=8MiB is spent")
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Zero(t, table.Budget.Waiting())

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, try(ctx), context.DeadlineExceeded)

		got := make(chan error, 1)
		go func() { got <- try(t.Context()) }()
		synctest.Wait()
		removes[0]()
		require.NoError(t, <-got)
		for _, remove := range removes[1:] {
			remove()
		}
		require.Zero(t, table.Budget.Held())
	})
}

func TestExemptReadNeverWaitsForMemory(t *testing.T) {
	table := fixed(2 * mib)
	_, _, remove := add(t, table, "/x")
	defer remove()
	r, ctx, removeExempt := table.Add(t.Context(), Info{}, Limits{Exempt: true})
	defer removeExempt()
	_, err := admit(ctx, table, r, nil, 0)
	require.NoError(t, err)
	require.NoError(t, r.Expect(1<<40))
	require.NoError(t, r.Begin(ctx))
	require.NoError(t, r.Use(1<<40))
	require.False(t, r.MustWait())
}

func TestTheBudgetIsWhatIsLeftOfTheLimit(t *testing.T) {
	u := memory.Usage{Limit: 1000 * mib, Live: 200 * mib, Cycle: 1}
	b := NewBudget(0, func() memory.Usage { return u })
	table := NewTable(b)
	require.EqualValues(t, 600*mib, b.Total(), "four fifths, less what lives")

	r, _, remove := add(t, table, "/x")
	require.False(t, expects(t, r, 200*mib))
	require.NoError(t, r.Use(199*mib))
	b.refresh()
	require.EqualValues(t, 600*mib, b.Total(), "what is reserved is no reason to have less")
	u.Live, u.Cycle = 400*mib, 2
	b.refresh()
	require.EqualValues(t, 600*mib-mib, b.Total(), "nor is what reads hold when it shows in the heap")
	u.Live, u.Cycle = 500*mib, 3
	b.refresh()
	require.EqualValues(t, 500*mib-mib, b.Total(), "something else has grown")
	remove()
	b.refresh()
	require.EqualValues(t, 500*mib-mib, b.Total(), "what it held is known to be free after a collection")
	u.Live, u.Cycle = 300*mib, 4
	b.refresh()
	require.EqualValues(t, 500*mib, b.Total())
	u.Reserved = 50 * mib
	b.refresh()
	require.EqualValues(t, 450*mib, b.Total(), "a compaction takes its part")
	u.Limit = 350 * mib
	b.refresh()
	require.EqualValues(t, leastBudget, b.Total(), "small reads go on")

	u.Limit = 1000 * mib
	b = NewBudget(100*mib, func() memory.Usage { return u })
	require.EqualValues(t, 100*mib, b.Total(), "an operator may allow less")
}

func TestTheFirstReadAfterAPauseHasTheBudgetOfNow(t *testing.T) {
	u := memory.Usage{Limit: 1000 * mib, Live: 100 * mib, Cycle: 1}
	b := NewBudget(0, func() memory.Usage { return u })
	u.Live, u.Cycle = 700*mib, 2 // Nobody looks while no read runs.
	r, _, remove := add(t, NewTable(b), "/x")
	defer remove()
	require.Error(t, r.Expect(200*mib))
	u.Live, u.Cycle = 600*mib, 3
	require.EqualValues(t, 200*mib, b.Total())
}

func TestAReadKeepsWhatItWasPromisedWhenTheBudgetShrinks(t *testing.T) {
	u := memory.Usage{Limit: 1000 * mib, Live: 200 * mib, Cycle: 1}
	b := NewBudget(0, func() memory.Usage { return u })
	r, _, remove := add(t, NewTable(b), "/x")
	defer remove()
	require.False(t, expects(t, r, 290*mib))
	u.Live, u.Cycle = 700*mib, 2
	b.refresh()
	require.NoError(t, r.Use(290*mib))
}

// TestBudgetModel lets random reads run against the budget, in time that a bubble
// makes short: never more than all is held, every read ends, and all is given back.
func TestBudgetModel(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { modelBudget(t, seed) })
	}
}

func FuzzBudgetModel(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { modelBudget(t, seed) })
	})
}

func modelBudget(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	total := int64(leastBudget) << random.IntN(8)
	table := fixed(total)
	pool := NewPool("query", 1+random.IntN(16))
	const patience = 10 * time.Second
	var wg sync.WaitGroup
	for i := range 200 {
		expect, use := random.Int64N(total*3/5), random.Int64N(total*3/5)
		if random.IntN(3) > 0 {
			expect, use = random.Int64N(total/200), random.Int64N(total/200)
		}
		starts, lasts := time.Duration(random.IntN(20_000))*time.Millisecond, time.Duration(random.IntN(500))*time.Millisecond
		client := patience * 3
		if random.IntN(8) == 0 {
			client = time.Duration(random.IntN(1000)) * time.Millisecond
		}
		steps := 1 + random.IntN(20)
		wg.Go(func() {
			time.Sleep(starts)
			parent, cancel := context.WithTimeout(t.Context(), client)
			defer cancel()
			r, ctx, remove := table.Add(parent, Info{Method: "GET", Endpoint: "/x"}, Limits{})
			defer remove()
			timeout, began := time.After(patience), time.Now()
			for runs := 0; runs == 0 || r.MustWait(); runs++ {
				leave, err := table.Admit(ctx, r, pool, timeout, patience)
				if err != nil {
					if waited := time.Since(began); waited > patience+time.Duration(runs)*lasts {
						t.Errorf("read %d waited for %s", i, waited)
					}
					return
				}
				runRead(ctx, t, r, total, expect, use, steps, lasts)
				leave()
				if runs > 3 {
					t.Errorf("read %d has to wait again and again", i)
				}
			}
		})
	}
	wg.Wait()
	b := table.Budget
	require.Zero(t, b.held)
	require.Zero(t, b.large)
	require.Empty(t, b.reads)
	require.Zero(t, b.Waiting())
	require.Zero(t, table.Len())
}

// runRead is the handler of a read that expects so much and then uses so much.
func runRead(ctx context.Context, t *testing.T, r *Read, total, expect, use int64, steps int, lasts time.Duration) {
	if r.Expect(expect) != nil || r.Begin(ctx) != nil {
		return
	}
	for range steps {
		if r.Use(use/int64(steps)) != nil || r.Yield(ctx) != nil {
			return
		}
		if held := r.budget.Held(); held > total {
			t.Errorf("%d of %d bytes are held", held, total)
		}
		select {
		case <-time.After(lasts / time.Duration(steps)):
		case <-ctx.Done():
			return
		}
	}
}

func TestAnEighthOfTheMemoryIsForReadsThatHaveJustBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(128 * mib)
		large, _, removeLarge := add(t, table, "/large")
		require.False(t, expects(t, large, 60*mib))
		other, _, removeOther := add(t, table, "/other")
		defer removeOther()
		require.False(t, expects(t, other, 30*mib))
		var small []*Read
		var ctxs []context.Context
		for range 36 { // All that is left.
			r, ctx, remove := add(t, table, "/small")
			defer remove()
			small, ctxs = append(small, r), append(ctxs, ctx)
		}
		require.EqualValues(t, 128*mib, table.Budget.Held())
		time.Sleep(quickFor)
		again := 0
		for i, r := range small {
			if r.Yield(ctxs[i]) != nil {
				again++
			}
		}
		require.Equal(t, 36-20, again, "large and long ones have seven eighths")

		last, lastCtx := small[35], ctxs[35]
		require.True(t, last.MustWait())
		got := make(chan error, 1)
		go func() {
			_, err := admit(lastCtx, table, last, nil, time.Minute)
			got <- err
		}()
		synctest.Wait()
		require.Empty(t, got, "it waits for memory of long ones")
		quick, _, removeQuick := add(t, table, "/quick") // It does not wait behind that.
		removeQuick()
		require.False(t, quick.MustWait())
		removeLarge()
		require.NoError(t, <-got)
		require.NoError(t, last.Yield(lastCtx))
	})
}

func TestSmallReadsGoOnWhenOthersHoldMoreThanTheBudgetThatIsLeft(t *testing.T) {
	u := memory.Usage{Limit: 1000 * mib, Live: 100 * mib, Cycle: 1}
	b := NewBudget(0, func() memory.Usage { return u })
	table := NewTable(b)
	slow, _, removeSlow := add(t, table, "/slow")
	defer removeSlow()
	require.False(t, expects(t, slow, 100*mib))
	u.Live, u.Cycle = 900*mib, 2
	require.EqualValues(t, leastBudget, b.Total())
	for range 5 {
		small, _, remove := add(t, table, "/small")
		defer remove()
		require.NoError(t, small.Use(growStep), "it needs a little more than expected")
	}
	require.Error(t, begins(t, table))
}

func TestAnswersThatAreSentForLongLeaveTheirMemoryToQuickReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(800 * mib)
		for range 24 { // They hold more than the eighth that is for quick reads.
			slow, _, remove := add(t, table, "/slow")
			defer remove()
			require.False(t, expects(t, slow, 9*mib))
			require.True(t, slow.Begun())
			slow.Wrote(1)
		}
		large, _, removeLarge := add(t, table, "/large")
		defer removeLarge()
		require.False(t, expects(t, large, 350*mib))
		waits, ctx, removeWaits := add(t, table, "/waits")
		defer removeWaits()
		require.True(t, expects(t, waits, 350*mib))
		got := again(ctx, table, waits)
		require.Empty(t, got)

		time.Sleep(quickFor)
		quick, quickCtx, removeQuick := add(t, table, "/quick")
		defer removeQuick()
		require.NoError(t, quick.Use(mib))
		require.NotEmpty(t, again(quickCtx, table, quick), "it does not wait for slow clients")
		removeLarge()
		synctest.Wait()
		require.NoError(t, <-got)
	})
}

func TestALongReadOfSmallNeedDoesNotWaitBehindLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(128 * mib)
		first, _, removeFirst := add(t, table, "/first")
		require.False(t, expects(t, first, 60*mib))
		large, largeCtx, removeLarge := add(t, table, "/large")
		defer removeLarge()
		require.True(t, expects(t, large, 60*mib))
		largeGot := again(largeCtx, table, large)
		long, ctx, removeLong := table.Add(t.Context(), Info{}, Limits{})
		defer removeLong()
		long.long.Store(true)
		_, err := admit(ctx, table, long, nil, time.Minute)
		require.NoError(t, err)
		require.True(t, long.large)
		require.Empty(t, largeGot)
		removeFirst()
		require.NoError(t, <-largeGot)
	})
}

func TestAReadThatFitsWhenTheServerIsAtRestMayTryAgain(t *testing.T) {
	u := memory.Usage{Limit: 1000 * mib, Live: 100 * mib, Cycle: 1}
	for _, tc := range []struct {
		name  string
		need  int64
		after time.Duration // Since the budget was as large as that.
		reads bool          // Whether anything was read then: else the head was not there yet.
		want  Reason
	}{
		{"it fits at rest", 300 * mib, 0, true, ReasonMemory},
		{"it fits at rest, which is a while ago", 300 * mib, lately + time.Second, true, ReasonMemory},
		{"it never fits", 400 * mib, 0, true, ReasonTooLarge},
		{"it does not fit any more", 300 * mib, 3 * lately, true, ReasonTooLarge},
		{"it would have fitted while the server started", 300 * mib, 0, false, ReasonTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := u
				b := NewBudget(0, func() memory.Usage { return now })
				require.EqualValues(t, 700*mib, b.Total())
				if tc.reads {
					r, _, remove := add(t, NewTable(b), "/x")
					require.NoError(t, r.Expect(mib))
					remove()
				}
				now.Live, now.Reserved, now.Cycle = 250*mib, 150*mib, 2
				require.EqualValues(t, 400*mib, b.Total())
				time.Sleep(tc.after)
				for need, bytes := range map[string]int64{"expect": 0, "use": tc.need - 10*mib} {
					r, ctx, remove := add(t, NewTable(b), "/x")
					defer remove()
					var err error
					if need == "use" {
						err = r.Use(bytes)
					} else {
						err = r.Expect(tc.need)
					}
					require.ErrorContains(t, err, "needs more than 200MiB of memory")
					require.Equal(t, tc.want, Stopped(ctx).Reason, need)
				}
			})
		})
	}
}

func TestARefusalIsSoonForSmallReadsBesideLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(1 << 30)
		var wg sync.WaitGroup
		for range 40 { // Ten times what fits.
			wg.Go(func() {
				r, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
				defer remove()
				timeout := time.After(10 * time.Second)
				for first := true; first || r.MustWait(); first = false {
					if _, err := table.Admit(ctx, r, nil, timeout, 10*time.Second); err != nil {
						return
					}
					if r.Expect(300*mib) == nil && r.Begin(ctx) == nil {
						time.Sleep(5 * time.Second)
					}
				}
			})
		}
		for range 100 {
			began := time.Now()
			r, ctx, remove := add(t, table, "/small")
			require.NoError(t, r.Expect(10*mib))
			require.NoError(t, r.Begin(ctx))
			require.Zero(t, time.Since(began), "a small read never waits for large ones")
			remove()
			time.Sleep(130 * time.Millisecond)
		}
		wg.Wait()
		require.Zero(t, table.Budget.Held())
	})
}
