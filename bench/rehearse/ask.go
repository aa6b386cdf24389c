// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/cli"
)

const (
	// askFor is how long each server is asked at most, patience how many times as long
	// as stock the patched one may take for the same questions, and grace what it may
	// take besides: times of quick answers are noise.
	askFor   = 2 * time.Minute
	patience = 1.5
	grace    = 10 * time.Second
	// answerTimeout is how long one answer may take.
	answerTimeout = 30 * time.Second
	// maxAnswer bounds what of an answer is compared, in bytes.
	maxAnswer = 64 << 20
	// closeTo is by what share values may differ: sums of the same numbers in another
	// order do.
	closeTo = 1e-9
	// maxTold bounds how many of a kind are told.
	maxTold = 20
)

// Answers is what came of asking both servers, the patched one without limits of reads.
type Answers struct {
	Questions int `json:"questions"` // different ones
	Logged    int `json:"logged"`    // requests in logs that they stand for
	Compared  int `json:"compared"`
	// Empty of those had an answer with nothing in it. Failed had none by stock, as
	// FailedAs says of the first, and NotAsked had no time.
	Empty    int    `json:"empty,omitempty"`
	Failed   int    `json:"failed,omitempty"`
	FailedAs string `json:"failed_as,omitempty"`
	NotAsked int    `json:"not_asked,omitempty"`
	// Seconds are what each took for all that were compared, and Within how many of
	// those the patched one had answered in the time of stock.
	StockSeconds   float64  `json:"stock_seconds"`
	PatchedSeconds float64  `json:"patched_seconds"`
	Within         int      `json:"within_stock_seconds"`
	Slow           bool     `json:"slow,omitempty"`
	Differ         []Differ `json:"differ,omitempty"` // the first ones
	Differing      int      `json:"differing"`
	// Costs has what each question took of stock, as far as it was asked.
	Costs []Cost `json:"costs,omitempty"`
}

// Differ is a question with two answers.
type Differ struct {
	Question

	What string `json:"what"`
}

// Cost is what a question took of stock.
type Cost struct {
	Question int     `json:"question"` // its number
	Peak     int64   `json:"peak_samples"`
	Seconds  float64 `json:"seconds"`
	Answered bool    `json:"answered"`
}

// answer is what a server said.
type answer struct {
	code   int
	took   time.Duration
	kind   string // of the result
	rows   map[string]row
	scalar string // of what has no rows
	peak   int64
	said   string // of an error
	err    error  // no answer
}

func (a *answer) ok() bool { return a.err == nil && a.code == http.StatusOK }

// row is a series of a result, without its labels.
type row struct {
	Value      []any   `json:"value"`
	Values     [][]any `json:"values"`
	Histogram  any     `json:"histogram"`
	Histograms any     `json:"histograms"`
}

// params are those of the question, as the API takes them.
func (q *Question) params() url.Values {
	p := url.Values{"query": {q.Query}}
	if q.Endpoint == "query" {
		p.Set("time", unixTime(q.End))
		return p
	}
	p.Set("start", unixTime(q.Start))
	p.Set("end", unixTime(q.End))
	p.Set("step", unixTime(q.Step))
	return p
}

func unixTime(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }

// asker has no limit of its own but the time of each answer.
var asker = &http.Client{Transport: &http.Transport{DisableCompression: true}}

// ask asks a server.
func ask(ctx context.Context, server string, q *Question) *answer {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	params := q.params()
	params.Set("stats", "all")
	begin := time.Now()
	a := request(ctx, server+"/api/v1/"+q.Endpoint, params)
	a.took = time.Since(begin)
	return a
}

func request(ctx context.Context, target string, params url.Values) *answer {
	a := &answer{}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(params.Encode()))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := asker.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	a.code = res.StatusCode
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		a.err = err
	case len(text) > maxAnswer:
		a.err = fmt.Errorf("its answer is longer than %d MiB", maxAnswer>>20)
	default:
		a.decode(text)
	}
	return a
}

