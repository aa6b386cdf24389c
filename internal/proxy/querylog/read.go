// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxLine bounds a line in bytes; the longest query that Prometheus logs is one of
// 10 MiB.
const maxLine = 16 << 20

// upstreamEntry is a line of Prometheus's query log.
type upstreamEntry struct {
	Params *struct {
		Query string  `json:"query"`
		Start string  `json:"start"`
		End   string  `json:"end"`
		Step  float64 `json:"step"`
	} `json:"params"`
	// Error is what came of a query that failed, in whatever form.
	Error       json.RawMessage `json:"error"`
	Time        time.Time       `json:"time"`
	TS          time.Time       `json:"ts"` // As older versions name it.
	HTTPRequest *struct {
		ClientIP string `json:"clientIP"`
		Path     string `json:"path"`
	} `json:"httpRequest"`
	RuleGroup *struct {
		Name string `json:"name"`
	} `json:"ruleGroup"`
	Stats struct {
		Timings struct {
			ExecTotalTime float64 `json:"execTotalTime"`
		} `json:"timings"`
	} `json:"stats"`
}

// Stats counts the lines of a log.
type Stats struct {
	// Entries were passed on.
	Entries int `json:"entries"`
	// Rules are evaluations of rules by Prometheus itself, which no proxy sees.
	Rules int `json:"rules"`
	// Broken lines are no entry of a query log, or too long for one.
	Broken int `json:"broken"`
}

// Read calls do for each request of a log of promguard or of Prometheus. A line
// that is neither is counted and skipped: the last one of a log may be cut off.
func Read(r io.Reader, do func(*Entry)) (Stats, error) {
	var stats Stats
	lines := bufio.NewReaderSize(r, 64<<10)
	var buf []byte
	for {
		line, whole, err := readLine(lines, buf[:0])
		if err != nil && !errors.Is(err, io.EOF) {
			return stats, err
		}
		buf = line
		e, rule := (*Entry)(nil), false
		if whole {
			e, rule = parseLine(line)
		}
		switch {
		case len(line) == 0:
		case rule:
			stats.Rules++
		case e == nil:
			stats.Broken++
		default:
			stats.Entries++
			do(e)
		}
		if err != nil {
			return stats, nil
		}
	}
}

// readLine appends the next line to buf, without its end. Of one that is longer
// than maxLine it reads all and returns a part: whole is false then.
func readLine(r *bufio.Reader, buf []byte) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := r.ReadSlice('\n')
		if len(buf)+len(part) <= maxLine {
			buf = append(buf, part...)
		} else {
			whole = false
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(buf, "\r\n"), whole, err
		}
	}
}

func parseLine(line []byte) (e *Entry, rule bool) {
	e = &Entry{}
	if json.Unmarshal(line, e) == nil && e.Endpoint != "" {
		return e, false
	}
	var u upstreamEntry
	if json.Unmarshal(line, &u) != nil || u.Params == nil {
		return nil, false
	}
	if u.RuleGroup != nil || u.HTTPRequest == nil {
		return nil, true
	}
	return u.entry(), false // Nil if its times are none.
}

func (u *upstreamEntry) entry() *Entry {
	_, endpoint, ok := strings.Cut(u.HTTPRequest.Path, "/api/v1/")
	start, errStart := time.Parse(time.RFC3339Nano, u.Params.Start)
	end, errEnd := time.Parse(time.RFC3339Nano, u.Params.End)
	if !ok || errStart != nil || errEnd != nil {
		return nil
	}
	if u.Time.IsZero() {
		u.Time = u.TS
	}
	everything := 0.0
	return &Entry{
		SlowerThan: &everything, Time: u.Time, Endpoint: endpoint, Client: u.HTTPRequest.ClientIP, Queries: []string{u.Params.Query},
		Start: &start, End: &end, Step: u.Params.Step, Code: u.code(), Took: u.Stats.Timings.ExecTotalTime,
	}
}

// code returns the status that the query was answered with.
func (u *upstreamEntry) code() int {
	switch text := string(u.Error); {
	case text == "" || text == "null" || text == `""`:
		return http.StatusOK
	case strings.Contains(text, "timed out"), strings.Contains(text, "canceled"):
		return http.StatusServiceUnavailable
	default:
		return http.StatusUnprocessableEntity
	}
}
