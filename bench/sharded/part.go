// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/promguard/promguard/internal/proc"
)

const (
	pollPeriod   = 50 * time.Millisecond
	readyTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
)

// part is one process of the chain, which can end and be started again as it was. Its
// methods are called from one goroutine.
type part struct {
	name string
	kind string // what of the chain it is, in figures
	path string
	args []string
	env  []string // besides this process's
	url  string   // answers /-/ready
	log  string   // file that all its runs write to

	*proc.Process             // nil before it was started
	stopped       atomic.Bool // by us
}

// start starts the process, which nobody waits for yet. If it ends before stop is
// called, ended is told why.
func (p *part) start(ended func(*part, error)) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout = log
	cmd.Env = append(os.Environ(), p.env...)
	p.stopped.Store(false)
	process, err := proc.Start(cmd, func(line string) { fmt.Fprintln(log, line) })
	if err != nil {
		return errors.Join(err, log.Close())
	}
	p.Process = process
	go func() {
		<-process.Dead()
		log.Close()
		if !p.stopped.Load() {
			ended(p, process.Error(p.name+" stopped", process.How()))
		}
	}()
	return nil
}

// ready waits until the process says that it is.
func (p *part) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("%s is not ready after %s; its log is %s", p.name, readyTimeout, p.log))
	defer cancel()
	return until(ctx, func() bool {
		_, err := proc.Get(ctx, p.url+"/-/ready")
		return err == nil
	})
}

// until polls until a condition holds, or ctx ends.
func until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPeriod):
		}
	}
	return nil
}

// stop ends the process as an operator does. One that takes too long is killed.
func (p *part) stop() {
	p.stopped.Store(true)
	if p.Process != nil {
		p.Stop(context.Background(), stopTimeout)
	}
}
