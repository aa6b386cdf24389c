// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package page tests the page in a real browser: Chromium, by its protocol.
package page

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/screen"
)

// server serves the page of a made-up server.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	running []screen.Query
}

func newServer(t *testing.T, rows int) *server {
	s := &server{}
	for i := range rows {
		s.running = append(s.running, screen.Query{
			ID: strconv.Itoa(i + 1), Begun: time.Now().Add(-time.Duration(i) * time.Second / 10), Waits: i%7 == 3, Endpoint: "/api/v1/query_range",
			Text:   fmt.Sprintf(`sum by (pod, namespace) (rate(container_cpu_usage_seconds_total{cluster="eu-%d", container!=""}[5m])) / on (pod) group_left 2`, i),
			Series: int64(i) * 1371, Bytes: int64(rows-i) << 20, Allowed: 800 << 20,
			Asker: screen.Asker{User: fmt.Sprintf("user%d", i), Dashboard: "k8s-nodes", DashboardTitle: "Kubernetes / Nodes", PanelTitle: "CPU by pod"},
		})
	}
	page := screen.New(screen.Source{State: s.state, Stop: s.stop, Explain: func(query, _ string) *screen.Explanation {
		return &screen.Explanation{
			Passes: !strings.Contains(query, "le"), Bytes: 310 << 20, Refusals: []string{"Name a metric, as in http_requests_total{le!=\"\"}."},
			Limits: []screen.Finding{{Limit: "series", Mode: "enforce", Seen: "120000", Allowed: "100000", Exceeded: true}},
		}
	}})
	s.Server = httptest.NewServer(page)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *server) stop(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.running {
		if s.running[i].ID == id {
			s.running = append(s.running[:i:i], s.running[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("no request %s", id)
}

func (s *server) state() *screen.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	costs := []screen.Cost{{Endpoint: "/api/v1/query", Text: `histogram_quantile(0.99, sum by (le) (rate(apiserver_request_duration_seconds_bucket[5m])))`, TopCost: screen.TopCost{Requests: 8123, Failed: 12, Seconds: 731, Longest: 31.2, Bytes: 91 << 20}, Asker: screen.Asker{Alert: "KubeAPILatency"}}}
	return &screen.State{
		Program: "Prometheus", Version: "3.16.0", Health: "tight", Level: screen.Warn, Detail: "reads get less memory, ended series leave the head early",
		Gauges:   []screen.Gauge{{Name: "Lives in memory", Used: 1900 << 20, Of: 2560 << 20, Bytes: true}, {Name: "Reads hold", Used: 400 << 20, Of: 410 << 20, Bytes: true}},
		Running:  s.running,
		Costs:    []screen.Window{{Name: "5 minutes", Seconds: 900, Costs: costs}, {Name: "1 hour", Seconds: 9000, Costs: costs}},
		Refusals: []screen.Refusal{{Reason: "too_large", Endpoint: "/api/v1/series", Text: `{le!=""}`, Offer: "Select fewer series: GET /api/v1/series needs more than 205MiB of memory", Count: 1204, Last: time.Now(), Asker: screen.Asker{User: "ann"}}, {Reason: "samples", Warned: true, Endpoint: "query", Offer: "Use a larger step", Count: 1, Last: time.Now()}},
		NewSeries: &screen.Adders{From: time.Now().Add(-5 * time.Minute), Created: 14162, Refused: 12, Adders: []screen.Adder{
			{Name: `job="api", metric="http_requests_total", and 68 values of request_id`, Share: 0.66, Created: 14162, Relabel: "metric_relabel_configs: [{action: drop}]", Limit: "limits: [{label: job}]"},
		}},
		Drops:  &screen.Drops{Profile: "recommended", Dropped: 1310000, Rules: []screen.Drop{{Rule: "apiserver-buckets", Series: 1200000}}},
		Policy: screen.PolicyOf([]screen.Setting{{Name: "memory limit", Value: "auto"}}),
	}
}

// tab is one tab of the browser, and what it complained of and asked for.
type tab struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps the tab in it.
	mu   sync.Mutex
	said []string
	urls []string
}

func open(t *testing.T, width, height int64, dark bool) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			b.said = append(b.said, string(e.Type))
		case *runtime.EventExceptionThrown:
			b.said = append(b.said, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			b.said = append(b.said, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			b.urls = append(b.urls, e.Request.URL)
		}
	})
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	require.NoError(t, chromedp.Run(ctx)) // The browser lives as long as the context of this.
	b.do(network.Enable(), log.Enable(), runtime.Enable(),
		emulation.SetDeviceMetricsOverride(width, height, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
	return b
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	require.NoError(b.t, chromedp.Run(ctx, actions...))
}

// value evaluates JavaScript.
func value[T any](b *tab, script string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(script, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

func (b *tab) eventually(script string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return value[bool](b, script) }, 20*time.Second, 50*time.Millisecond, script)
}

// click and typeInto name what is there when they act: what the protocol has found
// before may have been replaced by what is now.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Evaluate("document.querySelector(`"+selector+"`).click()", nil))
}

func (b *tab) typeInto(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate("document.querySelector(`"+selector+"`).focus()", nil), chromedp.KeyEvent(text))
}

