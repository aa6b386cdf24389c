// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"

	"github.com/promguard/promguard/bench/oomstorm/internal/spawn"
)

// ChildWord is the first argument that has this program be the clients.
const ChildWord = "clients"

// RunChild is the clients' process: it reads a Config from in, storms until in
// ends, and writes the Result to out.
func RunChild(in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(in)
	var c Config
	if err := dec.Decode(&c); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // It ends with the parent, or when that wants the storm to end.
	}()
	return json.NewEncoder(out).Encode(Run(ctx, c))
}

// RunInChild storms in a process of its own until ctx ends. It takes no CPU time
// that the server could use: real clients are on other machines. No process is
// left when it returns.
func RunInChild(ctx context.Context, c Config) (Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The parent-death signal is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := spawn.Command(spawn.Options{Idle: true}, self, ChildWord)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(in).Encode(c); err != nil {
		return nil, errors.Join(err, kill(cmd))
	}
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-ended:
		}
		in.Close()
	}()
	var result Result
	err = json.NewDecoder(out).Decode(&result)
	close(ended)
	<-stopped
	if err != nil {
		return nil, fmt.Errorf("the clients' process: %w", errors.Join(err, kill(cmd)))
	}
	return result, cmd.Wait()
}

func kill(cmd *exec.Cmd) error {
	_ = cmd.Process.Kill() // It may have ended.
	return cmd.Wait()
}
