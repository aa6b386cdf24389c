// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// policy is that of the guard that is deployed, which the panels have to pass.
const policy = "deploy/kubernetes/guard/promguard.yml"

// patience is how long a server may take to start, and to stop.
const patience = time.Minute

// servers are a Prometheus and the guard in front of it.
type servers struct {
	bin, work         string
	prometheus, guard string // their URLs
	running           []*exec.Cmd
}

// startServers starts both on loopback ports that are free. They are stopped also
// when ctx ends.
func startServers(ctx context.Context, bin, data, work, policy string) (*servers, error) {
	s := &servers{bin: bin, work: work}
	config := filepath.Join(work, "prometheus.yml")
	err := os.WriteFile(config, nil, 0o644)
	if err == nil {
		s.prometheus, err = s.start(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data,
			"--storage.tsdb.retention.time=100y", "--web.listen-address=")
	}
	if err == nil {
		s.guard, err = s.startGuard(ctx, policy)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *servers) startGuard(ctx context.Context, policy string) (string, error) {
	return s.start(ctx, "promguard", "serve", "--upstream.url="+s.prometheus, "--config.file="+policy,
		"--web.telemetry-address=127.0.0.1:0", "--web.listen-address=")
}

// start runs a binary and waits until it is ready. To the last argument the address
// is appended that it is to listen at.
func (s *servers) start(ctx context.Context, name string, args ...string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	l.Close()
	args[len(args)-1] += address

	path, err := filepath.Abs(filepath.Join(s.bin, name))
	if err != nil {
		return "", err
	}
	log, err := os.Create(filepath.Join(s.work, fmt.Sprintf("%s-%d.log", name, len(s.running))))
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, patience
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%w: make build builds it", err)
	}
	s.running = append(s.running, cmd)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if resp, err := http.Get("http://" + address + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + address, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not ready after %s, see %s", name, patience, log.Name())
}

// stop ends all, the last one first.
func (s *servers) stop() error {
	var errs []error
	for _, v := range slices.Backward(s.running) {
		_ = v.Process.Signal(syscall.SIGTERM)
		var exit *exec.ExitError
		if err := v.Wait(); err != nil && !errors.As(err, &exit) && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	s.running = nil
	return errors.Join(errs...)
}
