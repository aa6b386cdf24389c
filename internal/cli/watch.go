// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Sequences that every terminal knows: the screen without history, and the one before.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	firstCell   = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// Watch writes what write writes again and again, until Ctrl-C: on a terminal in place,
// elsewhere one after the other. An error of the first time is returned, later ones are
// told and may pass: a server that is watched may be starting again.
func Watch(program string, out, stderr io.Writer, every time.Duration, write func(io.Writer) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return watch(ctx, program, out, stderr, sizeOf(out), every, write)
}

func watch(ctx context.Context, program string, out, stderr io.Writer, size func() (int, int), every time.Duration, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	tell := func(text string, problem error) error {
		Code(stderr, program, problem)
		_, err := io.WriteString(out, text)
		return err
	}
	if size != nil {
		fmt.Fprint(out, enterScreen)
		defer fmt.Fprint(out, leaveScreen)
		tell = func(text string, problem error) error {
			_, err := io.WriteString(out, frame(text, problem, size))
			return err
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for problem := error(nil); ; {
		if err := tell(text.String(), problem); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		text.Reset()
		problem = write(&text)
	}
}

// frame returns what draws a text into a terminal: what is too wide or too long is not
// seen.
func frame(text string, problem error, size func() (width, height int)) string {
	width, height := size()
	lines := []string{time.Now().Format(time.DateTime) + "  Ctrl-C ends", ""}
	if problem != nil {
		lines[1] = OneLine(problem.Error())
	}
	lines = append(lines, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	var b strings.Builder
	b.WriteString(firstCell)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clip(line, width-1) + clearLine)
	}
	b.WriteString(clearBelow)
	return b.String()
}
