// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// crowdOptions are those of the subcommand crowd.
type crowdOptions struct {
	count, clients, idle, slow int
	rate                       float64 // of the requests that are measured, per second
	duration                   time.Duration
}

// measureCrowd measures how long requests take to promguard while nobody else is
// there, and while many connections are idle or take their answers slowly. The
// promguard has no bound on requests at a time here, so that all slow ones run.
func measureCrowd(o crowdOptions, stdout io.Writer) error {
	targets, stop, err := startKinds("", "server", "promguard-open")
	if err != nil {
		return err
	}
	defer stop()
	proxy := targets[1]
	var warm result
	if err := atRate(proxy, o.clients, o.rate, o.duration/2, &warm); err != nil {
		return err
	}
	writeHeader(stdout)
	for range o.count {
		for _, crowd := range []struct {
			name       string
			idle, slow int
		}{{"none", 0, 0}, {"idle", o.idle, 0}, {"slow", 0, o.slow}, {"both", o.idle, o.slow}} {
			if err := measureAmong(o, proxy, crowd.name, crowd.idle, crowd.slow, stdout); err != nil {
				return fmt.Errorf("crowd %s: %w", crowd.name, err)
			}
		}
	}
	return nil
}

func measureAmong(o crowdOptions, t *target, name string, idle, slow int, stdout io.Writer) error {
	leave, err := gather(t, idle, slow)
	defer leave()
	if err != nil {
		return err
	}
	if err := settle(t); err != nil {
		return err
	}
	var r result
	if err := atRate(t, o.clients, o.rate, o.duration, &r); err != nil {
		return err
	}
	u, err := t.usage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "BenchmarkCrowd/crowd=%s 1 %d p50-ns %d p99-ns %d rss-bytes %d connections\n",
		name, r.p50.Nanoseconds(), r.p99.Nanoseconds(), u.RSS, u.Connections)
	return nil
}

// gather opens connections: idle ones have had an answer already, slow ones get
// the first bytes of a long one. leave closes them all.
func gather(t *target, idle, slow int) (leave func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var slowClients sync.WaitGroup
	conns := make([]net.Conn, 0, idle+slow)
	leave = func() {
		cancel()
		for _, c := range conns {
			c.Close()
		}
		slowClients.Wait()
	}
	u, err := url.Parse(t.url)
	if err != nil {
		return leave, err
	}
	for i := range idle + slow {
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			return leave, err
		}
		conns = append(conns, c)
		if i < idle {
			err = askOnce(c)
		} else {
			err = askSlowly(ctx, c, &slowClients)
		}
		if err != nil {
			return leave, err
		}
	}
	return leave, nil
}

// settle waits until the buffers on the way to slow clients are full, and what
// connecting took is over.
func settle(t *target) error {
	for range 100 {
		before, err := t.usage()
		if err != nil {
			return err
		}
		const pause = 200 * time.Millisecond
		time.Sleep(pause)
		after, err := t.usage()
		if err != nil {
			return err
		}
		if after.CPU-before.CPU < pause/4 {
			return nil
		}
	}
	return errors.New("promguard is busy with clients that take their answers slowly")
}

// askOnce leaves the connection idle.
func askOnce(c net.Conn) error {
	if _, err := io.WriteString(c, "GET /api/v1/query?query=up HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// A slow client takes slowBytes at a time, and waits for slowPause.
const (
	slowBytes = 4 << 10
	slowPause = 500 * time.Millisecond
)

// askSlowly goes on until ctx is done. The answer is longer than all buffers
// between here and the server.
func askSlowly(ctx context.Context, c net.Conn, wg *sync.WaitGroup) error {
	if err := c.(*net.TCPConn).SetReadBuffer(slowBytes); err != nil {
		return err
	}
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n%s: matrix %d\r\n\r\n", bodies["matrix"].path, longHeader, 1<<30)
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	p := make([]byte, slowBytes)
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // An answer that is too short has no end.
		return err
	}
	if _, err := io.ReadFull(c, p); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(slowPause):
			}
			if _, err := c.Read(p); err != nil {
				return // Closed, or cut off as too slow.
			}
		}
	})
	return nil
}