func (a *answer) decode(text []byte) {
	var body struct {
		Error string
		Data  struct {
			ResultType string
			Result     json.RawMessage
			Stats      struct {
				Samples struct{ PeakSamples int64 }
			}
		}
	}
	if err := json.Unmarshal(text, &body); err != nil {
		a.said = strings.TrimSpace(fmt.Sprintf("%.300s", text))
		if a.code == http.StatusOK {
			a.err = fmt.Errorf("its answer is no JSON: %w", err)
		}
		return
	}
	a.said, a.kind, a.peak = body.Error, body.Data.ResultType, body.Data.Stats.Samples.PeakSamples
	if a.kind != "vector" && a.kind != "matrix" {
		a.scalar = string(body.Data.Result)
		return
	}
	var rows []struct {
		Metric map[string]string
		row
	}
	if a.err = json.Unmarshal(body.Data.Result, &rows); a.err != nil {
		return
	}
	a.rows = make(map[string]row, len(rows))
	for _, r := range rows {
		name, _ := json.Marshal(r.Metric) // It was read from JSON.
		a.rows[string(name)] = r.row
	}
}

// difference is what the first difference of two answers is; empty if there is none.
func difference(stock, patched *answer) string {
	switch {
	case patched.err != nil:
		return "patched gave no answer: " + cli.OneLine(patched.err.Error())
	case patched.code != http.StatusOK:
		return fmt.Sprintf("patched answered %d: %s", patched.code, cli.OneLine(patched.said))
	case stock.kind != patched.kind:
		return fmt.Sprintf("stock has a %s, patched a %s", stock.kind, patched.kind)
	case stock.scalar != patched.scalar:
		return fmt.Sprintf("stock has %.100s, patched %.100s", stock.scalar, patched.scalar)
	}
	for name, of := range patched.rows {
		if _, ok := stock.rows[name]; !ok {
			return fmt.Sprintf("%s: stock has none, patched %s", name, of.short())
		}
	}
	var first string
	for name, of := range stock.rows { // The first by name, so that it is the same each time.
		other, ok := patched.rows[name]
		what := ""
		if !ok {
			what = fmt.Sprintf("%s: stock has %s, patched none", name, of.short())
		} else if diff := of.differs(other); diff != "" {
			what = name + ": " + diff
		}
		if what != "" && (first == "" || what < first) {
			first = what
		}
	}
	return first
}

func (r row) short() string {
	switch {
	case len(r.Value) == 2:
		return fmt.Sprint(r.Value[1])
	case len(r.Values) > 0:
		return fmt.Sprintf("%d values", len(r.Values))
	}
	return "histograms"
}

func (r row) differs(o row) string {
	if len(r.Value) > 0 || len(o.Value) > 0 {
		return pairDiffers(r.Value, o.Value)
	}
	if len(r.Values) != len(o.Values) {
		return fmt.Sprintf("stock has %d values, patched %d", len(r.Values), len(o.Values))
	}
	for i := range r.Values {
		if diff := pairDiffers(r.Values[i], o.Values[i]); diff != "" {
			return diff
		}
	}
	if a, b := text(r.Histogram, r.Histograms), text(o.Histogram, o.Histograms); a != b {
		return fmt.Sprintf("stock has the histogram %.100s, patched %.100s", a, b)
	}
	return ""
}

func text(values ...any) string {
	b, _ := json.Marshal(values) // They were read from JSON.
	return string(b)
}

// pairDiffers compares a time and a value.
func pairDiffers(a, b []any) string {
	if len(a) == 2 && len(b) == 2 && text(a[0]) == text(b[0]) && sameValue(a[1], b[1]) {
		return ""
	}
	return fmt.Sprintf("stock has %s, patched %s", pairText(a), pairText(b))
}

func pairText(p []any) string {
	if len(p) != 2 {
		return "none"
	}
	at, _ := p[0].(float64)
	return fmt.Sprintf("%v at %s", p[1], time.UnixMilli(int64(at*1000)).UTC().Format("2006-01-02T15:04:05.999Z"))
}

func sameValue(a, b any) bool {
	x, okX := a.(string)
	y, okY := b.(string)
	if !okX || !okY {
		return false
	}
	if x == y {
		return true
	}
	v, errV := strconv.ParseFloat(x, 64)
	w, errW := strconv.ParseFloat(y, 64)
	largest := max(math.Abs(v), math.Abs(w))
	return errV == nil && errW == nil && !math.IsInf(largest, 0) && math.Abs(v-w) <= closeTo*largest
}

