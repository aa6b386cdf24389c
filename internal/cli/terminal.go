// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// narrow is how wide a terminal is taken to be that does not say it.
const narrow = 80

// sizeOf returns a function that says how many columns and rows a terminal has now, or
// nil for what is no terminal or cannot be drawn on.
func sizeOf(w io.Writer) func() (width, height int) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() (width, height int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width == 0 || height == 0 {
			return narrow, 24
		}
		return width, height
	}
}

func widthOf(w io.Writer) func() int {
	size := sizeOf(w)
	if size == nil {
		return nil
	}
	return func() int {
		width, _ := size()
		return width
	}
}
