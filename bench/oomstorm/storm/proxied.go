// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/bench/internal/telemetry"
)

// proxyTimeout is how long a promguard may take until it is ready.
const proxyTimeout = 30 * time.Second

// startProxy starts a promguard before a server, and returns its URL and what ends it,
// which the same goroutine must call: the parent-death signal is sent when the starting
// thread ends.
func startProxy(ctx context.Context, proxy []string, upstream string) (url string, stop func(), err error) {
	address, err := proc.FreeAddress()
	if err != nil {
		return "", nil, err
	}
	args := append([]string{"serve", "--upstream.url=" + upstream, "--web.listen-address=" + address, "--web.telemetry-address=127.0.0.1:0"}, proxy[1:]...)
	cmd := exec.Command(proxy[0], args...)
	cmd.SysProcAttr, cmd.Stderr = proc.ChildAttr(), os.Stderr
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return "", nil, fmt.Errorf("--proxy: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proxyTimeout, fmt.Errorf("it was not ready after %s", proxyTimeout))
	defer cancel()
	ctx, ended := context.WithCancelCause(ctx)
	var child sync.WaitGroup
	child.Go(func() {
		_ = cmd.Wait() // Its state says it, too.
		ended(fmt.Errorf("it ended: %s", cmd.ProcessState))
	})
	stop = func() {
		proc.KillGroup(cmd.Process.Pid)
		child.Wait()
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
	for {
		if _, err := telemetry.Get(ctx, url+"/-/ready"); err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
