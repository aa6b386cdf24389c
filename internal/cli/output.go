// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"slices"

	"github.com/alecthomas/kingpin/v2"
)

// Formats of what is printed: a table or sentences for people, and for programs the same
// as JSON.
const (
	Text = "text"
	JSON = "json"
)

// Output declares the flag that says the format: text, json, or one of more.
func Output(c *kingpin.CmdClause, more ...string) *string {
	return c.Flag("output", "Format: text, or json for programs.").Short('o').Default(Text).Enum(slices.Concat([]string{Text, JSON}, more)...)
}

// WriteJSON writes a value for programs, with an end of line.
func WriteJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}
