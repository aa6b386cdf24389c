// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/admission"
)

// crowd is some clients who ask for the same, each at its own time and with its own
// patience, a server that takes its time, and how many requests it may get at a time.
type crowd struct {
	seed       uint64
	clients    []visit
	first      time.Duration // until the headers
	pieces     int           // of the answer, one every pause
	pause      time.Duration
	dies       time.Duration // breaks all that is in flight; 0 for never
	max, queue int
	wait       time.Duration
	cookie     bool
}

type visit struct {
	comes, stays time.Duration
	query        int
}

// outcome is what a client got, and when it had it.
type outcome struct {
	code  int
	bytes int
	whole bool
	at    time.Duration
}

func (c *crowd) String() string { return fmt.Sprintf("seed %d: %+v", c.seed, *c) }

func newCrowd(seed uint64) *crowd {
	r := rand.New(rand.NewPCG(seed, seed))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))).Round(time.Millisecond) }
	const deadline = 2 * time.Minute // Of the policy.
	// Odd microseconds keep any two things from happening at once.
	c := &crowd{seed: seed, first: upTo(deadline*5/4) + 100*time.Microsecond, pieces: r.IntN(60), pause: upTo(deadline / 40), cookie: r.IntN(4) == 0, queue: 100, wait: upTo(deadline) + 50*time.Microsecond}
	if r.IntN(2) == 0 {
		c.pause = time.Millisecond
	}
	if r.IntN(2) == 0 {
		c.max = 1 + r.IntN(3)
	} else if r.IntN(2) == 0 {
		c.dies = upTo(2*deadline) + 700*time.Microsecond
	}
	for i := range 1 + r.IntN(8) {
		v := visit{comes: upTo(deadline) + time.Duration(i)*time.Microsecond, stays: 2 * deadline}
		if r.IntN(2) == 0 {
			v.stays = upTo(deadline) + 300*time.Microsecond
		}
		if r.IntN(4) == 0 {
			v.query = 1
		}
		c.clients = append(c.clients, v)
	}
	return c
}

const pieceBytes = 1 << 10

// run returns what each client got, and how many requests the server did.
func (c *crowd) run(t *testing.T, collapse bool) (outcomes []outcome, sent int) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		alive, kill := context.WithCancelCause(context.Background())
		defer kill(nil)
		if c.dies > 0 {
			defer time.AfterFunc(c.dies, func() { kill(errors.New("the server died")) }).Stop()
		}
		var n atomic.Int64
		p := proxyOver(t, func(p *Policy) {
			p.Collapse = collapse
			p.Admission.Max, p.Admission.Queue, p.Admission.TenantQueue, p.Admission.Wait = c.max, c.queue, c.queue, c.wait
		}, func(r *http.Request) (*http.Response, error) {
			n.Add(1)
			process := alive
			if alive.Err() != nil {
				process = context.Background() // It is back.
			}
			if err := pass(r.Context(), process, c.first); err != nil {
				return nil, err
			}
			res := textResponse(r, &pieces{ctx: r.Context(), process: process, pause: c.pause, left: c.pieces})
			if c.cookie {
				res.Header.Set("Set-Cookie", "a=b")
			}
			return res, nil
		})
		p.collapser.most = 4 * blockBytes
		outcomes = make([]outcome, len(c.clients))
		var wg sync.WaitGroup
		for i, v := range c.clients {
			wg.Go(func() {
				time.Sleep(v.comes)
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				defer time.AfterFunc(v.stays, leave).Stop()
				rec, whole := askWhole(ctx, p, "/api/v1/query?query=up&time="+strconv.Itoa(v.query))
				outcomes[i] = outcome{rec.Code, rec.Body.Len(), whole && ctx.Err() == nil, time.Since(start)}
			})
		}
		wg.Wait()
		synctest.Wait()
		for _, class := range admission.Classes() {
			held, queued := p.admission.Usage(class)
			require.Zero(t, held, c)
			require.Zero(t, queued, c)
		}
		require.Empty(t, p.collapser.flights, c)
		require.Zero(t, p.collapser.shared, c)
		sent = int(n.Load())
	})
	return outcomes, sent
}

