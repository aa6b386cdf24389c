// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/promguard/promguard/internal/proc"
)

// proxyTimeout is how long a promguard may take until it is ready.
const proxyTimeout = 30 * time.Second

// startProxy starts a promguard before a server, and returns its URL and what ends it.
func startProxy(ctx context.Context, proxy []string, upstream string) (url string, stop func(), err error) {
	address, err := proc.FreeAddress()
	if err != nil {
		return "", nil, err
	}
	args := append([]string{"serve", "--upstream.url=" + upstream, "--web.listen-address=" + address, "--web.telemetry-address=127.0.0.1:0"}, proxy[1:]...)
	p, err := proc.Start(exec.Command(proxy[0], args...), func(text string) { fmt.Fprintln(os.Stderr, text) })
	if err != nil {
		return "", nil, fmt.Errorf("--proxy: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proxyTimeout, fmt.Errorf("it was not ready after %s", proxyTimeout))
	defer cancel()
	url = "http://" + address
	if err := p.WaitReady(ctx, url); err != nil {
		p.Kill()
		return "", nil, fmt.Errorf("--proxy: %w (%s)", err, p.How())
	}
	return url, p.Kill, nil
}
