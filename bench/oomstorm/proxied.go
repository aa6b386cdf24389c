// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/internal/proc"
)

// proxyTimeout is how long a promguard may take until it is ready.
const proxyTimeout = 30 * time.Second

// startProxy starts a promguard before a server, and returns its URL and what ends it,
// which the same goroutine must call: the parent-death signal is sent when the starting
// thread ends.
func startProxy(ctx context.Context, b *binary.Binary, upstream string) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := l.Addr().String()
	l.Close()
	args := []string{"serve", "--upstream.url=" + upstream, "--web.listen-address=" + address, "--web.telemetry-address=127.0.0.1:0"}
	cmd := exec.Command(b.Path, append(args, b.Args...)...)
	cmd.SysProcAttr, cmd.Stderr = proc.ChildAttr(), os.Stderr
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return "", nil, fmt.Errorf("--proxy: %w", err)
	}
	stop = func() {
		proc.KillGroup(cmd.Process.Pid)
		_ = cmd.Wait() // It was killed.
		runtime.UnlockOSThread()
	}
	url = "http://" + address
	if err := awaitReady(ctx, url); err != nil {
		stop()
		return "", nil, fmt.Errorf("--proxy: %w", err)
	}
	return url, stop, nil
}

func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, proxyTimeout, fmt.Errorf("it was not ready after %s", proxyTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/-/ready", http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		res, err := client.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
