// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"

	"github.com/promguard/promguard/internal/proc"
)

// Word is the first argument that has this program be the clients.
const Word = "clients"

// RunChild is the clients' process: it reads a Config from in, runs until its end
// or that of in, and writes the Result to out.
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
		_, _ = io.Copy(io.Discard, in) // It ends with the parent, or when that wants the clients to end.
	}()
	result, err := Run(ctx, c)
	return errors.Join(err, json.NewEncoder(out).Encode(result))
}

// RunInChild runs clients in a process of its own until ctx ends, or until they
// are through. It takes no CPU time that the server could use: real clients are
// on other machines. No process is left when it returns.
func RunInChild(ctx context.Context, c Config) (result Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return result, err
	}
	// The parent-death signal is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("chrt", "--idle", "0", self, Word)
	cmd.SysProcAttr, cmd.Stderr = proc.ChildAttr(), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return result, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result, err
	}
	if err := cmd.Start(); err != nil {
		return result, err
	}
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	err = json.NewEncoder(in).Encode(c)
	if err == nil || ctx.Err() != nil {
		err = json.NewDecoder(out).Decode(&result)
	}
	if err != nil {
		_ = cmd.Process.Kill() // It may have ended.
		return result, fmt.Errorf("the clients' process: %w", errors.Join(err, cmd.Wait()))
	}
	return result, cmd.Wait()
}
