// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/storm"
	"github.com/promguard/promguard/bench/walreplay/replays"
)

// ClientsWord is the first argument that has a program be the clients of a storm, by
// RunClients. Every program that calls Run must do so.
const ClientsWord = storm.ClientsWord

// RunClients is the clients' process.
func RunClients(in io.Reader, out io.Writer) error { return storm.RunClients(in, out) }

// Storms are those of one's own heaviest queries, before each server under the limit.
type Storms struct {
	Limit   int64   `json:"limit_bytes"`
	Clients int     `json:"clients"`
	Seconds float64 `json:"seconds"`
	// Queries are asked, those that took most of stock.
	Queries []Question      `json:"queries"`
	Stock   storm.OwnResult `json:"stock"`
	Patched storm.OwnResult `json:"patched"`
}

const (
	stormClients = 16
	stormQueries = 20
)

// storms has both servers stormed, one after the other.
func (r *rehearsal) storms(ctx context.Context, a *asked) error {
	hard := heaviest(a.questions, r.report.Answers.Costs, stormQueries)
	if len(hard) == 0 {
		r.report.lack("storm", "nobody but rules asks anything: give --query-log or --dashboards")
		return nil
	}
	s := &Storms{Limit: r.limit, Clients: stormClients, Seconds: r.Storm.Seconds(), Queries: hard}
	for _, of := range []struct {
		name string
		b    binary.Binary
		into *storm.OwnResult
	}{{stockServer, r.stock, &s.Stock}, {patchedServer, r.patched, &s.Patched}} {
		var err error
		*of.into, err = step(r, "storm-"+of.name, append(slices.Clone(r.inputs), of.name, hard, r.limit, r.Storm), func() (storm.OwnResult, error) {
			return r.storm(ctx, of.b, hard)
		})
		if err != nil {
			return err
		}
	}
	r.report.Storm = s
	return nil
}

func (r *rehearsal) storm(ctx context.Context, b binary.Binary, hard []Question) (storm.OwnResult, error) {
	b.Args = replays.Flags(ctx, b, true)
	var requests []storm.OwnRequest
	for i := range hard {
		requests = append(requests, storm.OwnRequest{Path: "/api/v1/" + hard[i].Endpoint, Params: hard[i].params()})
	}
	found, err := storm.Own(ctx, storm.OwnOptions{
		Binary: b, Data: r.dir.Copy, Config: "global: {}\n", Limit: r.limit, Requests: requests,
		Clients: stormClients, For: r.Storm, Timeout: answerTimeout, TmpDir: r.tmp, ReadyTimeout: readyTimeout,
	}, r.Progress)
	if err == nil && found.Alive && found.Answered+found.Refused == 0 {
		err = fmt.Errorf("nobody was answered in a storm of %s: the machine is too busy, or --storm too short", r.Storm)
	}
	return found, err
}

// readyTimeout is how long a server may take to start under the limit.
const readyTimeout = 30 * time.Minute