// picture writes a screenshot to PAGE_PICTURES, if that is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("PAGE_PICTURES")
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.CaptureScreenshot(&png))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)) //nolint:gosec // It is for docs.
}

// isQuiet requires that nothing was complained of and nobody else was asked.
func (b *tab) isQuiet(root string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.said)
	require.NotEmpty(b.t, b.urls)
	for _, u := range b.urls {
		require.True(b.t, strings.HasPrefix(u, root), u)
	}
}

// looks are how people look at the page.
var looks = []struct {
	name          string
	width, height int64
	dark          bool
}{{"light", 1440, 900, false}, {"dark", 1440, 900, true}, {"phone", 390, 844, false}, {"phone-dark", 390, 844, true}}

func TestEveryViewIsReadableAndQuiet(t *testing.T) {
	axe, err := os.ReadFile(os.Getenv("AXE"))
	require.NoError(t, err, "AXE is the path of axe.min.js: use make test-page")
	for _, look := range looks {
		t.Run(look.name, func(t *testing.T) {
			s := newServer(t, 30)
			b := open(t, look.width, look.height, look.dark)
			b.do(chromedp.Navigate(s.URL + "/guard?query=up&window=1h"))
			b.eventually(`document.getElementById("live").textContent.startsWith("Live")`)
			b.picture(look.name)
			require.LessOrEqual(t, value[int64](b, `document.documentElement.scrollWidth`), look.width, "nothing is wider than the screen")
			if look.width > 900 {
				require.LessOrEqual(t, value[int64](b, `document.documentElement.scrollHeight`), look.height, "a laptop shows all without scrolling")
			}
			require.True(t, value[bool](b, `(e => { const at = e.getBoundingClientRect(); return document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2) === e; })(document.querySelector(".stop button"))`), "who holds most is stopped without scrolling")
			for _, id := range []string{"costs0", "costs1"} {
				b.do(chromedp.Evaluate(`document.getElementById("`+id+`").click()`, nil))
				b.do(chromedp.Evaluate(string(axe)+";0", nil))
				broken := value[[]string](b, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa"]}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html + " " + n.failureSummary)))`)
				require.Empty(t, broken)
			}
			b.isQuiet(s.URL)
		})
	}
}

func TestAnOperatorStopsAndFindsAndExplains(t *testing.T) {
	s := newServer(t, 30)
	b := open(t, 1440, 900, false)
	b.do(chromedp.Navigate(s.URL + "/guard"))
	b.eventually(`document.getElementById("live").textContent.startsWith("Live")`)

	b.click(`#q1 button`)
	b.eventually(`!document.getElementById("q1") && document.body.textContent.includes("Stopped request 1")`)
	require.Len(t, s.state().Running, 29)

	b.typeInto(`[name=find]`, "user20")
	b.eventually(`document.querySelectorAll("#running tbody tr").length === 1 && !!document.getElementById("q21")`)
	require.Equal(t, "find", value[string](b, `document.activeElement.name`), "who types goes on")
	b.click(`#q21 .by-dashboard`)
	b.eventually(`document.querySelectorAll("#running tbody tr").length === 29`)

	b.typeInto(`#explain textarea`, `{le!=""}`)
	b.eventually(`document.getElementById("verdict").textContent.includes("Is refused")`)
	b.isQuiet(s.URL)
}

func TestEveryControlIsReachedByTheKeyboard(t *testing.T) {
	s := newServer(t, 3)
	b := open(t, 1440, 900, false)
	b.do(chromedp.Navigate(s.URL + "/guard"))
	b.eventually(`document.getElementById("live").textContent.startsWith("Live")`)
	const key = `(e => e.id + "|" + e.tagName + "|" + (e.name || "") + "|" + (e.value || "") + "|" + (e.getAttribute("href") || "") + "|" + e.textContent.slice(0, 20))`
	controls := value[[]string](b, `[...document.querySelectorAll("a, button, input:not([type=radio]), select, textarea, summary")].filter(e => e.checkVisibility()).map(`+key+`)`)
	require.Greater(t, len(controls), 10)
	reached := map[string]bool{}
	for range 2 * len(controls) {
		b.do(chromedp.KeyEvent(kb.Tab))
		reached[value[string](b, key+`(document.activeElement)`)] = true
	}
	for _, c := range controls {
		require.True(t, reached[c], "%s is not reached", c)
	}
	b.isQuiet(s.URL)
}

func TestFiveThousandRequestsAreShownAtOnce(t *testing.T) {
	s := newServer(t, 5000)
	b := open(t, 1440, 900, false)
	// The browser starts for the first one; others may use the machine meanwhile.
	paints := make([]float64, 6)
	for i := range paints {
		b.do(chromedp.Navigate(s.URL + "/guard"))
		b.eventually(`document.getElementById("live").textContent.startsWith("Live") && performance.getEntriesByName("first-contentful-paint").length > 0`)
		paints[i] = value[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	}
	t.Logf("first paints after %.0f ms", paints)
	slices.Sort(paints[1:])
	paint := paints[len(paints)/2]
	found := value[float64](b, `(async () => {
		const begun = performance.now();
		await look("user4321");
		await new Promise(requestAnimationFrame);
		return performance.now() - begun;
	})()`)
	require.Equal(t, int64(1), value[int64](b, `document.querySelectorAll("#running tbody tr").length`))
	t.Logf("first paint after %.0f ms, found one of 5000 within %.0f ms", paint, found)
	if os.Getenv("PAGE_TIMES") != "off" {
		require.LessOrEqual(t, paint, 300.0)
		require.LessOrEqual(t, found, 100.0)
	}
	b.isQuiet(s.URL)
}

func TestThePageIsThereWithoutJavaScript(t *testing.T) {
	s := newServer(t, 3)
	b := open(t, 1440, 900, false)
	b.do(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(s.URL+"/guard"), chromedp.WaitVisible(`#q2`))
	b.do(chromedp.Click(`#q2 button`), chromedp.WaitNotPresent(`#q2`))
	require.Len(t, s.state().Running, 2)
	b.isQuiet(s.URL)
}

// TestOfRealServers makes the pictures of the documentation.
func TestOfRealServers(t *testing.T) {
	for name, root := range map[string]string{"server": os.Getenv("PAGE_SERVER"), "proxy": os.Getenv("PAGE_PROXY")} {
		if root == "" {
			t.Skip("PAGE_SERVER and PAGE_PROXY are the servers: see make test-page")
		}
		b := open(t, 1440, 900, name == "proxy")
		b.do(chromedp.Navigate(root + "/guard?" + url.Values{"query": {"sum by (handler) (rate(prometheus_http_requests_total[5m]))"}, "window": {"6h"}}.Encode()))
		b.eventually(`document.getElementById("live").textContent.startsWith("Live")`)
		b.eventually(`document.querySelectorAll("#running tbody tr").length > 0`)
		b.picture("page-" + name)
		b.isQuiet(root)
	}
}