// pass takes a while, or ends with the request or the server.
func pass(ctx, process context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-process.Done():
		return context.Cause(process)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pieces is an answer that comes bit by bit.
type pieces struct {
	ctx, process context.Context
	pause        time.Duration
	left         int
	came         int // bytes of the piece that was sent last, not read yet
}

func (b *pieces) Read(p []byte) (int, error) {
	if b.came == 0 {
		if b.left == 0 {
			return 0, io.EOF
		}
		b.left--
		if err := pass(b.ctx, b.process, b.pause); err != nil {
			return 0, err
		}
		b.came = pieceBytes
	}
	n := copy(p, strings.Repeat("x", b.came))
	b.came -= n
	return n, nil
}

// askWhole is ask that says whether the answer is whole.
func askWhole(ctx context.Context, p *Proxy, target string) (rec *httptest.ResponseRecorder, whole bool) {
	ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{}) // Without one, httputil does not tell.
	req := httptest.NewRequest(http.MethodGet, target, nil).WithContext(ctx)
	req.RemoteAddr = "127.0.0.1:1"
	rec = httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // A panic's value.
			panic(v)
		}
	}()
	p.ServeHTTP(rec, req)
	return rec, true
}

// PROMGUARD_CROWDS=100000 searches for longer, and PROMGUARD_CROWD=7 runs one of them.
func TestNobodyIsWorseOffForSharingAnAnswer(t *testing.T) {
	from, n := uint64(0), uint64(400)
	if text := os.Getenv("PROMGUARD_CROWDS"); text != "" {
		n, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv("PROMGUARD_CROWD"); text != "" {
		from, _ = strconv.ParseUint(text, 10, 64)
		n = from + 1
	}
	better, worse, fewer, served := 0, 0, 0, 0
	for seed := from; seed < n; seed++ {
		c := newCrowd(seed)
		alone, sentAlone := c.run(t, false)
		together, sent := c.run(t, true)
		for i, a := range alone {
			b := together[i]
			switch wasWhole, isWhole := a.code == 200 && a.whole, b.code == 200 && b.whole; {
			case !wasWhole && isWhole:
				better++
			case !wasWhole:
			case c.max > 0:
				// Permits are taken from others by those who are better off.
				if !isWhole {
					worse++
				}
			default:
				served++
				require.Equal(t, [2]any{true, a.bytes}, [2]any{isWhole, b.bytes}, "client %d of %s\nalone %+v\ntogether %+v", i, c, alone, together)
				require.LessOrEqual(t, b.at, a.at, "client %d of %s", i, c)
			}
		}
		fewer += sentAlone - sent
	}
	t.Logf("%d whole answers, %d more and %d less if shared, with %d requests less", served, better, worse, fewer)
	if n-from >= 400 {
		require.Greater(t, served, int(n)/2)
		require.Greater(t, better, 10*worse)
		require.Greater(t, fewer, int(n)/2)
	}
}

func TestCookieIsForTheFirstClientOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		p := proxyOver(t, func(p *Policy) { p.Collapse = true }, func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			time.Sleep(time.Second)
			res := textResponse(r, strings.NewReader("{}"))
			res.Header.Set("Set-Cookie", "session=1")
			return res, nil
		})
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			told []string
		)
		for range 3 {
			wg.Go(func() {
				rec := ask(cancellable(t), p, "/api/v1/query?query=up")
				mu.Lock()
				defer mu.Unlock()
				told = append(told, rec.Header().Get("Set-Cookie")+rec.Header().Get("Cache-Control")+rec.Body.String())
			})
		}
		wg.Wait()
		slices.Sort(told)
		require.Equal(t, []string{"private{}", "private{}", "session=1{}"}, told)
		require.EqualValues(t, 1, sent.Load())
	})
}

func TestAnswerIsOfNobodyWhoAskedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		var answer func(r *http.Request) (*http.Response, error)
		p := proxyOver(t, func(p *Policy) { p.Collapse = true }, func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			select {
			case <-time.After(time.Second):
				return answer(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		two := func(leave time.Duration) (first, second *httptest.ResponseRecorder) {
			sent.Store(0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() { first = ask(ctx, p, "/api/v1/query?query=up&time=1") })
			synctest.Wait()
			wg.Go(func() { second = ask(cancellable(t), p, "/api/v1/query?query=up&time=1") })
			if leave > 0 {
				time.Sleep(leave)
				cancel()
			}
			wg.Wait()
			require.EqualValues(t, 1, sent.Load())
			require.Zero(t, p.collapser.shared)
			require.Empty(t, p.collapser.flights)
			return first, second
		}

		answer = func(r *http.Request) (*http.Response, error) { return textResponse(r, strings.NewReader("{}")), nil }
		_, second := two(time.Millisecond)
		require.Equal(t, "{}", second.Body.String(), "the first client left before the headers")

		answer = func(r *http.Request) (*http.Response, error) {
			return textResponse(r, io.MultiReader(strings.NewReader("{"), &slowBody{time.Second, r.Context()}, strings.NewReader("}"))), nil
		}
		_, second = two(1500 * time.Millisecond)
		require.Equal(t, "{}", second.Body.String(), "and after them")

		answer = func(*http.Request) (*http.Response, error) { return nil, errors.New("the server died") }
		first, second := two(0)
		require.Equal(t, [2]int{503, 503}, [2]int{first.Code, second.Code}, "what broke the server is not sent again")

		large := strings.Repeat("x", maxShared+1)
		answer = func(r *http.Request) (*http.Response, error) { return textResponse(r, strings.NewReader(large)), nil }
		first, second = two(0)
		require.Equal(t, [2]int{len(large), len(large)}, [2]int{first.Body.Len(), second.Body.Len()})
	})
}

func TestDeadlineOfTheFirstIsNotThatOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, sent := time.Now(), 0
		c := newCollapser(func(r *http.Request, _ *trip) (*http.Response, error) {
			sent++
			if err := pass(r.Context(), t.Context(), 3*time.Second); err != nil {
				return nil, err
			}
			return textResponse(r, strings.NewReader("{}")), nil
		}, func() {})
		ask := func(deadline time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			res, err := c.roundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), "key", &trip{})
			if err != nil {
				return err
			}
			return res.Body.Close()
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				time.Sleep(time.Second)
				if err := ask(time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		require.ErrorIs(t, ask(2*time.Second), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(start), "it waits for nobody else")
		wg.Wait()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, 2, sent)
		require.Empty(t, c.flights)
	})
}

func TestAnswerIsHeldOnceAndUntilTheSlowestHasReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 10 * blockBytes, 20
		var read atomic.Int64
		c := newCollapser(func(r *http.Request, _ *trip) (*http.Response, error) {
			time.Sleep(time.Second)
			return textResponse(r, &counter{strings.NewReader(strings.Repeat("x", size)), &read}), nil
		}, func() {})
		c.most = 4 * blockBytes
		bodies := make([]io.ReadCloser, n)
		var wg sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		for i := range n {
			wg.Go(func() {
				of := t.Context()
				if i == 0 {
					of = ctx
				}
				res, err := c.roundTrip(httptest.NewRequestWithContext(of, http.MethodGet, "/", nil), "key", &trip{})
				if err != nil {
					t.Error(err)
					return
				}
				bodies[i] = res.Body
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Less(t, read.Load(), int64(5*blockBytes), "as much as there is room for")
		require.LessOrEqual(t, c.shared, c.most)
		before := read.Load()
		buf := make([]byte, before)
		for _, body := range bodies[1:] {
			_, err := io.ReadFull(body, buf)
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, before, read.Load(), "one has read nothing")
		leave()
		synctest.Wait()
		_, err := bodies[0].Read(buf)
		require.ErrorIs(t, err, context.Canceled)
		require.Greater(t, read.Load(), before)
		for _, body := range bodies[1:] {
			wg.Go(func() {
				rest, err := io.ReadAll(body)
				if err != nil || len(rest)+len(buf) != size {
					t.Error(len(rest), err)
				}
				_ = body.Close()
				_ = body.Close()
			})
		}
		wg.Wait()
		require.NoError(t, bodies[0].Close())
		require.Zero(t, c.shared)
		require.Empty(t, c.flights)
	})
}

type counter struct {
	io.Reader

	n *atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}