// compare asks both servers everything and compares the answers.
func (r *rehearsal) compare(ctx context.Context, a *asked) error {
	answers, err := step(r, "answers", append(slices.Clone(r.inputs), a.questions), func() (Answers, error) { return r.askBoth(ctx, a) })
	r.report.Answers = &answers
	return err
}

func (r *rehearsal) askBoth(ctx context.Context, a *asked) (found Answers, err error) {
	if len(a.questions) == 0 {
		return found, nil
	}
	stock, err := r.server(ctx, stockServer)
	if err != nil {
		return found, err
	}
	patched, err := r.server(ctx, patchedServer)
	if err != nil {
		return found, err
	}
	found.Questions, found.Logged = len(a.questions), a.logs
	c := &comparing{Answers: &found, stock: stock.URL, patched: patched.URL}
	for i := range a.questions {
		r.Progress.Count(i, len(a.questions))
		if c.late() {
			found.NotAsked = len(a.questions) - i
			break
		}
		c.compare(ctx, i, &a.questions[i])
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		if err := r.died(ctx, stockServer); err != nil {
			return found, fmt.Errorf("stock ended when it was asked %s: %w", a.questions[i].Query, err)
		}
		if died := r.died(ctx, patchedServer); died != nil { // What it was asked has no answer, which was counted.
			found.NotAsked = len(a.questions) - i - 1
			break
		}
	}
	c.settle()
	return found, nil
}

// comparing asks one question after the other.
type comparing struct {
	*Answers

	stock, patched           string
	stockTook, patchedTook   time.Duration
	took                     []time.Duration // by patched
	stockClock, patchedClock time.Duration   // failed answers included
}

// longest is how long the patched server is asked at most.
var longest = time.Duration(patience*float64(askFor)) + grace

func (c *comparing) late() bool { return c.stockClock > askFor || c.patchedClock > longest }

func (c *comparing) compare(ctx context.Context, i int, q *Question) {
	of := ask(ctx, c.stock, q)
	c.stockClock += of.took
	c.Costs = append(c.Costs, Cost{Question: i, Peak: of.peak, Seconds: of.took.Seconds(), Answered: of.ok()})
	if !of.ok() {
		c.Failed++
		c.FailedAs = cmp.Or(c.FailedAs, short(q.Query)+": "+of.refusal())
		return
	}
	if of.scalar == "" && len(of.rows) == 0 {
		c.Empty++
	}
	other := ask(ctx, c.patched, q)
	c.patchedClock += other.took
	c.Compared++
	c.stockTook, c.patchedTook = c.stockTook+of.took, c.patchedTook+other.took
	c.took = append(c.took, other.took)
	diff := difference(of, other)
	if diff == "" || ctx.Err() != nil {
		return
	}
	c.Differing++
	if len(c.Differ) < maxTold {
		c.Differ = append(c.Differ, Differ{*q, diff})
	}
}

// settle says how the two did beside one another.
func (c *comparing) settle() {
	c.StockSeconds, c.PatchedSeconds = c.stockTook.Seconds(), c.patchedTook.Seconds()
	left := c.stockTook
	for _, took := range c.took {
		if left -= took; left < 0 {
			break
		}
		c.Within++
	}
	c.Slow = c.patchedTook > time.Duration(patience*float64(c.stockTook))+grace
}

// heaviest are the questions of people that took most of stock; those that it could not
// answer first.
func heaviest(questions []Question, costs []Cost, most int) []Question {
	costs = slices.Clone(costs)
	slices.SortStableFunc(costs, func(a, b Cost) int {
		if a.Answered != b.Answered {
			return cmp.Compare(btoi(a.Answered), btoi(b.Answered))
		}
		return cmp.Or(cmp.Compare(b.Peak, a.Peak), cmp.Compare(a.Question, b.Question))
	})
	var all []Question
	for _, c := range costs {
		if q := questions[c.Question]; !q.Rule && len(all) < most {
			all = append(all, q)
		}
	}
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
