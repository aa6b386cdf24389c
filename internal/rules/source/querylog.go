// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxLogLine is beyond the longest line of a query log, in bytes.
const maxLogLine = 4 << 20

// maxLogProblems bounds how many bad lines of a query log are told one by one.
const maxLogProblems = 20

// QueryLogs reads the logs that Prometheus writes with query_log_file: JSON, one
// query a line. A query that occurs often in a log is one expression.
func QueryLogs(paths ...string) Found {
	var f Found
	for _, path := range paths {
		f.Add(openQueryLog(path))
	}
	return f
}

func openQueryLog(path string) Found {
	var f Found
	file, err := os.Open(path)
	if err != nil {
		f.problem(path, "", withoutPath(err))
		return f
	}
	defer file.Close()
	return readQueryLog(path, file)
}

type logged struct {
	query string
	line  int
	times int
}

func readQueryLog(path string, r io.Reader) Found {
	var (
		f       Found
		queries []*logged
		bad     int
	)
	byQuery := map[string]*logged{}
	fail := func(line int, err error) {
		bad++
		if bad <= maxLogProblems {
			f.problem(path, fmt.Sprintf("line %d", line), err)
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLogLine)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		query, at, err := loggedQuery(lines.Bytes())
		if err != nil {
			fail(n, err)
			continue
		}
		f.Logged.add(at)
		if l := byQuery[query]; l != nil {
			l.times++
			continue
		}
		l := &logged{query: query, line: n, times: 1}
		byQuery[query] = l
		queries = append(queries, l)
	}
	if err := lines.Err(); err != nil {
		f.problem(path, fmt.Sprintf("after line %d", n), err)
	}
	for _, l := range queries {
		expr, err := Parse(l.query)
		if err != nil {
			fail(l.line, err)
			continue
		}
		e := Expression{File: path, Place: fmt.Sprintf("line %d", l.line), Kind: KindQuery, Text: l.query}
		if l.times > 1 {
			e.Place += fmt.Sprintf(", asked %d times", l.times)
		}
		e.Queries = append(e.Queries, expr)
		f.Expressions = append(f.Expressions, e)
	}
	if len(queries) == 0 && bad == 0 && lines.Err() == nil {
		f.problem(path, "", errors.New("there is no query in it"))
	}
	if bad > maxLogProblems {
		f.problem(path, "", fmt.Errorf("%d further lines could not be read", bad-maxLogProblems))
	}
	return f
}

// loggedQuery returns the query and when it was made. Prometheus 2 called the
// time ts.
func loggedQuery(line []byte) (string, time.Time, error) {
	var entry struct {
		Params struct {
			Query string `json:"query"`
		} `json:"params"`
		Time string `json:"time"`
		TS   string `json:"ts"`
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		return "", time.Time{}, fmt.Errorf("not an entry of a query log: %w", err)
	}
	if entry.Params.Query == "" {
		return "", time.Time{}, errors.New("not an entry of a query log: there is no params.query")
	}
	at, err := time.Parse(time.RFC3339, cmp.Or(entry.Time, entry.TS))
	if err != nil {
		at = time.Time{}
	}
	return entry.Params.Query, at, nil
}
